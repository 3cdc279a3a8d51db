// Hears from the kernel when memory is unmapped, moved or emptied, without hooks in the allocator.
//
// How. Ranges are registered with userfaultfd in write-protect mode and nothing is ever protected,
// so that no page fault is delayed; only the events UNMAP, REMAP and REMOVE come. Whoever unmaps
// such memory waits until the event was *read*. That alone is not enough:
//   - the call returns when the event is read, not when its reader has acted on it;
//   - the addresses are free for another thread's mmap() before the event is even queued.
// Hence one thread, the monitor's own, reads the events, is the only one to touch the table of
// ranges, and answers every question. Before it answers it asks the kernel whether a change is
// under way, by lifting the (never made) protection of a page of its own: the kernel counts changes
// from within the lock that unmaps until their events were read and refuses with EAGAIN while there
// are any (fs/userfaultfd.c, mmap_changing). An answer given after that call succeeded thus
// accounts for every unmapping that took place before the question.
//
// No deadlock. The monitor's thread waits for no lock and no other thread, and allocates and frees
// nothing, so whatever the asking threads hold, those that unmap get on.
//
// fork(). The thread has a descriptor table of its own: a child has no descriptor of the monitor's,
// and the kernel drops the registration of the child's copy of the memory. In a child every method
// says no and does nothing, so no pthread_atfork() is needed.
//
// Not told of: shmat(SHM_REMAP) over watched memory, and MADV_GUARD_INSTALL (Linux 6.13).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/result.h"
#include "transport/unique_fd.h"

namespace selmcast::verbs {

/// All methods may be called from any thread; they take a round trip to the monitor's thread and
/// give up after kPatience, which ends the monitor's use for good: every answer is no from then on.
class MemoryMonitor {
 public:
  static constexpr std::size_t kWatches = 1024;  ///< Ranges watched at once, at most.
  using Watch = std::uint32_t;

  /// The monitor of this process, shared since the kernel lets memory be watched by one only.
  /// Starts with the first owner and ends with the last. A child made by fork() gets one of its
  /// own. Error unavailable, with the reason, where the kernel refuses: before Linux 5.18, or by
  /// seccomp.
  static Result<std::shared_ptr<MemoryMonitor>> shared();

  ~MemoryMonitor();

  /// Watches the pages of `memory`, which must be mapped. Nothing where they cannot be watched
  /// faithfully (anything but private anonymous memory, or another userfaultfd has it) or kWatches
  /// are. What happened to the memory before the call does not count.
  std::optional<Watch> watch(std::span<const std::byte> memory);
  /// Whether none of the range was unmapped, moved or emptied since watch(); false for good once
  /// it was, which ends the watch as unwatch() does. Calls under way count as done.
  bool intact(Watch watch);
  void unwatch(Watch watch) noexcept;
  /// How many watches are no longer intact, ever. Costs nothing.
  std::uint64_t changes() const noexcept {
    // A hint, hence relaxed: intact() is what counts, and synchronises by the descriptors.
    return changes_.load(std::memory_order_relaxed);
  }

 private:
  struct Range {
    std::uintptr_t begin = 0, end = 0;
    enum class State : std::uint8_t { free, intact, emptied, gone } state = State::free;
  };
  struct Question {
    enum class Kind : std::uint8_t { none, watch, intact, unwatch, stop } kind = Kind::none;
    std::uintptr_t begin = 0, end = 0;
    Watch watch = 0;
  };

  MemoryMonitor() = default;
  static Result<std::shared_ptr<MemoryMonitor>> start();
  bool in_child() const noexcept;
  std::optional<Watch> ask(const Question& question) noexcept;
  bool answered() noexcept;

  // The monitor's thread.
  bool open() noexcept;
  void run() noexcept;
  bool take_question() noexcept;
  std::optional<Watch> answer(const Question& question) noexcept;
  void read_events() noexcept;
  void changed(std::uintptr_t begin, std::uintptr_t end, Range::State to) noexcept;
  bool settle() noexcept;
  std::optional<Watch> add(std::uintptr_t begin, std::uintptr_t end) noexcept;
  void remove(Watch watch) noexcept;
  void unregister(std::uintptr_t begin, std::uintptr_t end) noexcept;

  pid_t owner_ = 0;
  std::atomic<std::uint64_t> changes_{0};
  std::thread thread_;
  UniqueFd bell_;  ///< Rung when there is a question.

  std::mutex asking_;  ///< One question at a time; never taken by the monitor's thread.
  bool lost_ = false;  ///< Under asking_: the thread did not answer in time.
  // Handed over by writing and reading bell_, and back by writing and reading done_.
  Question question_;
  std::optional<Watch> reply_;
  UniqueFd done_;

  // The monitor's thread only, until done_ was first written and after it was joined.
  int fd_ = -1;  ///< In that thread's own descriptor table.
  int error_ = 0;
  const char* refused_ = "";
  std::byte* probe_ = nullptr;  ///< The page that settle() asks about.
  std::size_t page_ = 0;
  std::array<Range, kWatches> ranges_;
};

}  // namespace selmcast::verbs
