// The papers' integer program in its two steps (ICC'22 eq. 8-11), without floating point: at the
// slots of our rate it must have a solution and our number of pairs, at the slots of the next
// higher rate that could matter it must have none.
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "tests/unit/milp/model.h"
#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

using reference::Ratio;
using reference::ratio;

std::uint32_t floor_of(const SelectionProblem& problem) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  return problem.k == 0 ? 0 : (n - 1 + problem.k - 1) / problem.k;
}

/// The most pairs at rate y by GLPK.
std::optional<std::uint64_t> most_pairs_at(const SelectionProblem& problem, const Ratio& y) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  const auto in = reference::slots(problem.rx_kbps, y);
  auto out = reference::slots(problem.tx_kbps, y);
  milp::PairModel model(n);
  for (Rank r = 0; r < n; ++r) {
    if (problem.fanout == Fanout::multicast) out[r] = out[r] > 0 ? n - 1 : 0;
    if (problem.rx_kbps[r] > 0 && in[r] < floor_of(problem)) return std::nullopt;
    model.bound(model.row_of(r), static_cast<int>(problem.p[r]), static_cast<int>(out[r]));
    model.bound(model.column_of(r), 0, static_cast<int>(in[r]));
  }
  for (const auto& [i, j] : problem.forced) model.fix(model.x(i, j), 1);
  for (const auto& [i, j] : problem.forbidden) model.fix(model.x(i, j), 0);
  return model.most_pairs();
}

/// The lowest rate above y at which a slot less may be left anywhere: all quotients of rates and
/// numbers of transfers. Above the highest one nobody can send.
Ratio next_rate(const SelectionProblem& problem, const Ratio& y) {
  Ratio next{~std::uint64_t{0} >> 20U, 1};
  for (const auto* rates : {&problem.tx_kbps, &problem.rx_kbps}) {
    for (const auto rate : *rates) {
      for (std::uint64_t transfers = 1; transfers < problem.p.size(); ++transfers) {
        if (y < Ratio{rate, transfers}) next = std::min(next, Ratio{rate, transfers});
      }
    }
  }
  return next;
}

TEST(SelectionMilp, RateAndReceiversAreThoseOfTheIntegerProgram) {
  SplitMix64 random(2024);
  int compared = 0, unsolvable = 0, mixed = 0, forced = 0, forbidden = 0, with_k = 0;
  int fanouts[2] = {0, 0};
  for (int instance = 0; instance < 1200 && !HasFailure(); ++instance) {
    const auto n = static_cast<std::uint32_t>(8 + random.below(9));
    const auto problem = reference::random_problem(random, n);
    const auto selection = select_exact(problem);
    if (!selection) {
      // At a tiny rate only pairs count: no one can have p receivers, or a forced pair is dead.
      ASSERT_FALSE(most_pairs_at(problem, {1, 1000}).has_value()) << reference::describe(problem);
      ++unsolvable;
      continue;
    }
    const auto y = ratio(selection->rate);
    const auto most = most_pairs_at(problem, y);
    ASSERT_TRUE(most.has_value()) << reference::describe(problem);
    EXPECT_EQ(*most, selection->total_receivers()) << reference::describe(problem);
    EXPECT_FALSE(most_pairs_at(problem, next_rate(problem, y)).has_value())
        << reference::describe(problem);
    ++compared;
    ++fanouts[problem.fanout == Fanout::unicast ? 1 : 0];
    const auto& p = problem.p;
    mixed += std::adjacent_find(p.begin(), p.end(), std::not_equal_to<>()) == p.end() ? 0 : 1;
    forced += problem.forced.empty() ? 0 : 1;
    forbidden += problem.forbidden.empty() ? 0 : 1;
    with_k += problem.k > 0 ? 1 : 0;
  }
  std::cout << "n=8..16: " << compared << " compared with GLPK (multicast " << fanouts[0]
            << ", unicast " << fanouts[1] << ", mixed p " << mixed << ", forced " << forced
            << ", forbidden " << forbidden << ", k " << with_k << "), " << unsolvable
            << " have no solution\n";
  EXPECT_GE(compared, 200);
  EXPECT_TRUE(std::min({fanouts[0], fanouts[1], mixed, forced, forbidden, with_k}) >= 25);
  EXPECT_GE(unsolvable, 10);
}

}  // namespace
}  // namespace selmcast
