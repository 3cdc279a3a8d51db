// Catches calls of a thread that must not allocate, lock or enter the kernel, where all such calls
// pass: this program defines the C library's functions of those names itself, and as the first
// definition in the process they are what every library calls too.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace selmcast::intercept {

enum class Watch : unsigned char {
  nothing,
  memory_and_locks,  ///< What a thread may not do even where its transport lives by system calls.
  all,               ///< And what waits, reads, writes or maps.
};

/// While it lives, calls of this thread that `watch` forbids are recorded (and still carried out).
/// Two system calls that do not block are counted instead: FUTEX_WAKE, which wakes a thread of
/// another rank, or the application, that sleeps or is about to; and poll() without a timeout, with
/// which shared memory looks for dead peers.
class Armed {
 public:
  explicit Armed(Watch watch) noexcept;
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

 private:
  Watch before_;
};

// Of all threads, since forget(). Only while no thread is armed.
std::size_t caught() noexcept;
/// Name of the function, for i < caught(); at most 32 are kept.
std::string name(std::size_t i);
/// Those that came from the program's own code (selmcast is linked into it), not from a library.
std::size_t caught_from_this_program() noexcept;
struct Calls {
  std::string name;
  std::size_t count = 0;
};
/// How often each function was called.
std::vector<Calls> calls();
/// Names and backtraces, to standard error.
void print() noexcept;
void forget() noexcept;
/// FUTEX_WAKE calls of armed threads.
std::size_t wakes() noexcept;
/// poll() calls without a timeout of armed threads.
std::size_t looks() noexcept;

}  // namespace selmcast::intercept
