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
#include <memory>
#include <optional>
#include <vector>

#include "sync/free/clock_board.h"
#include "sync/free/invitations.h"
#include "sync/free/online_rounds.h"
#include "sync/rounds/windows.h"

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

/// Allocates in the constructor, while epochs change, and where groups are joined for rounds.
class FreeWindows final : public Windows {
 public:
  explicit FreeWindows(const RoundContext& context);
  ~FreeWindows() override;

  std::uint32_t offer(std::unique_ptr<EpochState> epoch) noexcept override;
  bool offered() const noexcept override { return older_ != nullptr; }
  std::size_t read_mail() noexcept override;
  void lose(Rank rank) noexcept override;
  void start_deadlines_anew(TimePoint now) noexcept override;
  EpochState* fallback() noexcept override { return nullptr; }
  void note_alive(const FrameHeader& header, TimePoint now) noexcept override;
  void learn(const EpochState& epoch, const FrameHeader& header, TimePoint now) noexcept override;
  bool merges(EpochState& epoch, std::size_t layer, const FrameHeader& header) noexcept override;
  void merged(const FrameHeader& header, std::uint32_t frame) noexcept override;
  Stray stray(const EpochState& epoch, const FrameHeader& header,
              Verdict verdict) const noexcept override;
  void on_news(const ParsedFrame& frame, TimePoint now) noexcept override;
  std::size_t progress(TimePoint now) noexcept override;
  TimePoint next_timer() const noexcept override;

 private:
  std::array<EpochState*, 2> epochs() const noexcept override {
    return {older_.get(), newer_.get()};
  }
  enum class Stage : std::uint8_t {
    away,       ///< The application computes.
    departing,  ///< It handed a step over, or came to the end.
    held,       ///< Until the others are near enough; at the end, until they have stopped.
    last_round
  };

  void note(const FrameHeader& header, TimePoint now) noexcept;
  // Own rounds.
  void depart(TimePoint now) noexcept;
  void end_multicast(TimePoint now) noexcept;
  void switch_epoch() noexcept;
  bool retire() noexcept;
  // Boundaries.
  bool arrive() noexcept;
  bool cross_boundary(TimePoint now) noexcept;
  bool cross_the_end(TimePoint now) noexcept;
  void leave_boundary() noexcept;
  void merge() noexcept;
  std::uint32_t rounds_needed() const noexcept;
  // Others' rounds.
  bool receive(TimePoint now) noexcept;
  void open_round(EpochState& epoch, Rank sender, TimePoint now) noexcept;
  void watch(TimePoint now) noexcept;
  void suspect(Rank rank) noexcept;
  SendSession* sending() const noexcept {
    return sending_ ? own_->streams[0].sender.get() : nullptr;
  }
  RoundMemory::Layer& memory() noexcept { return context_.memory.layers()[0]; }

  RoundContext context_;
  FreePace pace_;
  ClockBoard clock_;
  Invitations invitations_;
  std::unique_ptr<OnlineRounds> online_;  ///< Null where programs say who receives.

  std::unique_ptr<EpochState> older_, newer_;
  EpochState* own_ = nullptr;  ///< The epoch of this rank's rounds: one of the two.
  bool switch_due_ = false, retire_due_ = false;

  bool sending_ = false;
  Kbps rate_ = 0;  ///< Planned for the round under way, on the wire.
  TimePoint departed_at_{};
  Stage stage_ = Stage::away;
  bool last_ = false, passed_ = false;
  bool snapshot_is_current_ = false;  ///< It equals the parameters.
  std::uint32_t passed_steps_ = 0;

  bool look_ = true;   ///< Something changed that may let a round be opened or end a wait.
  bool watch_ = true;  ///< The waits may have changed.
  std::array<std::uint32_t, 2> unsettled_{};  ///< Senders heard in older_ and newer_, last seen.
  std::vector<std::uint8_t> suspected_;       ///< By rank.
};

}  // namespace selmcast
