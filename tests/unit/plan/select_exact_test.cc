#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <numeric>

#include "plan/select/selection.h"
#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

using reference::describe;
using reference::Graph;
using reference::kUnlimited;
using reference::random_problem;
using reference::Ratio;
using reference::ratio;
using reference::uniform;

/// The best of all graphs, by the objectives in their order.
struct Best {
  bool any = false;
  Ratio rate;
  std::uint64_t total = 0;
  std::vector<std::size_t> degrees;
};
Best exhaustive(const SelectionProblem& problem, const std::vector<Graph>& graphs) {
  Best best;
  for (const auto& graph : graphs) {
    if (!reference::admissible(problem, graph)) continue;
    const auto rate = reference::rate_of(problem, graph);
    if (rate.num > 0 && (!best.any || best.rate < rate)) best = {true, rate, 0, {}};
  }
  for (const auto& graph : graphs) {
    if (!best.any || !reference::admissible(problem, graph)) continue;
    if (reference::rate_of(problem, graph) < best.rate) continue;
    const auto degrees = reference::sorted_degrees(graph);
    const auto pairs = reference::total(graph);
    if (pairs < best.total || (pairs == best.total && degrees < best.degrees)) continue;
    best.total = pairs;
    best.degrees = degrees;
  }
  return best;
}

std::uint64_t oldest(const SelectionProblem& problem, const std::vector<Graph>& graphs,
                     const Ratio& rate, const Graph& degrees_of) {
  std::uint64_t best = 0;
  for (const auto& graph : graphs) {
    bool same = true;
    for (std::size_t i = 0; i < graph.size(); ++i) {
      same = same && graph[i].size() == degrees_of[i].size();
    }
    if (!same || !reference::admissible(problem, graph) ||
        reference::rate_of(problem, graph) < rate)
      continue;
    best = std::max(best, reference::total_age(problem, graph));
  }
  return best;
}

/// Compares select_exact() with the exhaustive search; returns whether there was a solution.
bool compare_with_exhaustive(const SelectionProblem& problem, const std::vector<Graph>& graphs) {
  const auto best = exhaustive(problem, graphs);
  const auto selection = select_exact(problem);
  EXPECT_EQ(selection.has_value(), best.any) << describe(problem);
  if (!selection || !best.any) return false;
  const auto& chosen = selection->receivers;
  EXPECT_TRUE(ratio(selection->rate) == best.rate)
      << describe(problem) << " rate " << selection->rate.num << "/" << selection->rate.den
      << " best " << best.rate.num << "/" << best.rate.den;
  EXPECT_TRUE(reference::admissible(problem, chosen)) << describe(problem);
  EXPECT_FALSE(reference::rate_of(problem, chosen) < best.rate) << describe(problem);
  EXPECT_EQ(selection->total_receivers(), best.total) << describe(problem);
  EXPECT_EQ(reference::sorted_degrees(chosen), best.degrees) << describe(problem);
  EXPECT_EQ(reference::total_age(problem, chosen), oldest(problem, graphs, best.rate, chosen))
      << describe(problem);
  for (const auto& list : chosen) EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  const auto& side = selection->bottleneck;
  const auto rate_of_side =
      side.is_sender ? problem.tx_kbps[side.rank] : problem.rx_kbps[side.rank];
  EXPECT_TRUE(side.slots > 0 && (Ratio{rate_of_side, side.slots} == best.rate))
      << describe(problem);
  return true;
}

/// How many solved instances had which feature.
struct Features {
  int solved = 0, multicast = 0, unicast = 0, mixed_p = 0, forced = 0, forbidden = 0, k = 0,
      ages = 0;

  void count(const SelectionProblem& problem) {
    ++solved;
    ++(problem.fanout == Fanout::unicast ? unicast : multicast);
    const auto& p = problem.p;
    mixed_p += std::adjacent_find(p.begin(), p.end(), std::not_equal_to<>()) == p.end() ? 0 : 1;
    forced += problem.forced.empty() ? 0 : 1;
    forbidden += problem.forbidden.empty() ? 0 : 1;
    k += problem.k > 0 ? 1 : 0;
    ages += problem.age.empty() ? 0 : 1;
  }
};
std::ostream& operator<<(std::ostream& out, const Features& f) {
  return out << f.solved << " solved: multicast " << f.multicast << ", unicast " << f.unicast
             << ", mixed p " << f.mixed_p << ", forced " << f.forced << ", forbidden "
             << f.forbidden << ", k " << f.k << ", ages " << f.ages;
}

class Exhaustive : public testing::TestWithParam<std::pair<std::uint32_t, int>> {};

