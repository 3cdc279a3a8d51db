// Memory that changes under the cache: what was registered before must never be handed out after.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "base/random.h"
#include "tests/unit/transport/registration_support.h"

namespace selmcast::verbs {
namespace {

class RegistrationChanges : public testing::Test {
 protected:
  void SetUp() override {
    auto monitor = MemoryMonitor::shared();
    if (!monitor) GTEST_SKIP() << monitor.error().message;
    monitor_ = std::move(monitor).value();
    cache_ = make_cache();
  }
  std::unique_ptr<RegistrationCache> make_cache() {
    return std::make_unique<RegistrationCache>(
        device_.calls(), 1, IdleBounds{.bytes = 1U << 24U, .entries = 64}, monitor_);
  }
  static RegistrationCache::Lease take(RegistrationCache& cache,
                                       std::span<const std::byte> memory) {
    RegistrationCache::Refusal refusal;
    auto lease = cache.take(memory, 0, refusal);
    EXPECT_TRUE(lease);
    return lease ? std::move(*lease) : RegistrationCache::Lease{};
  }
  bool hit(std::span<const std::byte> memory) {
    const auto before = device_.added;
    const auto lease = take(*cache_, memory);
    EXPECT_EQ(device_.remembered(lease.keys()[0], memory.data()), FakeDevice::word(memory.data()))
        << "a stale registration";
    return device_.added == before;
  }

