#include "plan/select/rate_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/plan/select_reference.h"

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

/// The answer for other rates, from where the last search ended.
RateFraction best_of(RateSearch& search, const std::vector<Kbps>& rates, std::uint64_t target,
                     std::uint32_t cap) {
  EXPECT_TRUE(search.load(rates));
  return search.best(target, cap);
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
      expect_best(rates, target, best_of(search, rates, target, n - 1), search);
    }
  }
}

/// All quotients, largest first.
std::vector<Ratio> sorted_quotients(const std::vector<Kbps>& rates, std::uint32_t cap) {
  std::vector<Ratio> out;
  for (const auto rate : rates) {
    for (std::uint32_t k = 1; rate > 0 && k <= cap; ++k) out.push_back({rate, k});
  }
  std::sort(out.begin(), out.end(), [](const Ratio& a, const Ratio& b) { return b < a; });
  return out;
}

enum Course : std::uint32_t { falls, rises, dies_and_returns, jumps, caps, targets, kCourses };

/// The next rate of receiver j.
Kbps next_rate(Course course, std::uint32_t law, Kbps rate, SplitMix64& random) {
  switch (course) {
    case falls:
      return std::max<Kbps>(rate * 15 / 16, 1);
    case rises:
      return std::min(rate + rate / 16 + 1, kHighest);
    case dies_and_returns:
      return random.chance(0.5) ? 0 : draw(law, random);
    default:
      return std::max<Kbps>(draw(law, random), 1);
  }
}

void follow_course(Course course, std::uint32_t law, std::uint32_t n, SplitMix64& random) {
  std::vector<Kbps> rates;
  for (std::uint32_t j = 0; j < n; ++j) rates.push_back(std::max<Kbps>(draw(law, random), 1));
  RateSearch search(n);
  ASSERT_TRUE(search.load(rates));
  auto target = std::uint64_t{n} * (1 + random.below(n / 2));
  for (std::uint32_t step = 0; step < 6 * n; ++step) {
    const auto j = step % n;
    const auto cap = course == caps && step / 8 % 2 == 0 ? n / 2 : n - 1;
    rates[j] = next_rate(course, law, rates[j], random);
    if (course == targets) target += random.below(3 * n);
    const auto quotients = sorted_quotients(rates, cap);
    if (quotients.empty()) rates[j] = 1;
    const auto last = std::max<std::uint64_t>(quotients.size(), n / 2);
    const auto seat = 1 + (target - 1) % last;
    const auto found = best_of(search, rates, seat, cap);
    const auto expected = quotients.empty() ? Ratio{1, seat} : quotients[seat - 1];
    ASSERT_TRUE(ratio(found) == expected)
        << "course " << course << " law " << law << " step " << step << " seat " << seat;
    const auto& summary = search.summary();
    ASSERT_EQ(summary.least, static_cast<double>(*std::min_element(rates.begin(), rates.end())));
    Kbps least = kHighest;
    for (const auto rate : rates) least = rate > 0 ? std::min(least, rate) : least;
    ASSERT_EQ(summary.least_positive, static_cast<double>(least));
  }
}

TEST(RateSearch, FollowsLongCourses) {
  SplitMix64 random(33);
  for (std::uint32_t course = 0; course < kCourses; ++course) {
    for (std::uint32_t law = 0; law < 6; ++law) {
      for (const auto n : {7U, 24U, 40U}) {
        follow_course(static_cast<Course>(course), law, n, random);
        if (HasFatalFailure()) return;
      }
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