TEST_P(Exhaustive, RateReceiversDegreesAndAgesAreOptimal) {
  const auto [n, instances] = GetParam();
  std::vector<Graph> graphs;
  for (std::uint32_t mask = 0; mask < (1U << (n * (n - 1))); ++mask) {
    graphs.push_back(reference::graph_of(n, mask));
  }
  SplitMix64 random(20220516 + n);
  Features seen;
  for (int instance = 0; instance < instances && !HasFailure(); ++instance) {
    const auto problem = random_problem(random, n);
    if (compare_with_exhaustive(problem, graphs)) seen.count(problem);
  }
  std::cout << "n=" << n << ": " << instances << " instances, " << seen << "\n";
  EXPECT_GT(seen.solved, instances / 3);
  EXPECT_LT(seen.solved, instances) << "some instances must have no solution";
  const int least = instances / 20;
  EXPECT_TRUE(seen.multicast > least && seen.unicast > least && seen.forced > least &&
              seen.k > least && seen.ages > least);
  // Two ranks have nobody else to turn to.
  EXPECT_TRUE(n == 2 || (seen.mixed_p > least && seen.forbidden > least));
}

INSTANTIATE_TEST_SUITE_P(AllDigraphs, Exhaustive,
                         testing::Values(std::pair{2U, 1000}, std::pair{3U, 4000},
                                         std::pair{4U, 3000}));

TEST(SelectExact, LargerInstancesAgreeWithQuotientsAndFlows) {
  SplitMix64 random(77);
  int checked = 0;
  for (int instance = 0; instance < 1500 && !testing::Test::HasFailure(); ++instance) {
    const auto n = static_cast<std::uint32_t>(5 + random.below(10));
    const auto problem = random_problem(random, n);
    const auto selection = select_exact(problem);
    if (!selection) continue;
    ++checked;
    const auto y = ratio(selection->rate);
    auto demand = problem.p;
    for (Rank i = 0; i < n; ++i) {
      std::uint32_t forced = 0;
      for (Rank j = 0; j < n; ++j) {
        forced += std::find(problem.forced.begin(), problem.forced.end(), std::pair{i, j}) !=
                          problem.forced.end()
                      ? 1
                      : 0;
      }
      demand[i] = std::max(demand[i], forced);
    }
    const auto needed = std::accumulate(demand.begin(), demand.end(), std::uint64_t{0});
    const auto fits = [&](const Ratio& rate) {
      for (Rank i = 0; i < n; ++i) {
        const auto copies = problem.fanout == Fanout::unicast ? demand[i] : 1;
        if (Ratio{problem.tx_kbps[i], copies} < rate) return false;
        const auto floor = problem.k == 0 ? 0 : (n - 1 + problem.k - 1) / problem.k;
        if (floor > 0 && problem.rx_kbps[i] > 0 && Ratio{problem.rx_kbps[i], floor} < rate)
          return false;
      }
      reference::MaximumPairs flow(reference::slots(problem.rx_kbps, rate), problem);
      return flow.run(demand) == needed;
    };
    EXPECT_TRUE(fits(y)) << describe(problem);
    // Quotients have denominators below 16, so nothing lies between y and y + 1/1024.
    EXPECT_FALSE(fits({y.num * 1024 + y.den, y.den * 1024})) << describe(problem);

    auto most = std::vector<std::uint32_t>(n, n - 1);
    if (problem.fanout == Fanout::unicast) most = reference::slots(problem.tx_kbps, y);
    reference::MaximumPairs flow(reference::slots(problem.rx_kbps, y), problem);
    EXPECT_EQ(selection->total_receivers(), flow.run(most)) << describe(problem);
    EXPECT_TRUE(reference::admissible(problem, selection->receivers)) << describe(problem);
    EXPECT_FALSE(reference::rate_of(problem, selection->receivers) < y) << describe(problem);
  }
  EXPECT_GT(checked, 700);
}

TEST(SelectExact, EqualPFollowsDHondtAndSpreadsEvenly) {
  SplitMix64 random(5);
  for (int instance = 0; instance < 150; ++instance) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(60));
    const auto p = static_cast<std::uint32_t>(1 + random.below(n - 1));
    std::vector<Kbps> rx;
    for (std::uint32_t j = 0; j < n; ++j) rx.push_back(1000 + random.below(3000));
    const auto problem = uniform(p, rx);
    const auto selection = select_exact(problem);
    ASSERT_TRUE(selection.has_value());
    EXPECT_TRUE(ratio(selection->rate) == reference::d_hondt(rx, std::uint64_t{n} * p));
    const auto slots = reference::slots(rx, ratio(selection->rate));
    const auto pairs = std::accumulate(slots.begin(), slots.end(), std::uint64_t{0});
    EXPECT_EQ(selection->total_receivers(), pairs);
    EXPECT_EQ(reference::in_degrees(selection->receivers), slots);
    const auto degrees = reference::sorted_degrees(selection->receivers);
    EXPECT_EQ(degrees.front(), pairs / n);
    EXPECT_EQ(degrees.back(), (pairs + n - 1) / n);
  }
}

