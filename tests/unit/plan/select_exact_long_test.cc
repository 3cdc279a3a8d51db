// Selections of up to 200 ranks against closed forms, recomputed here in the plainest way.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <numeric>

#include "plan/select/selection.h"
#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

using reference::Ratio;
using reference::ratio;
using Numbers = std::vector<std::uint32_t>;

/// min over k = 0..n of sum_j min(slots_j, k) - (sum of the k largest out_i + [slots_i >= k]).
std::int64_t least_slack(const Numbers& out, const Numbers& slots) {
  const auto n = out.size();
  std::int64_t least = 0;
  for (std::size_t k = 1; k <= n; ++k) {
    Numbers demand(n);
    std::int64_t slack = 0;
    for (std::size_t i = 0; i < n; ++i) {
      demand[i] = out[i] + (slots[i] >= k ? 1 : 0);
      slack += std::min<std::uint32_t>(slots[i], static_cast<std::uint32_t>(k));
    }
    const auto kth = demand.begin() + static_cast<std::ptrdiff_t>(k);
    std::nth_element(demand.begin(), kth, demand.end(), std::greater<>());
    least = std::min(least, slack - std::accumulate(demand.begin(), kth, std::int64_t{0}));
  }
  return least;
}

/// What senders may have at rate y; 0 when they cannot send at it.
Numbers most_of(const SelectionProblem& problem, const Ratio& y) {
  auto most = reference::slots(problem.tx_kbps, y);
  if (problem.fanout == Fanout::unicast) return most;
  for (auto& m : most) m = m > 0 ? static_cast<std::uint32_t>(most.size()) - 1 : 0;
  return most;
}

bool possible(const SelectionProblem& problem, const Ratio& y) {
  const auto most = most_of(problem, y);
  for (std::size_t i = 0; i < most.size(); ++i) {
    if (most[i] < problem.p[i]) return false;
  }
  return least_slack(problem.p, reference::slots(problem.rx_kbps, y)) == 0;
}

/// The lowest rate above y at which somebody can do less.
Ratio next_rate(const SelectionProblem& problem, const Ratio& y) {
  Ratio next{~std::uint64_t{0} >> 20U, 1};
  for (const auto* rates : {&problem.tx_kbps, &problem.rx_kbps}) {
    for (const auto rate : *rates) {
      // rate/c > y for c < rate/y, so the last such c is the one just above.
      const auto last = (rate * y.den - 1) / y.num;
      if (rate * y.den == 0 || last == 0) continue;
      next = std::min(next, Ratio{rate, std::min<std::uint64_t>(last, problem.p.size() - 1)});
    }
  }
  return next;
}

SelectionProblem large_problem(SplitMix64& random, bool mixed) {
  const auto n = static_cast<std::uint32_t>(
      2 +
      random.below(random.chance(0.1) ? 199 : static_cast<std::uint32_t>(10 + random.below(60))));
  SelectionProblem problem;
  problem.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
  const auto p = static_cast<std::uint32_t>(1 + random.below(n - 1));
  const bool two_classes = random.chance(0.3), narrow = random.chance(0.3);
  const bool tiny_rates = random.chance(0.2);
  for (std::uint32_t r = 0; r < n; ++r) {
    // Few members that want a lot are what makes the condition on degrees bite.
    const auto want = random.chance(0.2) ? n - 1 : static_cast<std::uint32_t>(1 + random.below(p));
    problem.p.push_back(mixed ? want : p);
    const auto rate = [&]() -> Kbps {
      if (tiny_rates) return 1 + random.below(9);
      return two_classes ? (random.chance(0.5) ? 1000 : 100) : 500 + random.below(1000);
    };
    problem.rx_kbps.push_back(rate());
    problem.tx_kbps.push_back(narrow ? rate() * (problem.fanout == Fanout::unicast ? p : 1)
                                     : Kbps{1} << 30U);
  }
  return problem;
}

