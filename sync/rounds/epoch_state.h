// One epoch as a driver executes it: its program, with the groups, lanes and sessions that takes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "multicast/receive_session.h"
#include "multicast/send_session.h"
#include "plan/program.h"
#include "sync/rounds/driver_config.h"

namespace selmcast {

class RoundMemory;

/// Made by the control thread, completed and used by the driver, destroyed by the control thread.
struct EpochState {
  struct InGroup {
    std::uint32_t group = 0;
    JoinAs as = JoinAs::receiver;
    Membership membership;
  };
  /// Lanes whose frames become ready together while the round runs.
  struct Waiting {
    std::vector<std::uint32_t> lanes;
    Leg leg;                   ///< Of the first of them.
    Rank from = 0;             ///< Source `arrived`: whom it passes on.
    std::uint32_t adding = 0;  ///< Other sources: ranks that contribute.
  };
  /// What one phase of one round of the cycle takes.
  struct Ways {
    std::vector<LaneSpec> lanes;
    std::vector<Waiting> waiting;
    std::vector<Rank> senders;  ///< Ascending where the program's are.
    std::vector<Shard> parts;   ///< What each of them sends.
    Leg::Combine combine = Leg::Combine::add;
    bool relays = false;  ///< What is heard depends on other ranks.
  };
  /// Of one phase and layer.
  struct Stream {
    std::unique_ptr<SendSession> sender;
    std::unique_ptr<ReceiveSession> receiver;
  };

  Program program;
  // Completed by prepare():
  std::vector<InGroup> memberships;
  std::vector<Ways> ways;                           ///< By slot of the cycle, then phase.
  std::optional<PeerDeadlines> receivers, senders;  ///< Of all streams.
  std::vector<Stream> streams;  ///< By phase, then layer; the number is that in frames.
  std::size_t layers = 1;
  std::uint32_t first_round = 0;  ///< Known from when it is in force.

  const Round& round_of(std::uint32_t round) const noexcept {
    return program.rounds[program.slot_of(round)];
  }
  const Ways& ways_of(std::uint32_t round, std::size_t phase) const noexcept {
    return ways[program.slot_of(round) * program.phases + phase];
  }
  Stream& stream_of(std::size_t phase, std::size_t layer) noexcept {
    return streams[phase * layers + layer];
  }
  std::size_t phase_of(std::size_t stream) const noexcept { return stream / layers; }
  std::size_t layer_of(std::size_t stream) const noexcept { return stream % layers; }
  /// Whether that round hears the rank at all.
  bool hears(std::uint32_t round, Rank rank) const noexcept;
  /// See PeerDeadlines.
  void start_deadlines_anew(TimePoint now) noexcept {
    senders->start_anew(now);
    receivers->start_anew(now);
  }
  /// The rank takes part in no round any more.
  void drop(Rank rank) noexcept;
};

/// Joins the program's groups and makes its lanes and sessions. The driver's thread; allocates.
/// Errors: a group cannot be joined; streams do not fit the port; what the memory cannot do.
Result<void> prepare(EpochState& epoch, FramePort& port, const DriverConfig& config,
                     RoundMemory& memory);

/// The most that this rank puts on its link in any round of the program, on the wire; what a device
/// that can pace is told. A prepared epoch.
Kbps planned_rate(const EpochState& epoch, Rank self);

}  // namespace selmcast
