// Rounds that every rank begins in its own time: pace=async and pace=ssp:s.
//
// A rank multicasts a *snapshot* of its parameters, taken at a step boundary of its application,
// and numbers these rounds itself. It hears every other rank at that rank's own rounds: as soon as
// one is settled it opens the next in which the program makes it a receiver, so credit is there
// before the sender begins. What arrives is added to one accumulator, frame by frame, as
// differences from the snapshot, and mixed into the parameters at the next step boundary:
//
//   w[f] = (w[f] + sum of the c[f] frames f that arrived since the last merge) / (c[f] + 1),
//
// the gossip mean of whatever is there. A sender heard in part contributes the frames that are
// there, the others at a later boundary; one heard twice between two boundaries counts twice.
//
// At a step boundary the application hands its parameters over and waits:
//   async   depart (unless the last multicast is still under way: the steps then travel with the
//           next), merge, go on. Nobody waits for the network.
//   ssp:s   wait for the end of the own last multicast, depart, wait until every live rank's rounds
//           up to s before this one have ended (so have the own), merge, go on. A step is a round.
//           Nobody gives credit for a round more than s beyond its own steps, so ssp:0 exchanges
//           and merges exactly what lock-step does (Ho et al. 2013 call the bound staleness; TSC
//           2024 par. IV is its form for peers).
//   finish  merge; wait until all live ranks have come here and what they sent before has ended;
//           then one last round of everyone. What arrives in between is not merged: its sender's
//           last parameters are still to come. So with select=all all ranks end with the mean of
//           their last parameters, as after a round of lock-step.
//
// Epochs. Every rank prepares an epoch before anyone uses it (sync/view_agent.h), and a rank goes
// over between two of its own multicasts, whatever its application does. A round's epoch is that in
// its frames, so each round of each sender is planned by one view on both sides. A rank keeps the
// old epoch to hear those that still send in it, and retires it when all live ranks have gone over.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sync/engine.h"
#include "sync/free/clocks.h"
#include "sync/free/online_rounds.h"

namespace selmcast {

/// Told of everything that decides the values, in the order it happens; for tests.
class FreeObserver {
 public:
  virtual ~FreeObserver() = default;
  /// The snapshot of `round` is the parameters as they are now.
  virtual void departed(std::uint32_t round) noexcept = 0;
  /// Of rounds whose receivers are selected online: they are these; `alone`: by this rank itself.
  virtual void selected(std::uint32_t round, std::span<const Rank> receivers, bool alone) noexcept {
    static_cast<void>(round), static_cast<void>(receivers), static_cast<void>(alone);
  }
  virtual void ended(std::uint32_t round) noexcept = 0;
  virtual void added(Rank sender, std::uint32_t round, std::uint32_t frame) noexcept = 0;
  virtual void merged() noexcept = 0;
};

/// What the rounds work on; all of it outlives them.
struct FreeMemory {
  std::span<float> parameters;    ///< The application's, between push() and close only.
  std::span<std::byte> snapshot;  ///< What is sent; all zero before the first departure.
  RegionId region = 0;            ///< The snapshot's.
  Accumulator* accumulator = nullptr;
};

/// The driver's thread only. Allocates in the constructor, and while epochs change.
class FreeRounds {
 public:
  FreeRounds(FramePort& port, const EngineConfig& config, const StreamShape& shape,
             const FreeMemory& memory);

  // Epochs.
  /// Takes the next epoch, prepared. Not before the one before it has retired().
  void offer(std::unique_ptr<EpochState> epoch) noexcept;
  /// The epoch offered last is committed.
  void activate() noexcept { switch_due_ = newer_ != nullptr && own_ != newer_.get(); }
  /// True once after every switch, when nobody uses the epoch before any more; gives that back
  /// (null for the first).
  bool retired(std::unique_ptr<EpochState>& out) noexcept;
  void lose(Rank rank) noexcept;

  // Frames.
  void on_frame(const ParsedFrame& frame, TimePoint now) noexcept;

  // Steps.
  /// The application came to a step boundary, or (`last`) to the end. Not before the last passed().
  void arrive(bool last) noexcept;
  /// True once per arrive(): the parameters are mixed and the application's again.
  bool passed() noexcept { return std::exchange(passed_, false); }
  /// Rounds of this rank that ended and were not reported yet, oldest first.
  std::span<RoundReport> reports() noexcept { return {ended_.data(), ended_count_}; }
  void clear_reports() noexcept { ended_count_ = 0; }

