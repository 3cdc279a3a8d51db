// The clocks of all ranks: what this one knows of the others', and who is still to be told its own.
#pragma once

#include <optional>
#include <vector>

#include "multicast/frame_port.h"
#include "sync/free/clocks.h"

namespace selmcast {

/// This rank's own news.
struct OwnClock {
  std::uint32_t epoch = 0;  ///< Of its rounds; 0: none yet.
  std::uint32_t round = 0;  ///< Under way, or the next to begin; as many have ended.
  std::uint64_t steps = 0;  ///< Of the application.
  bool stopped = false, finished = false;
};

/// The driver's thread. Allocates in its constructor only.
class ClockBoard {
 public:
  ClockBoard(FramePort& port, Duration timeout);

  Clocks& others() noexcept { return clocks_; }
  const Clocks& others() const noexcept { return clocks_; }
  OwnClock& own() noexcept { return own_; }
  const OwnClock& own() const noexcept { return own_; }

  void lose(Rank rank) noexcept;
  /// Everybody is to hear of the own clock, in this turn or as soon as there is room.
  void tell_all() noexcept;
  bool tell(Rank to, std::uint16_t flags = 0) noexcept;
  /// Tells those that are still to be told.
  void tell_pending(TimePoint now) noexcept;
  /// The waits are these: asks those that are waited for. The ranks that kept this one waiting too
  /// long are given to `suspect`.
  template <class Suspect>
  void watch(const Clocks::Waits& waits, TimePoint now, Suspect suspect) noexcept {
    clocks_.wait_for(waits, now);
    while (const auto rank = clocks_.to_ask(now)) tell(*rank, frame_flag::kAsk);
    while (const auto rank = clocks_.suspect(now)) suspect(*rank);
    clocks_.wait_for(waits, now);
  }
  TimePoint next_timer() const noexcept { return std::min(clocks_.next_timer(), tell_at_); }

 private:
  FramePort& port_;
  Clocks clocks_;
  OwnClock own_;
  std::vector<std::uint8_t> to_tell_;  ///< By rank: owes it this rank's clock.
  std::uint32_t to_tell_count_ = 0;
  TimePoint tell_at_ = kNever;  ///< When to try the rest again.
};

}  // namespace selmcast
