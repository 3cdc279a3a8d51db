// A rank's part in selecting receivers while rounds run (pace=ssp:s,eta).
//
// Before it departs a rank requests its receivers from the selecting rank, the lowest live one,
// again and again until the plan is there. While it sends it reports what is left, and cuts
// receivers that a later plan leaves out. Without a plan in time it chooses by itself: those that
// are due by k, and those it has not reached for longest, until there are p; plans then only pace
// it. Reports name the plan that is followed, so that a lost one is told again. So the selecting
// rank is never waited for for long, and whatever two ranks that both select say, a round has the
// receivers that its sender names, and only ever loses some.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "multicast/selection_frame.h"
#include "multicast/send_session.h"
#include "plan/online/controller.h"
#include "sync/free/clocks.h"
#include "sync/rounds/epoch_state.h"

namespace selmcast {

/// The driver's thread only. Allocates in the constructor and, on the rank that selects, as
/// multicasts start and end.
class OnlineRounds {
 public:
  OnlineRounds(FramePort& port, const DriverConfig& config, const StreamShape& shape,
               const Clocks& clocks);

  /// The epoch of this rank's next rounds.
  void enter(const EpochState& epoch) noexcept;
  void lose(Rank rank) noexcept { controller_.lose(rank); }
  void learned(Rank rank) noexcept;

  // Own rounds.
  /// Whether there is a plan for `round`; asks for it otherwise.
  bool may_depart(std::uint32_t round, TimePoint now) noexcept;
  /// The planned round begins: how.
  std::span<const LaneSpec> depart(TimePoint now) noexcept;
  /// Of the round, on the wire, as planned last.
  Kbps rate() const noexcept { return rate_; }
  bool alone() const noexcept { return alone_; }
  /// The receivers of the round under way, before any was cut.
  std::span<const Rank> receivers() const noexcept { return lane_[0].receivers; }
  void ended(const SendSession& sender) noexcept;

  // Frames; checked, of an epoch that this rank knows.
  void on_request(const Program& program, const ParsedFrame& frame, TimePoint now) noexcept;
  void on_plan(const ParsedFrame& frame, SendSession* sender, TimePoint now) noexcept;

  /// `sender`: of the round under way, or null.
  std::size_t progress(SendSession* sender, TimePoint now) noexcept;
  TimePoint next_timer() const noexcept;

 private:
  enum class Stage : std::uint8_t { idle, asking, planned, sending };

  Rank selecting() const noexcept;
  bool may_receive(std::size_t member) const noexcept;
  void ask(TimePoint now) noexcept;
  void choose_alone() noexcept;
  void tell(const SendSession& sender, TimePoint now) noexcept;
  /// chosen_ and the rate are the plan of round_.
  void take(std::uint64_t number, Rank from, Kbps rate, SendSession* sender,
            TimePoint now) noexcept;
  /// Between two reports of the round under way.
  Duration tell_interval() const noexcept;
  bool send_plans(SendSession* sender, TimePoint now) noexcept;
  /// marks_, of `program`, as the controller's targets, in targets_.
  void read_targets(const Program& program, Rank sender, bool asks) noexcept;

  FramePort& port_;
  Rank self_;
  Duration patience_;
  double headroom_;
  std::uint32_t slack_;
  StreamShape shape_;
  const Clocks& clocks_;
  std::uint64_t volume_bits_;
  OnlineController controller_;

  const EpochState* epoch_ = nullptr;
  Stage stage_ = Stage::idle;
  std::uint32_t round_ = 0;
  TimePoint ask_at_ = kNever, alone_at_ = kNever, tell_at_ = kNever;
  bool alone_ = false;  ///< This rank chose the receivers of round_.
  Rank plan_from_ = 0;
  std::uint64_t plan_number_ = 0;
  Kbps rate_ = 1;
  std::vector<LaneSpec> lane_;        ///< One.
  std::vector<std::uint32_t> age_;    ///< By rank: rounds since it was reached.
  std::vector<std::uint16_t> marks_;  ///< By member.
  std::vector<std::uint8_t> chosen_;  ///< By member.
  std::vector<OnlineController::Target> targets_;
};

}  // namespace selmcast
