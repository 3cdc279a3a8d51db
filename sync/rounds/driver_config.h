// What a driver is made for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "plan/axes/policy.h"

namespace selmcast {

class FreeObserver;

/// Rounds that every rank begins in its own time, see sync/free/free_windows.h.
struct FreePace {
  bool bounded = false;  ///< No rank begins a step more than `slack` beyond the slowest.
  std::uint32_t slack = 0;
  bool online = false;  ///< Receivers are selected as rounds begin; programs say how.
};

struct DriverConfig {
  std::uint32_t job = 0;
  Rank self = 0;
  std::uint32_t world = 1;
  MixKind mix = MixKind::average;
  double gamma = 0.9;  ///< Of MixKind::age.
  /// Elements of the layers that are handed over one by one, in the order of the parameters; empty:
  /// they are handed over together.
  std::vector<std::size_t> layers;
  OrderKind order = OrderKind::fifo;  ///< Of layers.
  std::uint32_t phases_max = 2;       ///< Of any program.
  bool deterministic = false;
  /// How parameters travel; the same on all ranks of the job. f32 is sent in place. The others cost
  /// a pass over the parameters as a round begins and memory of half their size, and save half of
  /// the bytes sent.
  WireElement element = WireElement::f32;
  /// f32, too, is sent from a copy. Needed where what a round ends with may arrive before what this
  /// rank contributes has (a quorum).
  bool copies = false;
  Duration timeout{std::chrono::seconds(10)};
  double loss = 0.0;
  std::uint64_t seed = 1;
  std::uint32_t frame_bytes = 0;  ///< Header and payload; the same on all ranks of the job.
  /// Share of the planned wire rate that fresh data may use; the rest is for repair and control.
  double headroom = 0.95;
  /// Absent: lock-step. Otherwise needs mix=average, f32; not deterministic.
  std::optional<FreePace> free;
  FreeObserver* observer = nullptr;  ///< Of free rounds; for tests.
};

/// What the policy says of rounds; the rest is as above.
DriverConfig driver_config(const Policy& policy);

}  // namespace selmcast
