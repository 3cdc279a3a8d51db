// The cache over a device in name: what is shared, kept and dropped. Changes of the memory are in
// registration_changes_test.cc.
#include "transport/verbs/registration_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/random.h"
#include "tests/unit/transport/registration_support.h"

namespace selmcast::verbs {
namespace {

constexpr int kRead = 0;
constexpr int kNoMoreRights = IBV_ACCESS_RELAXED_ORDERING;  // a flag that gives nobody more rights
constexpr int kByDevice = IBV_ACCESS_LOCAL_WRITE;
constexpr int kByPeer = IBV_ACCESS_REMOTE_READ;

class RegistrationCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    auto monitor = MemoryMonitor::shared();
    if (!monitor) GTEST_SKIP() << monitor.error().message;
    monitor_ = std::move(monitor).value();
    use({.bytes = 64 * kPageBytes, .entries = 8});
  }
  void use(IdleBounds bounds, std::size_t rails = 1) {
    cache_.reset();
    cache_ = std::make_unique<RegistrationCache>(device_.calls(), rails, bounds, monitor_);
  }
  RegistrationCache::Lease take(std::span<const std::byte> memory, int access = kRead) {
    RegistrationCache::Refusal refusal;
    auto lease = cache_->take(memory, access, refusal);
    EXPECT_TRUE(lease) << std::strerror(refusal.error);
    return lease ? std::move(*lease) : RegistrationCache::Lease{};
  }
  /// Whether take() finds a registration.
  bool hit(std::span<const std::byte> memory, int access = kRead) {
    const auto before = device_.added;
    take(memory, access);
    return device_.added == before;
  }

  FakeDevice device_;
  std::shared_ptr<MemoryMonitor> monitor_;
  std::unique_ptr<RegistrationCache> cache_;
};

TEST_F(RegistrationCacheTest, ARegistrationServesWhatItContains) {
  const Pages pages(8);
  auto whole = take(pages.span());
  for (const auto part : {pages.span(), pages.span(0, 1), pages.span(7, 1), pages.span(2, 3),
                          pages.span().subspan(100, 5000)}) {
    const auto again = take(part);
    EXPECT_EQ(again.keys()[0], whole.keys()[0]);
  }
  whole.reset();
  EXPECT_TRUE(hit(pages.span(3, 2)));
  EXPECT_EQ(device_.added, 1U);
  EXPECT_EQ(cache_->counters().hits, 6U);
  EXPECT_EQ(cache_->counters().misses, 1U);
}

TEST_F(RegistrationCacheTest, ARegistrationDoesNotServeWhatReachesBeyond) {
  const Pages pages(8);
  take(pages.span(2, 4));
  EXPECT_FALSE(hit(pages.span(6, 1)));
  EXPECT_FALSE(hit(pages.span(1, 2)));
  EXPECT_FALSE(hit(pages.span(5, 2)));
  const auto inner = pages.span().subspan(10, 100);
  take(inner);
  EXPECT_FALSE(hit({inner.data(), 101}));
}

TEST_F(RegistrationCacheTest, MoreFlagsServeThoseWhoNeedFewerAndReplaceTheirs) {
  const Pages pages(4);
  take(pages.span());
  EXPECT_FALSE(hit(pages.span(), kNoMoreRights));
  EXPECT_EQ(device_.live(), 1U);
  EXPECT_TRUE(hit(pages.span(), kRead));
  EXPECT_TRUE(hit(pages.span(1, 2), kNoMoreRights));
  EXPECT_EQ(device_.access(take(pages.span()).keys()[0]), kNoMoreRights);
}

TEST_F(RegistrationCacheTest, ASmallerOneIsNotKeptBesideAGreaterInUse) {
  const Pages pages(4);
  auto small = take(pages.span(1, 1));
  const auto great = take(pages.span(), kNoMoreRights);
  EXPECT_EQ(device_.live(), 2U);
  small.reset();
  EXPECT_EQ(device_.live(), 1U);
  EXPECT_TRUE(hit(pages.span(1, 1)));
}

TEST_F(RegistrationCacheTest, KeysGivenToPeersEndWithTheirRegion) {
  const Pages pages(4);
  const auto sendable = take(pages.span());
  auto readable = take(pages.span(), kByPeer);
  auto another = take(pages.span(), kByPeer);
  EXPECT_EQ(device_.live(), 3U);
  EXPECT_EQ(device_.access(sendable.keys()[0]), kRead);
  readable.reset();
  EXPECT_EQ(device_.live(), 2U);
  another.reset();
  EXPECT_EQ(device_.live(), 1U);
}

TEST_F(RegistrationCacheTest, MemoryThatTheDeviceWritesIsNeitherSharedNorKept) {
  const Pages pages(4);
  auto landing = take(pages.span(), kByDevice);
  auto another = take(pages.span(), kByDevice);
  EXPECT_EQ(device_.live(), 2U);
  // A sender of the same memory gets a key of its own, by which nothing can be written.
  const auto sendable = take(pages.span());
  EXPECT_EQ(device_.access(sendable.keys()[0]), kRead);
  landing.reset();
  another.reset();
  EXPECT_EQ(device_.live(), 1U);
  EXPECT_EQ(cache_->counters().idle_entries, 0U);
  EXPECT_FALSE(hit(pages.span(), kByDevice | kNoMoreRights));
  EXPECT_EQ(device_.live(), 1U);
}

