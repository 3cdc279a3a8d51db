// What the control thread and the driver share: epochs on their way, who is lost, who is suspected,
// and why the job cannot go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "sync/rounds/epoch_mailbox.h"
#include "sync/rounds/epoch_state.h"

namespace selmcast {

/// Wait-free on both sides. Allocates in its constructor, and in fail() what the error takes.
class DriverMail {
 public:
  explicit DriverMail(std::uint32_t world);

  EpochMailbox<EpochState>& epochs() noexcept { return epochs_; }

  // [control]
  /// False: it was lost before.
  bool mark_lost(Rank rank) noexcept;
  /// Ranks that the driver gave up because of a deadline, once each, with the reason.
  std::optional<std::pair<Rank, const char*>> next_suspect() noexcept;

  // [driver]
  /// True once after every change of what lost() says.
  bool losses_changed() noexcept;
  bool lost(Rank rank) const noexcept { return lost_[rank].load(std::memory_order_relaxed) != 0; }
  void suspect(Rank rank, const char* why) noexcept {
    suspects_[rank].store(why, std::memory_order_release);
  }

  // Any thread.
  /// False: something else failed before.
  bool fail(Error error);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// When failed().
  const Error& error() const noexcept { return error_; }

 private:
  /// The next epoch's program, on its way between [control] and [driver].
  EpochMailbox<EpochState> epochs_;
  /// [control] release in mark_lost() / [driver] acquire in losses_changed(): lost_ flags up to
  /// this count of changes.
  std::atomic<std::uint32_t> lost_changes_{0};
  std::vector<std::atomic<std::uint8_t>> lost_;  ///< Relaxed; ordered by lost_changes_.
  std::uint32_t lost_seen_ = 0;                  ///< [driver]
  /// [driver] release in suspect() / [control] acquire: a pointer to a literal.
  std::vector<std::atomic<const char*>> suspects_;
  std::vector<std::uint8_t> suspects_told_;  ///< [control]
  /// Whoever wins the claim writes error_, then sets failed_ (release); readers acquire failed_.
  std::atomic<bool> failure_claimed_{false};
  std::atomic<bool> failed_{false};
  Error error_;
};

}  // namespace selmcast
