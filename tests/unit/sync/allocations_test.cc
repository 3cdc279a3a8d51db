// Planning allocates nothing once its objects exist: counted where all allocations pass.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "base/random.h"
#include "plan/select/degree_plan.h"
#include "plan/select/ring_plan.h"

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return counted(size);
}
void* operator new[](std::size_t size) {
  return counted(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace selmcast {
namespace {

std::vector<Kbps> random_rates(SplitMix64& random, std::uint32_t n) {
  const bool classes = random.chance(0.3);
  std::vector<Kbps> out(n);
  for (auto& rate : out) {
    rate = classes ? (random.chance(0.5) ? 10'000'000 : 100'000'000)
                   : 75'000'000 + random.below(50'000'001);
  }
  return out;
}

TEST(Allocations, TheCounterCounts) {
  allocations = 0;
  const std::vector<int> some(10);
  EXPECT_EQ(allocations, 1U);
}

TEST(Allocations, RingPlansNeedNoneAfterConstruction) {
  SplitMix64 random(41);
  RingPlan plan(300);
  RingWork work(300);
  for (std::uint32_t repeat = 0; repeat < 200; ++repeat) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(299));
    const auto p = static_cast<std::uint32_t>(1 + random.below(n - 1));
    const auto k = random.chance(0.5) ? static_cast<std::uint32_t>(2 + random.below(n)) : 0;
    const auto rates = random_rates(random, n);
    allocations = 0;
    const bool planned = plan.replan(p, rates, rates, k).has_value();
    std::size_t reached = 0;
    for (std::uint32_t turn = 0; planned && turn < 5; ++turn) {
      const auto member = static_cast<std::uint32_t>(random.below(n));
      reached += plan.round_of(member, random.below(plan.period()), work).receivers.size();
    }
    EXPECT_EQ(allocations, 0U) << "n=" << n << " p=" << p << " k=" << k;
    EXPECT_TRUE(planned);
    EXPECT_GT(reached, 0U);
  }
}

TEST(Allocations, DegreePlansNeedNoneAfterConstruction) {
  SplitMix64 random(42);
  for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
    for (const auto n : {16U, 250U}) {
      std::vector<std::uint32_t> p(n);
      for (auto& least : p) least = static_cast<std::uint32_t>(1 + random.below(n / 2));
      auto plan = DegreePlan::make(p, fanout);
      ASSERT_TRUE(plan.has_value());
      for (std::uint32_t repeat = 0; repeat < 50; ++repeat) {
        const auto rates = random_rates(random, n);
        allocations = 0;
        const bool planned = plan->plan(rates, rates).has_value();
        EXPECT_EQ(allocations, 0U) << "n=" << n;
        EXPECT_TRUE(planned);
      }
    }
  }
}

}  // namespace
}  // namespace selmcast