TEST(SelectExact, SendersBoundTheRate) {
  auto problem = uniform(2, {900, 900, 900, 900});
  problem.tx_kbps = {700, 100, 700, 700};
  auto selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{100, 1}));  // Multicast: sender 1 pays once.
  EXPECT_EQ(selection->total_receivers(), 12U);
  EXPECT_TRUE(selection->bottleneck.is_sender);
  EXPECT_EQ(selection->bottleneck.rank, 1U);
  EXPECT_EQ(selection->bottleneck.slots, 1U);

  problem.fanout = Fanout::unicast;
  selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{50, 1}));
  EXPECT_EQ(selection->receivers[1].size(), 2U);
  EXPECT_EQ(selection->total_receivers(), 11U);
  EXPECT_EQ(selection->bottleneck.slots, 2U);
}

TEST(SelectExact, LastSenderTrapsAreAvoided) {
  auto selection = select_exact(uniform(1, {1, 1, 1}));
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{1, 1}));
  selection = select_exact(uniform(2, {1, 1, 1, 1}));
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{1, 2}));
  auto problem = uniform(1, {4, 2, 3});
  problem.p = {1, 2, 1};
  selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{2, 1}));
}

TEST(SelectExact, FloorOnSlotsLowersTheRate) {
  auto problem = uniform(1, {100, 1000, 1000, 1000, 1000});
  auto selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{500, 1}));
  EXPECT_EQ(reference::in_degrees(selection->receivers)[0], 0U);
  problem.k = 2;  // Every receiver needs (5-1)/2 = 2 slots.
  selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{50, 1}));
  EXPECT_FALSE(selection->bottleneck.is_sender);
  EXPECT_EQ(selection->bottleneck.rank, 0U);
  EXPECT_EQ(selection->bottleneck.slots, 2U);
}

TEST(SelectExact, RatesNearTheLimitStayExact) {
  // Quotients a/3 and b/2 with 3b - 2a = 1: they differ by 1/6 at 2^51, below what a double
  // resolves.
  const Kbps a = (Kbps{1} << 53U) - 4, b = (2 * a + 1) / 3;
  ASSERT_EQ(3 * b, 2 * a + 1);
  auto problem = uniform(1, {a, b, 1, 1, 1});
  problem.tx_kbps.assign(5, (Kbps{1} << 53U) - 1);
  auto selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (RateFraction{a, 3}));
  EXPECT_EQ(selection->bottleneck.rank, 0U);
  problem.rx_kbps[1] = b - 1;  // Now b/2 is the smaller one: (2a-2)/6 < 2a/6.
  selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_EQ(selection->rate, (reduced(b - 1, 2)));
  EXPECT_EQ(selection->bottleneck.rank, 1U);
}

/// No cycle of exchanges (give up one pair, take another, slots kept) gains age.
void expect_no_gain(const SelectionProblem& problem, const Selection& selection) {
  const auto n = static_cast<Rank>(problem.p.size());
  const auto in = reference::in_degrees(selection.receivers);
  const auto slots = reference::slots(problem.rx_kbps, ratio(selection.rate));
  constexpr std::int64_t kNo = 1'000'000'000;
  // gain[a][b]: some sender moves a delivery from receiver a to receiver b; node n stands for a
  // free slot.
  std::vector<std::vector<std::int64_t>> loss(n + 1, std::vector<std::int64_t>(n + 1, kNo));
  for (Rank i = 0; i < n; ++i) {
    for (const auto a : selection.receivers[i]) {
      for (Rank b = 0; b < n; ++b) {
        if (b == i || problem.rx_kbps[b] == 0 || reference::contains(selection.receivers[i], b))
          continue;
        loss[a][b] = std::min(loss[a][b], std::int64_t{problem.age[i][a]} - problem.age[i][b]);
      }
    }
  }
  for (Rank j = 0; j < n; ++j) {
    if (in[j] < slots[j]) loss[j][n] = 0;  // Load may end at a receiver with a free slot
    loss[n][j] = 0;                        // and start at any.
  }
  for (Rank via = 0; via <= n; ++via) {
    for (Rank from = 0; from <= n; ++from) {
      for (Rank to = 0; to <= n; ++to) {
        if (loss[from][via] >= kNo || loss[via][to] >= kNo) continue;
        loss[from][to] = std::min(loss[from][to], loss[from][via] + loss[via][to]);
      }
    }
  }
  for (Rank j = 0; j <= n; ++j) EXPECT_GE(loss[j][j], 0);
}