  FakeDevice device_;
  std::shared_ptr<MemoryMonitor> monitor_;
  std::unique_ptr<RegistrationCache> cache_;
};

TEST_F(RegistrationChanges, NewMemoryAtTheSameAddressIsRegisteredAnew) {
  Pages pages(4);
  hit(pages.span());
  EXPECT_TRUE(hit(pages.span()));
  pages.renew(0, 4, 77);
  EXPECT_FALSE(hit(pages.span()));
  EXPECT_EQ(cache_->counters().invalidated, 1U);
  EXPECT_TRUE(hit(pages.span()));
}

TEST_F(RegistrationChanges, AnyPartOfItEndsARegistration) {
  for (std::size_t page = 0; page < 4; ++page) {
    Pages pages(4);
    hit(pages.span());
    pages.renew(page, 1, 5);
    EXPECT_FALSE(hit(pages.span(page, 1)));
    EXPECT_FALSE(hit(pages.span()));
  }
}

TEST_F(RegistrationChanges, WhatLiesBesideItDoesNot) {
  Pages pages(6);
  hit(pages.span(2, 2));
  pages.renew(0, 2, 5);
  pages.renew(4, 2, 5);
  EXPECT_TRUE(hit(pages.span(2, 2)));
}

TEST_F(RegistrationChanges, EmptiedMovedAndReplacedMemoryIsRegisteredAnew) {
  Pages pages(4), elsewhere(4);
  const auto expect_miss = [&](const char* what) {
    const std::uint64_t word = device_.added + 100;
    std::memcpy(pages.data(), &word, sizeof word);
    EXPECT_FALSE(hit(pages.span())) << what;
    EXPECT_TRUE(hit(pages.span())) << what;
  };
  const std::size_t bytes = 4 * kPageBytes;
  expect_miss("new");
  ASSERT_EQ(::madvise(pages.data(), bytes, MADV_DONTNEED), 0);
  expect_miss("MADV_DONTNEED");
  ASSERT_EQ(::madvise(pages.data() + kPageBytes, kPageBytes, MADV_FREE), 0);
  expect_miss("MADV_FREE");
  ASSERT_NE(::mmap(pages.data(), bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  expect_miss("MAP_FIXED");
  ASSERT_NE(::mremap(pages.data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.data()),
            MAP_FAILED);
  ASSERT_EQ(::mmap(pages.data(), bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            pages.data());
  expect_miss("mremap");
  ASSERT_EQ(::mremap(pages.data(), bytes, bytes / 2, 0), pages.data());
  ASSERT_NE(::mmap(pages.data() + bytes / 2, bytes / 2, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            MAP_FAILED);
  expect_miss("shrunk");
}

TEST_F(RegistrationChanges, TheHeapsEndIsSeenGoing) {
  std::byte* const top = static_cast<std::byte*>(::sbrk(0));
  const std::size_t up = kPageBytes - reinterpret_cast<std::uintptr_t>(top) % kPageBytes;
  const auto bytes = static_cast<std::intptr_t>(up + 4 * kPageBytes);
  ASSERT_NE(::sbrk(bytes), reinterpret_cast<void*>(-1));
  const std::span<const std::byte> memory(top + up, 4 * kPageBytes);
  hit(memory);
  EXPECT_TRUE(hit(memory));
  ASSERT_NE(::sbrk(-bytes), reinterpret_cast<void*>(-1));
  ASSERT_NE(::sbrk(bytes), reinterpret_cast<void*>(-1));
  top[up] = std::byte{9};
  EXPECT_FALSE(hit(memory));
  ::sbrk(-bytes);
}

TEST_F(RegistrationChanges, OneInUseIsNotSharedAfterAChangeNorKept) {
  Pages pages(4);
  auto lease = take(*cache_, pages.span());
  pages.renew(2, 1, 5);
  const auto other = take(*cache_, pages.span(0, 1));
  EXPECT_NE(other.keys()[0], lease.keys()[0]);
  EXPECT_EQ(device_.live(), 2U);
  lease.reset();
  EXPECT_EQ(device_.live(), 1U);
}

TEST_F(RegistrationChanges, ChangedOnesAreDroppedWhenThereIsTime) {
  Pages pages(4), stays(1);
  hit(pages.span());
  hit(stays.span());
  cache_->drop_changed();
  EXPECT_EQ(device_.live(), 2U);
  pages.renew(1, 1, 5);
  cache_->drop_changed();
  EXPECT_EQ(device_.live(), 1U);
  EXPECT_TRUE(hit(stays.span()));
}

TEST_F(RegistrationChanges, AnOverlappingOneThatGoesLeavesTheOtherWatched) {
  // Neither contains the other; every page of the one that stays is changed in turn.
  for (std::size_t page = 2; page < 6; ++page) {
    Pages pages(8);
    auto goes = take(*cache_, pages.span(0, 4));
    auto also = take(*cache_, pages.span(5, 3));
    hit(pages.span(2, 4));
    pages.renew(0, 1, 5);  // so that it is not kept
    pages.renew(7, 1, 5);
    goes.reset();
    also.reset();
    EXPECT_TRUE(hit(pages.span(2, 4)));
    pages.renew(page, 1, 5);
    EXPECT_FALSE(hit(pages.span(2, 4))) << page;
  }
}

TEST_F(RegistrationChanges, AnEvictedOneThatOverlapsLeavesTheOtherWatched) {
  for (std::size_t page = 2; page < 6; ++page) {
    Pages pages(8);
    auto other = make_cache();
    take(*other, pages.span(0, 4));
    take(*other, pages.span(3, 1));
    take(*other, pages.span(5, 3));
    hit(pages.span(2, 4));
    other.reset();
    EXPECT_TRUE(hit(pages.span(2, 4)));
    pages.renew(page, 1, 5);
    EXPECT_FALSE(hit(pages.span(2, 4))) << page;
  }
}

TEST_F(RegistrationChanges, TwoTransportsCacheTheSameMemory) {
  Pages pages(4);
  auto other = make_cache();
  hit(pages.span());
  take(*other, pages.span());
  EXPECT_EQ(device_.live(), 2U);
  EXPECT_TRUE(hit(pages.span()));
  pages.renew(0, 4, 5);
  EXPECT_FALSE(hit(pages.span()));
  other->drop_changed();
  EXPECT_EQ(other->counters().invalidated, 1U);
}

TEST_F(RegistrationChanges, MoreThanCanBeWatchedIsNotKept) {
  constexpr std::size_t kMore = 10;
  const Pages pages(2 * (MemoryMonitor::kWatches + kMore));
  std::vector<RegistrationCache::Lease> leases;
  for (std::size_t i = 0; i < MemoryMonitor::kWatches + kMore; ++i) {
    leases.push_back(take(*cache_, pages.span(2 * i, 1)));
  }
  const Pages last(1);
  EXPECT_FALSE(hit(last.span()));
  EXPECT_FALSE(hit(last.span()));
  leases.clear();
  EXPECT_FALSE(hit(last.span()));
  EXPECT_TRUE(hit(last.span()));
}

// Another thread makes the changes at every moment of the cache's calls. Memory is mapped anew as
// soon as the kernel lets go of the addresses, which is before munmap() returns.
TEST_F(RegistrationChanges, NothingStaleIsHandedOutWhileAnotherThreadChangesMemory) {
  constexpr std::size_t kBytes = 2 * kPageBytes;
  Pages pages(2), spare(2);
  std::byte* const at = pages.data();
  enum Change : std::uint32_t { none, unmap, empty, move, end };
  // Release and acquire: whoever sees a change asked for or done sees the memory as it was then.
  std::atomic<Change> wanted{none};
  std::atomic<std::uint64_t> emptied{0};
  std::thread changer([&] {
    for (;;) {
      const Change change = wanted.exchange(none, std::memory_order_acquire);
      if (change == end) return;
      if (change == none) std::this_thread::yield();
      // Not through the C library, whose calls a sanitizer takes for accesses.
      if (change == unmap) ::syscall(SYS_munmap, at, kBytes);
      if (change == empty) {
        ::syscall(SYS_madvise, at, kBytes, MADV_DONTNEED);
        emptied.fetch_add(1, std::memory_order_release);
      }
      if (change == move) {
        ::syscall(SYS_mremap, at, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, spare.data());
      }
    }
  });
  SplitMix64 random(11);
  std::uint32_t stale = 0, hits = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  for (std::uint64_t word = 1; std::chrono::steady_clock::now() < until; ++word) {
    std::memcpy(at, &word, sizeof word);
    for (int times = 0; times < 2; ++times) {
      const auto before = device_.added;
      const auto lease = take(*cache_, pages.span());
      hits += device_.added == before;
      stale += device_.remembered(lease.keys()[0], at) != word;
    }
    const auto change = static_cast<Change>(1 + random() % 3);
    const auto before = emptied.load(std::memory_order_relaxed);
    wanted.store(change, std::memory_order_release);
    if (change == empty) {
      // Only munmap() and mremap() free the addresses early.
      while (emptied.load(std::memory_order_acquire) == before) std::this_thread::yield();
      continue;
    }
    while (reinterpret_cast<std::byte*>(::syscall(SYS_mmap, at, kBytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                                                  -1, 0)) != at) {
      std::this_thread::yield();
    }
  }
  wanted.store(end, std::memory_order_release);
  changer.join();
  EXPECT_EQ(stale, 0U);
  EXPECT_GT(hits, 0U);
  RecordProperty("hits", static_cast<int>(hits));
}

// Prints what the cache adds to a registration; tests/guest/verbs_registrations.cc has the
// device's.
TEST_F(RegistrationChanges, CostsOfAHitAndOfAWatch) {
  using Watch = std::chrono::steady_clock;
  for (const std::size_t mib : {1U, 64U}) {
    std::vector<double> watch, hits;
    for (int round = 0; round < 101; ++round) {
      const Pages pages((mib << 20U) / kPageBytes);
      auto start = Watch::now();
      const auto watched = monitor_->watch(pages.span());
      watch.push_back(std::chrono::duration<double, std::micro>(Watch::now() - start).count());
      ASSERT_TRUE(watched);
      start = Watch::now();
      EXPECT_TRUE(monitor_->intact(*watched));
      hits.push_back(std::chrono::duration<double, std::micro>(Watch::now() - start).count());
      monitor_->unwatch(*watched);
    }
    std::sort(watch.begin(), watch.end());
    std::sort(hits.begin(), hits.end());
    std::printf("%zu MiB: watching %.1f us, asking %.1f us (medians)\n", mib, watch[50], hits[50]);
  }
}

#if !defined(__SANITIZE_THREAD__)
/// Runs `act` in a child; its result is the exit status.
int in_child(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(act());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST_F(RegistrationChanges, AChildNeitherUsesNorDisturbsTheParentsCache) {
  Pages pages(4);
  hit(pages.span());
  const int status = in_child([&] {
    if (hit(pages.span())) return 1;
    ::munmap(pages.data(), kPageBytes);
    cache_.reset();
    monitor_.reset();
    if (device_.live() != 0) return 2;
    // Memory of its own, watched by a monitor of its own.
    SetUp();
    Pages own(2);
    hit(own.span());
    if (!hit(own.span())) return 3;
    own.renew(0, 2, 5);
    return hit(own.span()) ? 4 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(hit(pages.span()));
  pages.renew(0, 4, 9);
  EXPECT_FALSE(hit(pages.span()));
}

TEST_F(RegistrationChanges, UnmappingDoesNotWaitForAMonitorThatEndedWhileAChildLives) {
  const int status = in_child([this] {
    cache_.reset();
    monitor_.reset();
    SetUp();
    Pages pages(4);
    hit(pages.span());
    pages.renew(1, 1, 5);  // the rest stays known to the kernel
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    cache_.reset();
    monitor_.reset();
    ::munmap(pages.data(), 4 * kPageBytes);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(RegistrationChanges, NoPrivilegeIsNeeded) {
  const int status = in_child([this] {
    cache_.reset();
    monitor_.reset();
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 1;
    auto monitor = MemoryMonitor::shared();
    return monitor ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}
#endif

}  // namespace
}  // namespace selmcast::verbs