  std::size_t progress(TimePoint now) noexcept;
  TimePoint next_timer() const noexcept;
  /// A rank that keeps others waiting too long; each a few times at most.
  std::optional<Rank> next_suspect() noexcept;
  /// A sender whose data did not match its digest.
  std::optional<Rank> mismatch() const noexcept { return mismatch_; }
  /// Why a group could not be joined; the job cannot go on.
  const std::optional<Error>& join_error() const noexcept { return join_error_; }

 private:
  enum class Stage : std::uint8_t {
    away,       ///< The application computes.
    departing,  ///< It handed a step over, or came to the end.
    held,       ///< Until the others are near enough; at the end, until they have stopped.
    last_round
  };
  struct Totals {
    PortCounters port;
    std::uint64_t rx_payload_bytes = 0;
  };

  EpochState* find(std::uint32_t epoch) noexcept;
  void learn(const FrameHeader& header, TimePoint now) noexcept;
  void on_clock(const FrameHeader& header, TimePoint now) noexcept;
  void on_data(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept;
  // Own rounds.
  void depart(TimePoint now) noexcept;
  void end_multicast(TimePoint now) noexcept;
  void report_round(TimePoint now) noexcept;
  void switch_epoch() noexcept;
  Totals totals() const noexcept;
  // Boundaries.
  bool cross_boundary(TimePoint now) noexcept;
  bool cross_the_end(TimePoint now) noexcept;
  void leave_boundary() noexcept;
  void merge() noexcept;
  std::uint32_t rounds_needed() const noexcept;
  // Others' rounds.
  void open_round(EpochState& epoch, Rank sender, TimePoint now) noexcept;
  std::optional<std::uint32_t> next_of(const EpochState& epoch, Rank sender,
                                       std::uint32_t from) const noexcept;
  // Rounds whose receivers are selected online (free_online.cc).
  void on_evict(const FrameHeader& header) noexcept;
  void on_invitation(const EpochState& epoch, const FrameHeader& header) noexcept;
  bool join_group_of(EpochState& epoch, Rank sender) noexcept;
  void leave_group_of(EpochState& epoch, Rank sender) noexcept;
  bool receive(TimePoint now) noexcept;
  // Clocks.
  void tell_all() noexcept;
  void tell_pending() noexcept;
  bool tell(Rank to, std::uint16_t flags) noexcept;
  void watch(TimePoint now) noexcept;

  FramePort& port_;
  EngineConfig config_;
  FreePace pace_;
  StreamShape shape_;
  FreeMemory memory_;
  Clocks clocks_;
  std::unique_ptr<OnlineRounds> online_;  ///< Null where programs say who receives.
  struct Invitation {
    std::uint32_t epoch = 0, round = 0;
    std::uint32_t not_below = 0;  ///< This rank was cut out of the rounds below.
  };
  std::vector<Invitation> invitations_;  ///< By sender, the last one.
  std::optional<Error> join_error_;

  std::unique_ptr<EpochState> older_, newer_;
  EpochState* own_ = nullptr;  ///< The epoch of this rank's rounds: one of the two.
  bool switch_due_ = false, retire_due_ = false;

  // This rank's rounds.
  std::uint32_t round_ = 0;  ///< Under way, or the next to begin; as many have ended.
  bool sending_ = false;
  Kbps rate_ = 0;            ///< Planned for it, on the wire.
  std::uint64_t steps_ = 0;  ///< Of the application.
  bool stopped_ = false, finished_ = false;
  TimePoint departed_at_{};
  Totals at_report_;

  Stage stage_ = Stage::away;
  bool last_ = false, passed_ = false;
  bool snapshot_is_current_ = false;  ///< It equals the parameters.
  std::uint32_t passed_steps_ = 0;

  bool look_ = true;   ///< Something changed that may let a round be opened or end a wait.
  bool watch_ = true;  ///< The waits may have changed.
  std::array<std::uint32_t, 2> unsettled_{};  ///< Senders heard in older_ and newer_, last seen.
  std::uint64_t older_payload_bytes_ = 0;     ///< Received in epochs that are gone.
  std::uint64_t transition_frames_ = 0, foreign_frames_ = 0;
  std::uint32_t membership_changes_ = 0;
  std::vector<std::uint8_t> to_tell_;  ///< By rank: owes it this rank's clock.
  std::uint32_t to_tell_count_ = 0;
  TimePoint tell_at_ = kNever;          ///< When to try the rest again.
  std::vector<std::uint8_t> suspects_;  ///< By rank; 1: to be told.
  std::optional<Rank> mismatch_;
  std::array<RoundReport, 4> ended_;
  std::uint32_t ended_count_ = 0;
};

}  // namespace selmcast