TEST_F(RegistrationCacheTest, BoundsHoldAndTheLeastRecentlyUsedGoFirst) {
  // Against a list kept by hand.
  const std::uint64_t kBytes = 12 * kPageBytes;
  const std::uint32_t kEntries = 4;
  use({.bytes = kBytes, .entries = kEntries});
  std::vector<std::unique_ptr<Pages>> memory;
  for (std::size_t i = 0; i < 10; ++i) memory.push_back(std::make_unique<Pages>(1 + i % 6));
  std::vector<std::size_t> model;  // the latest first
  SplitMix64 random(3);
  for (int step = 0; step < 500; ++step) {
    const std::size_t which = random() % memory.size();
    const auto known = std::find(model.begin(), model.end(), which);
    EXPECT_EQ(hit(memory[which]->span()), known != model.end());
    if (known != model.end()) model.erase(known);
    model.insert(model.begin(), which);
    std::uint64_t bytes = 0;
    std::size_t fit = 0;
    while (fit < model.size() && fit < kEntries &&
           bytes + memory[model[fit]]->span().size() <= kBytes) {
      bytes += memory[model[fit++]]->span().size();
    }
    model.resize(fit);
    ASSERT_EQ(cache_->counters().idle_bytes, bytes);
    ASSERT_EQ(cache_->counters().idle_entries, fit);
    ASSERT_EQ(device_.live(), fit);
  }
}

TEST_F(RegistrationCacheTest, WhatIsGreaterThanTheBoundIsNotKept) {
  use({.bytes = 4 * kPageBytes, .entries = 8});
  const Pages small(2), great(5);
  take(small.span());
  take(great.span());
  EXPECT_EQ(device_.live(), 1U);
  EXPECT_TRUE(hit(small.span()));
}

TEST_F(RegistrationCacheTest, WithoutBoundsOrMonitorEveryRegionIsItsOwn) {
  const Pages pages(4);
  const auto check = [&] {
    const auto one = take(pages.span());
    const auto other = take(pages.span());
    EXPECT_NE(one.keys()[0], other.keys()[0]);
  };
  for (const IdleBounds bounds :
       {IdleBounds{.bytes = 0, .entries = 8}, IdleBounds{.bytes = 1U << 20U, .entries = 0}}) {
    use(bounds);
    check();
    EXPECT_EQ(device_.live(), 0U);
  }
  monitor_.reset();
  use({.bytes = 1U << 20U, .entries = 8});
  check();
  EXPECT_EQ(device_.live(), 0U);
}

TEST_F(RegistrationCacheTest, IdleOnesMakeRoomAndTheOneInNeedIsTriedAgain) {
  for (const int error : {ENOMEM, ENOSPC}) {
    use({.bytes = 64 * kPageBytes, .entries = 8});
    device_.refuses_with = error;
    device_.capacity = 3;
    const Pages a(1), b(1), c(1), d(1);
    const auto held = take(a.span());
    take(b.span());
    take(c.span());
    EXPECT_EQ(device_.live(), 3U);
    const auto wanted = take(d.span());
    EXPECT_EQ(device_.live(), 2U);
    EXPECT_EQ(cache_->counters().evicted, 2U);
    EXPECT_EQ(cache_->counters().idle_entries, 0U);
  }
}

TEST_F(RegistrationCacheTest, WhatNoRoomHelpsIsRefusedWithTheReason) {
  device_.capacity = 1;
  const Pages a(1), b(1);
  const auto held = take(a.span());
  RegistrationCache::Refusal refusal;
  EXPECT_FALSE(cache_->take(b.span(), kRead, refusal));
  EXPECT_EQ(refusal.error, ENOMEM);
  EXPECT_EQ(device_.live(), 1U);
}

TEST_F(RegistrationCacheTest, OtherErrorsDropNothing) {
  const Pages a(1), b(1);
  take(a.span());
  device_.broken_rail = 0;
  device_.refuses_with = EINVAL;
  RegistrationCache::Refusal refusal;
  EXPECT_FALSE(cache_->take(b.span(), kRead, refusal));
  EXPECT_EQ(refusal.error, EINVAL);
  device_.broken_rail = ~0UL;
  EXPECT_TRUE(hit(a.span()));
}

TEST_F(RegistrationCacheTest, ARefusalOfOneRailUndoesTheOthers) {
  use({.bytes = 64 * kPageBytes, .entries = 8}, 3);
  device_.broken_rail = 2;
  device_.refuses_with = EPERM;
  const Pages a(1);
  RegistrationCache::Refusal refusal;
  EXPECT_FALSE(cache_->take(a.span(), kRead, refusal));
  EXPECT_EQ(refusal.rail, 2U);
  EXPECT_EQ(refusal.error, EPERM);
  EXPECT_EQ(device_.live(), 0U);
  device_.broken_rail = ~0UL;
  take(a.span());
  EXPECT_EQ(device_.live(), 3U);
  EXPECT_TRUE(hit(a.span()));
}

TEST_F(RegistrationCacheTest, SharedAndFileMemoryIsRegisteredAnewEveryTime) {
  const Pages shared(2, MAP_SHARED | MAP_ANONYMOUS);
  take(shared.span());
  EXPECT_EQ(device_.live(), 0U);
  EXPECT_FALSE(hit(shared.span()));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_EQ(::ftruncate(fileno(file.get()), kPageBytes), 0);
  void* at =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file.get()), 0);
  ASSERT_NE(at, MAP_FAILED);
  take({static_cast<const std::byte*>(at), kPageBytes});
  EXPECT_EQ(device_.live(), 0U);
  ::munmap(at, kPageBytes);
}

TEST_F(RegistrationCacheTest, TheEndLeavesNothingRegistered) {
  const Pages pages(4);
  take(pages.span());
  take(pages.span(), kByPeer);
  EXPECT_EQ(device_.live(), 1U);
  cache_.reset();
  EXPECT_EQ(device_.live(), 0U);
}

}  // namespace
}  // namespace selmcast::verbs
