// No allocation, lock or blocking call on the progress path once a view is in force: real rounds of
// real engines, with every such call of their driver threads intercepted.
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "tests/unit/sync/progress_path/driver_job.h"
#include "transport/shm/shm_transport.h"
#include "transport/uring/uring_transport.h"

namespace selmcast {
namespace {

using intercept::Armed;
using intercept::Watch;

// The compiler may not know what these point to, or it would drop what has no effect.
void* (*volatile allocate)(std::size_t) = &std::malloc;
void (*volatile release)(void*) = &std::free;

struct Plant {
  const char* name;  ///< Of the first call that must be caught.
  std::function<void()> call;
  bool memory_or_lock = true;
};

std::vector<Plant> plants() {
  static std::mutex mutex;
  static std::condition_variable condition;
  static int value = 1;
  static char byte = 0;
  return {{"malloc", [] { release(allocate(100)); }},
          {"malloc", [] { ::operator delete(::operator new(36)); }},
          {"malloc", [] { std::vector<int>(1 + static_cast<std::size_t>(value)).at(1) = 3; }},
          {"pthread_mutex_lock", [] { const std::scoped_lock lock(mutex); }},
          {"pthread_mutex_trylock",
           [] {
             if (mutex.try_lock()) mutex.unlock();
           }},
          {"pthread_cond_clockwait",
           [] {
             std::unique_lock lock(mutex, std::defer_lock);
             {
               const Armed off(Watch::nothing);
               lock.lock();
             }
             condition.wait_for(lock, std::chrono::microseconds(1));
           }},
          {"sem_wait",
           [] {
             sem_t semaphore;
             sem_init(&semaphore, 0, 1);
             sem_wait(&semaphore);
           }},
          {"clock_nanosleep",
           [] {
             const timespec time{0, 1};
             ::clock_nanosleep(CLOCK_MONOTONIC, 0, &time, nullptr);
           },
           false},
          {"nanosleep", [] { std::this_thread::sleep_for(std::chrono::nanoseconds(1)); }, false},
          {"sched_yield", [] { std::this_thread::yield(); }, false},
          {"poll", [] { ::poll(nullptr, 0, 1); }, false},
          {"read", [] { static_cast<void>(::read(-1, &byte, 1) + 1); }, false},
          {"write", [] { static_cast<void>(::write(-1, &byte, 1) + 1); }, false},
          {"recvmsg",
           [] {
             msghdr m{};
             static_cast<void>(::recvmsg(-1, &m, 0));
           },
           false},
          {"sendmsg",
           [] {
             msghdr m{};
             static_cast<void>(::sendmsg(-1, &m, 0));
           },
           false},
          {"mmap", [] { ::mmap(nullptr, 0, PROT_READ, MAP_PRIVATE, -1, 0); }, false},
          {"syscall", [] { ::syscall(SYS_gettid); }, false},
          {"syscall",
           [] {
             const timespec time{0, 1};
             ::syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, value, &time, nullptr, 0);
           },
           false}};
}

TEST(Intercept, CatchesWhatIsPlantedAndNothingElse) {
  for (const auto& plant : plants()) {
    for (const auto watch : {Watch::all, Watch::memory_and_locks, Watch::nothing}) {
      intercept::forget();
      {
        const Armed armed(watch);
        plant.call();
      }
      const bool expected =
          watch == Watch::all || (watch == Watch::memory_and_locks && plant.memory_or_lock);
      if (!expected) {
        EXPECT_EQ(intercept::caught(), 0U) << plant.name << ": " << intercept::name(0);
        continue;
      }
      ASSERT_GE(intercept::caught(), 1U) << plant.name;
      EXPECT_EQ(intercept::name(0), plant.name);
    }
  }
}

TEST(Intercept, TellsTheProgramsOwnCallsFromThoseOfLibraries) {
  intercept::forget();
  {
    const Armed armed(Watch::memory_and_locks);
    void* volatile memory = std::malloc(1);  // Or the compiler leaves both calls out.
    std::free(memory);
  }
  EXPECT_EQ(intercept::caught_from_this_program(), 2U);
  intercept::forget();
  {
    const Armed armed(Watch::memory_and_locks);
    char* volatile copy = ::strdup("in the C library");
    std::free(copy);
  }
  EXPECT_EQ(intercept::caught(), 2U);
  EXPECT_EQ(intercept::caught_from_this_program(), 1U);
  std::string names;
  for (const auto& [name, count] : intercept::calls()) names += name + std::to_string(count) + " ";
  EXPECT_EQ(names, "malloc1 free1 ");
}

TEST(Intercept, CountsWakingASleeperAndDoesNotWatchOtherThreads) {
  intercept::forget();
  std::uint32_t word = 0;
  {
    const Armed armed(Watch::all);
    ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    ::poll(nullptr, 0, 0);
  }
  EXPECT_EQ(intercept::caught(), 0U) << intercept::name(0);
  EXPECT_EQ(intercept::wakes(), 2U);
  EXPECT_EQ(intercept::looks(), 1U);
  std::atomic<int> stage{0};
  std::thread other([&] {
    while (stage.load() == 0) {
    }
    release(allocate(100));
    stage.store(2);
  });
  {
    const Armed armed(Watch::all);
    stage.store(1);
    while (stage.load() != 2) {
    }
  }
  other.join();
  EXPECT_EQ(intercept::caught(), 0U);
}

constexpr std::uint32_t kRanks = 4, kRounds = 12;
constexpr std::size_t kElements = 60'000;

/// Rounds with armed drivers, from the first one of the view on.
void expect_clean_rounds(const std::string& policy_text, Watch watch, const DriverJob::Open& open) {
  const auto policy = parse_policy(policy_text);
  ASSERT_TRUE(policy) << policy.error().message;
  DriverJob job(kRanks, kElements);
  const auto reason = job.start(*policy, open);
  if (!reason.empty()) GTEST_SKIP() << reason;
  intercept::forget();
  const auto begin = SteadyClock().now();
  job.watch(watch);
  for (std::uint32_t r = 0; r < kRounds; ++r) ASSERT_EQ(job.round(), "");
  job.watch(Watch::nothing);
  job.stop();
  const Duration took = SteadyClock().now() - begin;
  if (intercept::caught() > 0) intercept::print();
  EXPECT_EQ(intercept::caught(), 0U) << policy_text << ": " << intercept::name(0);
  // Each rank looks for dead peers once in 5 ms; it wakes the application once a round, and a peer
  // only if that one sleeps.
  const auto looks = static_cast<std::size_t>(took / std::chrono::milliseconds(5)) + 1;
  EXPECT_LE(intercept::looks(), kRanks * looks);
  EXPECT_GE(intercept::wakes(), kRanks * kRounds);
}

class ProgressPath : public testing::TestWithParam<const char*> {};

TEST_P(ProgressPath, OverSharedMemoryEntersTheKernelOnlyToWakeAndToLook) {
  static std::uint64_t job = 9'000'000 + static_cast<std::uint64_t>(::getpid());
  ++job;
  expect_clean_rounds(GetParam(), Watch::all, [](Rank rank) {
    TransportConfig config;
    config.job = job;
    config.rank = rank;
    config.world = kRanks;
    return open_shm(config);
  });
}

TEST_P(ProgressPath, OverUringNeitherAllocatesNorLocks) {
  static std::uint64_t job = 19'000'000 + static_cast<std::uint64_t>(::getpid());
  ++job;
  expect_clean_rounds(GetParam(), Watch::memory_and_locks, [](Rank rank) {
    TransportConfig config;
    config.job = job;
    config.rank = rank;
    config.world = kRanks;
    return open_uring(config);
  });
}

INSTANTIATE_TEST_SUITE_P(All, ProgressPath,
                         testing::Values("mix=average", "mix=sgd", "mix=age",
                                         "mix=average codec=cast:bf16", "select=selmcast:2",
                                         "select=selmcast:2 mix=age codec=cast:fp16",
                                         "select=selmcast:2 groups=sender",
                                         "select=selmcast:2 route=unicast", "select=random:2"));

}  // namespace
}  // namespace selmcast
