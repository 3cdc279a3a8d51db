// What an engine is made for, and what it holds of one epoch.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "multicast/receive_session.h"
#include "multicast/send_session.h"
#include "sync/accumulator.h"
#include "sync/program.h"

namespace selmcast {

/// Consecutive elements of the registered parameters.
struct Elements {
  std::size_t first = 0;
  std::size_t count = 0;
};

class FreeObserver;

/// Rounds that every rank begins in its own time, see sync/free/free_rounds.h.
struct FreePace {
  bool bounded = false;  ///< No rank begins a step more than `slack` beyond the slowest.
  std::uint32_t slack = 0;
  bool online = false;  ///< Receivers are selected as rounds begin; programs say how.
};

struct EngineConfig {
  std::uint32_t job = 0;
  Rank self = 0;
  std::uint32_t world = 1;
  MixKind mix = MixKind::average;
  std::uint32_t rounds_per_exchange = 1;  ///< Policy::rounds_per_exchange().
  double gamma = 0.9;                     ///< Of MixKind::age.
  KeyedTail keyed;  ///< Of codec=slim with indices; its sums must outlive the engine.
  std::shared_ptr<SenderTable> table;  ///< Of MixKind::cumulative; null otherwise.
  /// Elements of the layers that are handed over one by one, in the order of the parameters; empty:
  /// they are handed over together.
  std::vector<std::size_t> layers;
  OrderKind order = OrderKind::fifo;  ///< Of layers.
  bool deterministic = false;
  /// How parameters travel; the same on all ranks of the job. f32 is sent in place. The others cost
  /// a pass over the parameters as a round begins and memory of half their size, and save half of
  /// the bytes sent.
  WireElement element = WireElement::f32;
  Duration timeout{std::chrono::seconds(10)};
  double loss = 0.0;
  std::uint64_t seed = 1;
  std::uint32_t frame_bytes = 0;  ///< Header and payload; the same on all ranks of the job.
  /// Share of the planned wire rate that fresh data may use; the rest is for repair and control.
  double headroom = 0.95;
  /// Absent: lock-step. Otherwise needs mix=average, f32, and programs that do not move groups; not
  /// deterministic.
  std::optional<FreePace> free;
  FreeObserver* observer = nullptr;  ///< Of free rounds; for tests.
};

/// What the policy says of rounds; the rest is as above.
EngineConfig engine_config(const Policy& policy);

/// One epoch's program with what executing it takes. Made by the control thread, completed and used
/// by the driver, destroyed by the control thread.
struct EpochState {
  struct InGroup {
    std::uint32_t group = 0;
    JoinAs as = JoinAs::receiver;
    Membership membership;
    bool lands = false;  ///< Joined by LandingRows.
  };

  Program program;
  // Completed by the driver in accept:
  std::vector<InGroup> memberships;
  std::vector<std::vector<LaneSpec>> lanes;  ///< Per slot of the cycle.
  std::unique_ptr<SendSession> sender;
  std::unique_ptr<ReceiveSession> receiver;
  struct LayerSessions {
    std::unique_ptr<SendSession> sender;
    std::unique_ptr<ReceiveSession> receiver;
  };
  std::optional<PeerDeadlines> layer_receivers, layer_senders;  ///< Of all layers.
  std::vector<LayerSessions> layers;  ///< Instead of the two above where layers are handed over.
  std::uint32_t first_round = 0;      ///< Known from when it is in force.

  std::size_t slot_of(std::uint32_t round) const noexcept {
    return program.slot_of(round, first_round);
  }
  const RoundPlan& plan_of(std::uint32_t round) const noexcept {
    return program.cycle[slot_of(round)];
  }
};

}  // namespace selmcast