TEST(SelectExact, NoExchangeGainsAge) {
  SplitMix64 random(9);
  for (const std::uint32_t n : {8U, 15U, 24U, kOldestExactMembers}) {
    for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
      auto problem = uniform(n / 4, std::vector<Kbps>(n));
      problem.fanout = fanout;
      for (auto& d : problem.rx_kbps) d = 500 + random.below(1000);
      for (auto& u : problem.tx_kbps) u = 2000 + random.below(4000);
      problem.age.assign(n, std::vector<std::uint32_t>(n));
      for (auto& row : problem.age) {
        for (auto& age : row) age = static_cast<std::uint32_t>(random.below(40));
      }
      const auto selection = select_exact(problem);
      ASSERT_TRUE(selection.has_value());
      expect_no_gain(problem, *selection);
    }
  }
}

TEST(SelectExact, ManyMembersWithAgesKeepTheOptimum) {
  const std::uint32_t n = 200;
  SplitMix64 random(3);
  auto problem = uniform(30, std::vector<Kbps>(n));
  for (auto& d : problem.rx_kbps) d = 500 + random.below(1000);
  problem.age.assign(n, std::vector<std::uint32_t>(n));
  for (auto& row : problem.age) {
    for (auto& age : row) age = static_cast<std::uint32_t>(random.below(40));
  }
  const auto selection = select_exact(problem);
  ASSERT_TRUE(selection.has_value());
  EXPECT_TRUE(ratio(selection->rate) == reference::d_hondt(problem.rx_kbps, n * 30));
  EXPECT_EQ(reference::in_degrees(selection->receivers),
            reference::slots(problem.rx_kbps, ratio(selection->rate)));
}

struct NoSolution {
  const char* name;
  SelectionProblem problem;
  const char* expected;
};

TEST(SelectExact, SaysWhyThereIsNoSolution) {
  const auto with = [](SelectionProblem problem, const auto& change) {
    change(problem);
    return problem;
  };
  const auto base = uniform(2, {5, 5, 5, 5});
  const NoSolution cases[] = {
      {"p", uniform(4, {5, 5, 5, 5}), "p of sender 0 is 4"},
      {"p zero", uniform(0, {5, 5, 5}), "p of sender 0 is 0"},
      {"one rank", uniform(1, {5}), "2 to 65535 ranks, not 1"},
      {"tx", with(base, [](auto& q) { q.tx_kbps[2] = 0; }),
       "sender 2 has no available transmit rate"},
      {"rx", uniform(2, {5, 5, 0, 0}), "sender 0 needs p = 2 receivers, but only 1 other ranks"},
      {"forced",
       with(uniform(1, {5, 5, 5, 0}),
            [](auto& q) {
              q.forced = {{1, 3}};
            }),
       "receiver 3 has no available receive rate"},
      {"forbidden",
       with(uniform(2, {5, 5, 0, 5}),
            [](auto& q) {
              q.forbidden = {{3, 0}, {3, 2}};
            }),
       "sender 3 needs p = 2 receivers, but only 2 other ranks have available receive rate and 1 "
       "of "
       "them is forbidden"},
      {"both",
       with(base,
            [](auto& q) {
              q.forced = {{0, 1}, {2, 3}}, q.forbidden = {{1, 0}, {2, 3}};
            }),
       "forbidden[1] is [2,3]; that pair is forced as well"},
      {"forbidden self",
       with(base,
            [](auto& q) {
              q.forbidden = {{0, 1}, {2, 2}};
            }),
       "forbidden[1] is [2,2]; a rank does not send to itself"},
      {"forbidden range",
       with(base,
            [](auto& q) {
              q.forbidden = {{4, 1}};
            }),
       "forbidden[0] is [4,1]; ranks are 0 to 3"},
      {"self",
       with(base,
            [](auto& q) {
              q.forced = {{1, 1}};
            }),
       "forced[0] is [1,1]"},
      {"range",
       with(base,
            [](auto& q) {
              q.forced = {{0, 1}, {1, 4}};
            }),
       "forced[1] is [1,4]"},
      {"size", with(base, [](auto& q) { q.tx_kbps.pop_back(); }), "tx_kbps has 3 entries for 4"},
      {"age",
       with(base,
            [](auto& q) {
              q.age.assign(4, {1, 2});
            }),
       "age[0] has 2 entries"},
      {"huge", with(base, [](auto& q) { q.rx_kbps[1] = Kbps{1} << 53U; }), "rx_kbps[1]"},
  };
  for (const auto& entry : cases) {
    for (const auto& solver : {select_exact, select_published, select_random}) {
      const auto selection = solver(entry.problem);
      ASSERT_FALSE(selection.has_value()) << entry.name;
      EXPECT_EQ(selection.error().kind, ErrorKind::bad_input);
      EXPECT_NE(selection.error().message.find(entry.expected), std::string::npos)
          << entry.name << ": " << selection.error().message;
    }
  }
}

}  // namespace
}  // namespace selmcast
