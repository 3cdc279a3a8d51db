#include "tests/unit/sync/progress_path/intercept.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <utility>

// The linker's names for where the program's own code begins and ends.
extern "C" const char __executable_start, etext;

namespace selmcast::intercept {
namespace {

struct Caught {
  const char* name = "";
  std::array<void*, 24> frames{};
  int depth = 0;
};

constexpr std::size_t kKept = 32;
// The others are numbered from 0 by the preprocessor.
constexpr std::size_t kSyscall = 62, kPoll = 63;
std::array<Caught, kKept> caught_calls;
std::atomic<std::size_t> caught_count{0};  // Relaxed: read when no thread is armed any more.
std::atomic<std::size_t> wake_count{0};    // Relaxed, likewise.
std::atomic<std::size_t> look_count{0};    // Relaxed, likewise.
std::atomic<std::size_t> own_count{0};     // Relaxed, likewise.

struct Tally {
  const char* name = "";
  std::atomic<std::size_t> count{0};  // Relaxed, likewise.
};
std::array<Tally, 64> tallies;

thread_local Watch watch = Watch::nothing;

void record(const char* name) noexcept {
  // What is called from here is our own.
  const auto before = std::exchange(watch, Watch::nothing);
  const auto at = caught_count.fetch_add(1, std::memory_order_relaxed);
  if (at < kKept) {
    auto& call = caught_calls[at];
    call.name = name;
    call.depth = ::backtrace(call.frames.data(), static_cast<int>(call.frames.size()));
  }
  watch = before;
}

bool in_this_program(const void* caller) noexcept {
  const auto* const at = static_cast<const char*>(caller);
  return at >= &__executable_start && at < &etext;
}

void entered(std::size_t tally, const char* name, Watch least, const void* caller) noexcept {
  if (watch < least) return;
  if (in_this_program(caller)) own_count.fetch_add(1, std::memory_order_relaxed);
  if (tally < tallies.size()) {
    tallies[tally].name = name;
    tallies[tally].count.fetch_add(1, std::memory_order_relaxed);
  }
  record(name);
}

void entered_syscall(long number, long operation, const void* caller) noexcept {
  if (watch == Watch::nothing) return;
  const auto futex = operation & ~long{FUTEX_PRIVATE_FLAG};
  if (number == SYS_futex && futex == FUTEX_WAKE) {
    wake_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  entered(kSyscall, "syscall", Watch::all, caller);
}

void entered_poll(int timeout_ms, const void* caller) noexcept {
  if (watch == Watch::nothing) return;
  if (timeout_ms == 0) {
    look_count.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  entered(kPoll, "poll", Watch::all, caller);
}

}  // namespace

Armed::Armed(Watch now) noexcept : before_(std::exchange(watch, now)) {}
Armed::~Armed() {
  watch = before_;
}

std::size_t caught() noexcept {
  return caught_count.load(std::memory_order_relaxed);
}
std::string name(std::size_t i) {
  return i < kKept ? caught_calls[i].name : "";
}
void print() noexcept {
  for (std::size_t i = 0; i < std::min(caught(), kKept); ++i) {
    std::fprintf(stderr, "%s called from\n", caught_calls[i].name);
    std::fflush(stderr);
    ::backtrace_symbols_fd(caught_calls[i].frames.data(), caught_calls[i].depth, STDERR_FILENO);
  }
}
void forget() noexcept {
  // The first backtrace of a process loads a library, which allocates.
  std::array<void*, 2> frames;
  ::backtrace(frames.data(), 2);
  caught_count.store(0, std::memory_order_relaxed);
  wake_count.store(0, std::memory_order_relaxed);
  look_count.store(0, std::memory_order_relaxed);
  own_count.store(0, std::memory_order_relaxed);
  for (auto& tally : tallies) tally.count.store(0, std::memory_order_relaxed);
}
std::size_t caught_from_this_program() noexcept {
  return own_count.load(std::memory_order_relaxed);
}
std::vector<Calls> calls() {
  std::vector<Calls> out;
  for (const auto& tally : tallies) {
    const auto count = tally.count.load(std::memory_order_relaxed);
    if (count > 0) out.push_back({tally.name, count});
  }
  return out;
}
std::size_t wakes() noexcept {
  return wake_count.load(std::memory_order_relaxed);
}
std::size_t looks() noexcept {
  return look_count.load(std::memory_order_relaxed);
}

}  // namespace selmcast::intercept

// Definitions under the C library's names, by assembler label, so that no header's declaration has
// to be matched. Arguments are passed on as six machine words, which is how all of these take
// theirs on this project's machines (x86-64, AArch64): none has floating point or more arguments,
// but syscall(), which has seven.
namespace {
using selmcast::intercept::entered;
using selmcast::intercept::Watch;
using Words = long (*)(long, long, long, long, long, long);
}  // namespace

#define SELMCAST_INTERCEPT(function, least)                                             \
  extern "C" long caught_##function(long, long, long, long, long, long) asm(#function); \
  extern "C" long caught_##function(long a, long b, long c, long d, long e, long f) {   \
    entered(__COUNTER__, #function, least, __builtin_return_address(0));                \
    static const auto next = reinterpret_cast<Words>(::dlsym(RTLD_NEXT, #function));    \
    return next(a, b, c, d, e, f);                                                      \
  }
// dlsym() allocates: glibc's own names for these.
#define SELMCAST_INTERCEPT_MEMORY(function)                                                \
  extern "C" long __libc_##function(long, long, long, long, long, long);                   \
  extern "C" long caught_##function(long, long, long, long, long, long) asm(#function);    \
  extern "C" long caught_##function(long a, long b, long c, long d, long e, long f) {      \
    entered(__COUNTER__, #function, Watch::memory_and_locks, __builtin_return_address(0)); \
    return __libc_##function(a, b, c, d, e, f);                                            \
  }

SELMCAST_INTERCEPT_MEMORY(malloc)
SELMCAST_INTERCEPT_MEMORY(calloc)
SELMCAST_INTERCEPT_MEMORY(realloc)
SELMCAST_INTERCEPT_MEMORY(free)
SELMCAST_INTERCEPT_MEMORY(memalign)
SELMCAST_INTERCEPT(aligned_alloc, Watch::memory_and_locks)
SELMCAST_INTERCEPT(posix_memalign, Watch::memory_and_locks)

SELMCAST_INTERCEPT(pthread_mutex_lock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_mutex_trylock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_mutex_timedlock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_rwlock_rdlock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_rwlock_wrlock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_spin_lock, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_cond_wait, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_cond_timedwait, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_cond_clockwait, Watch::memory_and_locks)
SELMCAST_INTERCEPT(pthread_join, Watch::memory_and_locks)
SELMCAST_INTERCEPT(sem_wait, Watch::memory_and_locks)
SELMCAST_INTERCEPT(sem_timedwait, Watch::memory_and_locks)
SELMCAST_INTERCEPT(__cxa_throw, Watch::memory_and_locks)

SELMCAST_INTERCEPT(nanosleep, Watch::all)
SELMCAST_INTERCEPT(clock_nanosleep, Watch::all)
SELMCAST_INTERCEPT(usleep, Watch::all)
SELMCAST_INTERCEPT(sched_yield, Watch::all)
SELMCAST_INTERCEPT(ppoll, Watch::all)
SELMCAST_INTERCEPT(select, Watch::all)
SELMCAST_INTERCEPT(epoll_wait, Watch::all)
SELMCAST_INTERCEPT(read, Watch::all)
SELMCAST_INTERCEPT(write, Watch::all)
SELMCAST_INTERCEPT(writev, Watch::all)
SELMCAST_INTERCEPT(open, Watch::all)
SELMCAST_INTERCEPT(openat, Watch::all)
SELMCAST_INTERCEPT(close, Watch::all)
SELMCAST_INTERCEPT(recv, Watch::all)
SELMCAST_INTERCEPT(recvfrom, Watch::all)
SELMCAST_INTERCEPT(recvmsg, Watch::all)
SELMCAST_INTERCEPT(recvmmsg, Watch::all)
SELMCAST_INTERCEPT(send, Watch::all)
SELMCAST_INTERCEPT(sendto, Watch::all)
SELMCAST_INTERCEPT(sendmsg, Watch::all)
SELMCAST_INTERCEPT(sendmmsg, Watch::all)
SELMCAST_INTERCEPT(setsockopt, Watch::all)
SELMCAST_INTERCEPT(ioctl, Watch::all)
SELMCAST_INTERCEPT(mmap, Watch::all)
SELMCAST_INTERCEPT(munmap, Watch::all)
SELMCAST_INTERCEPT(madvise, Watch::all)
SELMCAST_INTERCEPT(fwrite, Watch::all)
SELMCAST_INTERCEPT(fputs, Watch::all)

extern "C" long caught_poll(long, long, long, long, long, long) asm("poll");
extern "C" long caught_poll(long a, long b, long c, long d, long e, long f) {
  selmcast::intercept::entered_poll(static_cast<int>(c), __builtin_return_address(0));
  static const auto next = reinterpret_cast<Words>(::dlsym(RTLD_NEXT, "poll"));
  return next(a, b, c, d, e, f);
}

extern "C" long caught_syscall(long, long, long, long, long, long, long) asm("syscall");
extern "C" long caught_syscall(long number, long a, long b, long c, long d, long e, long f) {
  selmcast::intercept::entered_syscall(number, b, __builtin_return_address(0));
  using Seven = long (*)(long, long, long, long, long, long, long);
  static const auto next = reinterpret_cast<Seven>(::dlsym(RTLD_NEXT, "syscall"));
  return next(number, a, b, c, d, e, f);
}
