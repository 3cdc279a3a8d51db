#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "plan/select/selection.h"
#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

using reference::kUnlimited;
using reference::ratio;
using reference::uniform;

// The smallest instances where the heuristic's last sender is left with a bad choice, worked by
// hand.
TEST(SelectPublished, FallsIntoTheLastSenderTraps) {
  auto selection = select_published(uniform(1, {1, 1, 1}));
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{1, 2}));
  // 0 and 1 chose each other, 2 chose 0; then what fits at 1/2: 0->2, 1->2 and 2->1.
  EXPECT_EQ(selection->receivers, (std::vector<std::vector<Rank>>{{1, 2}, {0, 2}, {0, 1}}));

  selection = select_published(uniform(2, {1, 1, 1, 1}));
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{1, 3}));

  auto problem = uniform(1, {4, 2, 3});
  problem.p = {1, 2, 1};
  selection = select_published(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{3, 2}));
}

// Equal links, odd n, p < n/2: the optimum gives every receiver p slots, the heuristic
// with ties by index leaves its last sender a receiver that is full already.
TEST(SelectPublished, EqualLinksOfOddRingsCostOneSlot) {
  for (std::uint32_t n = 5; n <= 51; n += 2) {
    for (std::uint32_t p = 1; p < n / 2; ++p) {
      const auto problem = uniform(p, std::vector<Kbps>(n, 6));
      const auto published = select_published(problem), exact = select_exact(problem);
      ASSERT_TRUE(published.has_value() && exact.has_value());
      EXPECT_EQ(exact->rate, reduced(6, p)) << n << " " << p;
      EXPECT_EQ(published->rate, reduced(6, p + 1)) << n << " " << p;
    }
  }
}

// By hand: 0 takes 3, 1 takes 0, 2 takes 1, 3 takes 2, at rate 10; receiver 3 has one slot left,
// which 1 and 2 could fill.
TEST(SelectPublished, OldPairsAreAddedFirst) {
  auto problem = uniform(1, {10, 10, 10, 20});
  problem.age.assign(4, std::vector<std::uint32_t>(4));
  problem.age[1][3] = 3;
  problem.age[2][3] = 9;
  auto selection = select_published(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{10, 1}));
  EXPECT_EQ(selection->receivers, (std::vector<std::vector<Rank>>{{3}, {0}, {1, 3}, {2}}));
  problem.age[1][3] = 10;
  selection = select_published(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->receivers, (std::vector<std::vector<Rank>>{{3}, {0, 3}, {1}, {2}}));
}

template <class Check>
void for_random_problems(const Check& check) {
  SplitMix64 random(12);
  for (int instance = 0; instance < 400; ++instance) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(14));
    SelectionProblem problem;
    problem.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
    problem.seed = random();
    for (std::uint32_t r = 0; r < n; ++r) {
      problem.p.push_back(static_cast<std::uint32_t>(1 + random.below(n - 1)));
      problem.tx_kbps.push_back(1 + random.below(60));
      problem.rx_kbps.push_back(random.chance(0.1) ? 0 : 1 + random.below(30));
    }
    for (Rank i = 0; i < n && random.chance(0.7); ++i) {
      const auto j = static_cast<Rank>(random.below(n));
      if (j != i && problem.rx_kbps[j] > 0) problem.forced.emplace_back(i, j);
      const auto not_to = static_cast<Rank>(random.below(n));
      if (not_to != i && not_to != j) problem.forbidden.emplace_back(i, not_to);
    }
    check(problem);
  }
}

bool is_forbidden(const SelectionProblem& problem, Rank i, Rank j) {
  return std::find(problem.forbidden.begin(), problem.forbidden.end(), std::pair{i, j}) !=
         problem.forbidden.end();
}

TEST(SelectPublished, IsAdmissibleNeverBetterThanExactAndLeavesNoRoom) {
  for_random_problems([](const SelectionProblem& problem) {
    const auto published = select_published(problem);
    const auto exact = select_exact(problem);
    ASSERT_EQ(published.has_value(), exact.has_value());
    if (!published) return;
    const auto y = ratio(published->rate);
    EXPECT_TRUE(reference::admissible(problem, published->receivers));
    EXPECT_TRUE(reference::rate_of(problem, published->receivers) == y);
    EXPECT_FALSE(ratio(exact->rate) < y);
    const auto load = reference::in_degrees(published->receivers);
    for (Rank i = 0; i < problem.p.size(); ++i) {
      for (Rank j = 0; j < problem.p.size(); ++j) {
        if (i == j || reference::contains(published->receivers[i], j)) continue;
        if (is_forbidden(problem, i, j)) continue;
        auto more = published->receivers;
        more[i].push_back(j);
        EXPECT_TRUE(problem.rx_kbps[j] == 0 || reference::rate_of(problem, more) < y);
      }
    }
  });
}

TEST(SelectRandom, HasExactlyPAndTheRateOfItsDegrees) {
  for_random_problems([](const SelectionProblem& problem) {
    const auto selection = select_random(problem);
    if (!selection) {
      EXPECT_FALSE(select_exact(problem).has_value());
      return;
    }
    EXPECT_TRUE(reference::admissible(problem, selection->receivers));
    EXPECT_TRUE(reference::rate_of(problem, selection->receivers) == ratio(selection->rate));
    for (Rank i = 0; i < problem.p.size(); ++i) {
      std::uint32_t forced = 0;
      for (const auto& pair : problem.forced) forced += pair.first == i ? 1 : 0;
      EXPECT_EQ(selection->receivers[i].size(), std::max(problem.p[i], forced));
    }
    EXPECT_EQ(select_random(problem).value().receivers, selection->receivers);
  });
}

// In-degrees are Binomial(n-1, p/(n-1)): mean p, and every pair equally likely.
TEST(SelectRandom, PairsAreUniform) {
  const std::uint32_t n = 7, p = 2;
  const int draws = 6000;
  auto problem = uniform(p, std::vector<Kbps>(n, 10));
  std::map<std::pair<Rank, Rank>, int> seen;
  std::map<std::vector<Rank>, int> sets;
  for (int draw = 0; draw < draws; ++draw) {
    problem.seed = static_cast<std::uint64_t>(draw);
    const auto selection = select_random(problem);
    for (Rank i = 0; i < n; ++i) {
      for (const auto j : selection->receivers[i]) ++seen[{i, j}];
    }
    ++sets[selection->receivers[3]];
  }
  EXPECT_EQ(seen.size(), n * (n - 1));
  const double mean = draws / 3.0, deviation = std::sqrt(draws * (1.0 / 3) * (2.0 / 3));
  for (const auto& [pair, count] : seen) EXPECT_NEAR(count, mean, 5 * deviation);
  EXPECT_EQ(sets.size(), 15U);  // All 6-choose-2 sets, each 400 times but for chance.
  for (const auto& [set, count] : sets) EXPECT_NEAR(count, 400, 5 * std::sqrt(400.0));
}

}  // namespace
}  // namespace selmcast
