// When this rank's rounds begin and end, and which rounds of others it hears: the windows that it
// opens for its senders. All at once in lock-step, or each sender's own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "sync/rounds/driver_mail.h"
#include "sync/rounds/hand_over.h"
#include "sync/rounds/round_reports.h"

namespace selmcast {

/// What all kinds of windows work on. The driver's; outlives them.
struct RoundContext {
  FramePort& port;
  const DriverConfig& config;
  RoundMemory& memory;
  RoundReports& reports;
  HandOver& app;
  DriverMail& mail;
};

/// The driver's thread only. No call allocates but those that say so.
class Windows {
 public:
  virtual ~Windows() = default;

  // Epochs.
  /// Takes the next epoch, prepared; not before the one before has been retired to the mailbox.
  /// Returns the first round that this rank has not begun and will not begin before the epoch is
  /// in force, where rounds are agreed on.
  virtual std::uint32_t offer(std::unique_ptr<EpochState> epoch) noexcept = 0;
  /// Whether an offer is under way, so that there can be no other one.
  virtual bool offered() const noexcept = 0;
  /// Follows what the control thread says of the offer. Work done.
  virtual std::size_t read_mail() noexcept = 0;
  virtual void lose(Rank rank) noexcept;
  /// This process was stopped for a while: silence until now is nobody's fault.
  virtual void start_deadlines_anew(TimePoint now) noexcept;
  /// The epoch of a frame's number, or null. Control frames of epochs that are over are answered by
  /// fallback().
  EpochState* find(std::uint32_t epoch) noexcept;
  virtual EpochState* fallback() noexcept = 0;

  // Frames, checked.
  /// Any frame of the rank.
  virtual void note_alive(const FrameHeader& header, TimePoint now) noexcept = 0;
  /// What a DATA, TAIL or EVICT says of its sender's rounds, before a session sees it.
  virtual void learn(const EpochState& epoch, const FrameHeader& header, TimePoint now) noexcept;
  /// Data that the session takes: whether it is merged.
  virtual bool merges(EpochState& epoch, std::size_t layer, const FrameHeader& header) noexcept;
  /// It was.
  virtual void merged(const FrameHeader& header, std::uint32_t frame) noexcept;
  /// Data that the session does not take, since it is not of a round that is heard now.
  enum class Stray : std::uint8_t { late, transition, foreign };
  virtual Stray stray(const EpochState& epoch, const FrameHeader& header,
                      Verdict verdict) const noexcept = 0;
  /// CLOCK, REQUEST and PLAN.
  virtual void on_news(const ParsedFrame& frame, TimePoint now) noexcept;

  // Turns.
  virtual std::size_t progress(TimePoint now) noexcept = 0;
  virtual TimePoint next_timer() const noexcept = 0;

 protected:
  /// The one in use and the one that comes or goes; null where there is none.
  virtual std::array<EpochState*, 2> epochs() const noexcept = 0;
};

inline void Windows::lose(Rank rank) noexcept {
  for (EpochState* epoch : epochs()) {
    if (epoch != nullptr) epoch->drop(rank);
  }
}
inline void Windows::start_deadlines_anew(TimePoint now) noexcept {
  for (EpochState* epoch : epochs()) {
    if (epoch != nullptr) epoch->start_deadlines_anew(now);
  }
}
inline EpochState* Windows::find(std::uint32_t epoch) noexcept {
  for (EpochState* state : epochs()) {
    if (state != nullptr && state->program.epoch == epoch) return state;
  }
  return nullptr;
}

// Nothing to learn, and nothing is left out, unless a kind says otherwise.
inline void Windows::learn(const EpochState&, const FrameHeader&, TimePoint) noexcept {}
inline bool Windows::merges(EpochState&, std::size_t, const FrameHeader&) noexcept {
  return true;
}
inline void Windows::merged(const FrameHeader&, std::uint32_t) noexcept {}
inline void Windows::on_news(const ParsedFrame&, TimePoint) noexcept {}

}  // namespace selmcast
