// How far every rank is, as far as this one knows, and whom it waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// One rank's news, from a CLOCK frame or from the header of anything it multicasts.
struct ClockNews {
  std::uint32_t epoch = 0;  ///< Of its round `round`.
  std::uint32_t round = 0;  ///< Its rounds below this one have ended.
  std::uint64_t steps = 0;  ///< Its application has done at least so many.
  bool stopped = false;     ///< Its application has done its last step, and that has ended.
  bool finished = false;    ///< Its last round has ended.
};

/// Knowledge only grows, so late and repeated news are harmless. A rank that is waited for is asked
/// again and again, ever more seldom; it is a suspect when it is silent for `timeout`, or when it
/// does not move for three times that long (as a sender in lock-step that lives but sends nothing).
///
/// One thread. Allocates in the constructor only.
class Clocks {
 public:
  Clocks(Rank self, std::uint32_t world, Duration timeout);

  /// False if it was no news.
  bool learn(Rank rank, const ClockNews& news, TimePoint now) noexcept;
  void note_alive(Rank rank, TimePoint now) noexcept { peers_[rank].heard = now; }
  /// This rank did not look for a while, so silence until now counts against nobody.
  void start_anew(TimePoint now) noexcept {
    for (Peer& peer : peers_) peer.heard = peer.moved = now;
  }
  void lose(Rank rank) noexcept { peers_[rank].alive = false; }

  bool alive(Rank rank) const noexcept { return peers_[rank].alive; }
  const ClockNews& of(Rank rank) const noexcept { return peers_[rank].news; }

  /// Whether every other live rank has ended `rounds` rounds, or has stopped.
  bool all_ended(std::uint32_t rounds) const noexcept;
  bool all_stopped() const noexcept;
  bool all_finished() const noexcept;
  /// Whether every other live rank is in `epoch` or a later one.
  bool all_in(std::uint32_t epoch) const noexcept;

  /// Which waits are on now. Call it when that changes and when a turn() is due.
  struct Waits {
    std::uint32_t rounds = 0;  ///< For all_ended(rounds).
    bool stopped = false;      ///< For all_stopped().
    bool finished = false;     ///< For all_finished().
    std::uint32_t epoch = 0;   ///< For all_in(epoch).
  };
  void wait_for(const Waits& waits, TimePoint now) noexcept;
  /// A rank to be asked now; each at most once per interval.
  std::optional<Rank> to_ask(TimePoint now) noexcept;
  /// A rank that kept this one waiting too long; each at most once.
  std::optional<Rank> suspect(TimePoint now) noexcept;
  /// When to_ask() or suspect() has something to say; kNever when nobody is waited for.
  TimePoint next_timer() const noexcept { return next_timer_; }

 private:
  struct Peer {
    bool alive = true, suspected = false;
    bool waited_for = false;
    ClockNews news;
    TimePoint heard{}, moved{};  ///< While waited for: not before the wait began.
    TimePoint ask_at{};
    Duration interval{};
  };

  bool others(Rank rank) const noexcept { return rank != self_ && peers_[rank].alive; }

  Rank self_;
  Duration timeout_;
  std::vector<Peer> peers_;
  TimePoint next_timer_ = kNever;
};

}  // namespace selmcast
