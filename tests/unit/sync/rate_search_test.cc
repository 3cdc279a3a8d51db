#include "sync/select/rate_search.h"

#include <gtest/gtest.h>

#include "tests/unit/sync/select_reference.h"

namespace selmcast {
namespace {

using reference::Ratio;
using reference::ratio;

constexpr Kbps kHighest = RateSearch::kFastRateLimit - 1;

/// Rates that make quotients collide or nearly collide, up to the limit of the fast path.
Kbps draw(std::uint32_t law, SplitMix64& random) {
  switch (law) {
    case 0:
      return 1 + random.below(0xFFFFFFFFU);
    case 1:
      return kHighest - random.below(3);
    case 2:  // Multiples of one number: many equal quotients.
      return 720'720 * (1 + random.below(16));
    case 3:
      return 720'720 * (1 + random.below(16)) + random.below(3) - 1;
    case 4:
      return random.below(6);
    default:
      return random.chance(0.5) ? 100'000'000 : 10'000'000;
  }
}

void expect_best(const std::vector<Kbps>& rates, std::uint64_t target, const RateFraction& found,
                 const RateSearch& search) {
  const auto n = static_cast<std::uint32_t>(rates.size());
  EXPECT_TRUE(ratio(found) == reference::d_hondt(rates, target))
      << found.num << "/" << found.den << " for " << target << " of " << n;
  std::vector<std::uint32_t> slots(slot_kernels::padded(n));
  const auto summary = search.slots_at(found, n - 1, slots.data());
  slots.resize(n);
  const auto expected = reference::slots(rates, ratio(found));
  EXPECT_EQ(slots, expected);
  std::uint64_t total = 0;
  std::uint32_t positive = 0;
  for (const auto c : expected) {
    total += c;
    if (c > 0) positive = positive == 0 ? c : std::min(positive, c);
  }
  EXPECT_EQ(summary.total, total);
  EXPECT_EQ(summary.least, *std::min_element(expected.begin(), expected.end()));
  EXPECT_EQ(summary.most, *std::max_element(expected.begin(), expected.end()));
  EXPECT_EQ(summary.least_positive, positive);
}

TEST(RateSearch, FindsTheQuotientThatSortingFinds) {
  SplitMix64 random(31);
  RateSearch search(300);
  for (std::uint32_t repeat = 0; repeat < 900 && !HasFailure(); ++repeat) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(repeat % 10 == 0 ? 299 : 40));
    std::vector<Kbps> rates;
    std::uint32_t positive = 0;
    for (std::uint32_t j = 0; j < n; ++j) {
      rates.push_back(draw(repeat % 6, random));
      positive += rates.back() > 0 ? 1 : 0;
    }
    if (positive == 0) continue;
    ASSERT_TRUE(search.load(rates));
    const auto target = 1 + random.below(positive * (n - 1));
    expect_best(rates, target, search.best(target, n - 1), search);
  }
}

TEST(RateSearch, FollowsSingleChanges) {
  SplitMix64 random(32);
  for (std::uint32_t repeat = 0; repeat < 60 && !HasFailure(); ++repeat) {
    const auto n = static_cast<std::uint32_t>(20 + random.below(60));
    std::vector<Kbps> rates;
    for (std::uint32_t j = 0; j < n; ++j)
      rates.push_back(std::max<Kbps>(draw(repeat % 6, random), 1));
    RateSearch search(n);
    ASSERT_TRUE(search.load(rates));
    const auto target = std::uint64_t{n} * (1 + random.below(n / 2));
    search.best(target, n - 1);
    for (std::uint32_t step = 0; step < 40 && !HasFailure(); ++step) {
      const auto j = static_cast<std::uint32_t>(random.below(n));
      rates[j] =
          step % 4 == 0 ? draw(repeat % 6, random) + 1 : std::max<Kbps>(rates[j] * 9 / 10, 1);
      rates[j] = std::min(rates[j], kHighest);
      expect_best(rates, target, search.best_after(j, rates[j], target, n - 1), search);
    }
  }
}

TEST(RateSearch, RefusesRatesItCannotTellApart) {
  RateSearch search(3);
  EXPECT_TRUE(search.load(std::vector<Kbps>{1, kHighest, 2}));
  EXPECT_FALSE(search.load(std::vector<Kbps>{1, kHighest + 1, 2}));
  EXPECT_FALSE(search.load(std::vector<Kbps>{Kbps{1} << 53U, 1, 2}));
}

}  // namespace
}  // namespace selmcast