/// Degrees that can be shared more fairly: one that has two more than another could give one away.
bool is_fair(const SelectionProblem& problem, const Numbers& degrees, const Numbers& slots,
             const Numbers& most, int tries) {
  const auto n = degrees.size();
  for (std::size_t rich = 0; rich < n; ++rich) {
    for (std::size_t poor = 0; poor < n; ++poor) {
      if (degrees[rich] < degrees[poor] + 2 || degrees[rich] == problem.p[rich]) continue;
      if (degrees[poor] == most[poor]) continue;
      if (--tries < 0) return true;
      auto moved = degrees;
      --moved[rich];
      ++moved[poor];
      if (least_slack(moved, slots) == 0) return false;
    }
  }
  return true;
}

void check_optimal(const SelectionProblem& problem, const Selection& selection, bool mixed) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  const auto y = ratio(selection.rate);
  const auto slots = reference::slots(problem.rx_kbps, y);
  const auto most = most_of(problem, y);
  const auto in = reference::in_degrees(selection.receivers);
  Numbers degrees;
  for (Rank i = 0; i < n; ++i) {
    const auto& list = selection.receivers[i];
    degrees.push_back(static_cast<std::uint32_t>(list.size()));
    ASSERT_TRUE(std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end());
    ASSERT_TRUE(list.back() < n && !std::binary_search(list.begin(), list.end(), i));
    ASSERT_TRUE(problem.p[i] <= degrees[i] && degrees[i] <= most[i] && in[i] <= slots[i]);
  }
  if (!mixed) {
    auto bound = reference::d_hondt(problem.rx_kbps, std::uint64_t{n} * problem.p[0]);
    for (const auto tx : problem.tx_kbps) {
      const auto copies = problem.fanout == Fanout::unicast ? problem.p[0] : 1;
      bound = std::min(bound, Ratio{tx, copies});
    }
    ASSERT_TRUE(y == bound);
  }
  ASSERT_TRUE(possible(problem, y));
  ASSERT_FALSE(possible(problem, next_rate(problem, y)));
  const auto all = std::accumulate(most.begin(), most.end(), std::int64_t{0});
  ASSERT_EQ(static_cast<std::int64_t>(selection.total_receivers()), all + least_slack(most, slots));
  ASSERT_TRUE(is_fair(problem, degrees, slots, most, 60));
}

TEST(SelectExactLong, ConstructionsOfUpTo200RanksAreOptimal) {
  SplitMix64 random(31);
  constexpr int kInstances = 20'000;
  int largest = 0, mixed_p = 0, unicast = 0, over_100 = 0, beyond_total = 0;
  for (int instance = 0; instance < kInstances; ++instance) {
    const bool mixed = random.chance(0.6);
    const auto problem = large_problem(random, mixed);
    const auto selection = select_exact(problem);
    ASSERT_TRUE(selection.has_value());
    check_optimal(problem, *selection, mixed);
    if (HasFatalFailure()) {
      FAIL() << instance << ": " << reference::describe(problem);
    }
    const auto n = static_cast<int>(problem.p.size());
    largest = std::max(largest, n);
    over_100 += n > 100 ? 1 : 0;
    mixed_p += mixed ? 1 : 0;
    unicast += problem.fanout == Fanout::unicast ? 1 : 0;
    // Mixed p where counting slots alone would have allowed a higher rate.
    const auto above = next_rate(problem, ratio(selection->rate));
    const auto slots = reference::slots(problem.rx_kbps, above);
    const auto most = most_of(problem, above);
    bool senders = true;
    for (std::size_t i = 0; i < most.size(); ++i) senders = senders && most[i] >= problem.p[i];
    const auto needed = std::accumulate(problem.p.begin(), problem.p.end(), std::uint64_t{0});
    const auto total = std::accumulate(slots.begin(), slots.end(), std::uint64_t{0});
    beyond_total += senders && total >= needed ? 1 : 0;
  }
  std::cout << kInstances << " instances up to n=" << largest << ": over 100 ranks " << over_100
            << ", mixed p " << mixed_p << ", unicast " << unicast << ", total not enough "
            << beyond_total << "\n";
  EXPECT_TRUE(over_100 > 500 && mixed_p > 5000 && unicast > 5000 && beyond_total > 100);
}

}  // namespace
}  // namespace selmcast
