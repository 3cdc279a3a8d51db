// Chunk plans against integer programs over single chunks.
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "base/random.h"
#include "sync/select/chunks.h"
#include "tests/unit/milp/model.h"
#include "tests/unit/sync/select_reference.h"

namespace selmcast {
namespace {

using reference::Ratio;
using reference::ratio;

std::uint32_t chunks_of(const ChunkProblem& problem, std::size_t i) {
  return static_cast<std::uint32_t>((problem.bytes[i] + problem.chunk_bytes - 1) /
                                    problem.chunk_bytes);
}

/// Whether every chunk can have p receivers when chunks take 1/y: one binary for each chunk and
/// receiver.
bool possible(const ChunkProblem& problem, const Ratio& y) {
  const auto n = problem.p.size();
  milp::PairModel model(1);
  std::vector<std::vector<int>> heard(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto copies = problem.fanout == Fanout::unicast ? problem.p[i] : 1;
    if (Ratio{problem.tx_kbps[i], copies * chunks_of(problem, i)} < y) return false;
    for (std::uint32_t chunk = 0; chunk < chunks_of(problem, i); ++chunk) {
      std::vector<int> receivers;
      for (std::size_t j = 0; j < n; ++j) {
        if (j == i) continue;
        receivers.push_back(model.add_binary());
        heard[j].push_back(receivers.back());
      }
      model.bound(receivers, static_cast<int>(problem.p[i]), static_cast<int>(n));
    }
  }
  for (std::size_t j = 0; j < n; ++j) {
    model.bound(heard[j], 0, static_cast<int>(problem.rx_kbps[j] * y.den / y.num));
  }
  return model.most_pairs().has_value();
}

Ratio next_rate(const ChunkProblem& problem, const Ratio& y) {
  Ratio next{~std::uint64_t{0} >> 20U, 1};
  for (const auto* rates : {&problem.tx_kbps, &problem.rx_kbps}) {
    for (const auto rate : *rates) {
      for (std::uint64_t c = 1; c < 100; ++c) {
        if (y < Ratio{rate, c}) next = std::min(next, Ratio{rate, c});
      }
    }
  }
  return next;
}

ChunkProblem random_problem(SplitMix64& random, std::uint32_t n) {
  ChunkProblem problem;
  problem.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
  problem.chunk_bytes = 1 + random.below(3);
  const bool narrow = random.chance(0.4);
  for (std::uint32_t i = 0; i < n; ++i) {
    problem.bytes.push_back(1 + random.below(7));
    problem.p.push_back(static_cast<std::uint32_t>(1 + random.below(n - 1)));
    problem.tx_kbps.push_back(narrow ? 1 + random.below(40) : 10'000);
    problem.rx_kbps.push_back(1 + random.below(12));
  }
  return problem;
}

/// Every chunk reaches p others and nobody takes more than fits into the time.
void expect_sound(const ChunkProblem& problem, const ChunkPlan& plan) {
  const auto n = static_cast<Rank>(problem.p.size());
  std::vector<std::uint64_t> taken(n);
  for (Rank i = 0; i < n; ++i) {
    ASSERT_EQ(plan.chunks[i], chunks_of(problem, i));
    for (std::uint32_t chunk = 0; chunk < plan.chunks[i]; ++chunk) {
      const auto receivers = plan.receivers(i, chunk);
      EXPECT_EQ(receivers.size(), problem.p[i]);
      EXPECT_FALSE(reference::contains(receivers, i));
      for (const auto j : receivers) ++taken[j];
    }
  }
  for (Rank j = 0; j < n; ++j) {
    EXPECT_TRUE(taken[j] == 0 || !(Ratio{problem.rx_kbps[j], taken[j]} < ratio(plan.rate)));
  }
}

TEST(ChunksMilp, TheTimeIsTheShortestOfTheIntegerProgram) {
  SplitMix64 random(8);
  int compared = 0;
  double worst = 1.0, sum = 0.0;
  for (int instance = 0; instance < 300 && !HasFailure(); ++instance) {
    const auto problem = random_problem(random, static_cast<std::uint32_t>(2 + random.below(4)));
    const auto plan = plan_chunks(problem);
    ASSERT_TRUE(plan.has_value());
    expect_sound(problem, *plan);
    EXPECT_TRUE(possible(problem, ratio(plan->rate))) << instance;
    EXPECT_FALSE(possible(problem, next_rate(problem, ratio(plan->rate)))) << instance;
    const auto gap = plan->seconds / plan->lower_bound_seconds;
    EXPECT_GE(gap, 1 - 1e-12);
    worst = std::max(worst, gap);
    sum += gap;
    ++compared;
  }
  std::cout << compared << " chunk plans compared with GLPK; time / lower bound: mean "
            << sum / compared << ", worst " << worst << "\n";
}

// With chunks of at most 1/100 of a size, what is left of the gap is the bound's own optimism (it
// looks at few of all sets of senders); how much is printed.
TEST(ChunksMilp, SmallChunksComeCloseToTheLowerBound) {
  SplitMix64 random(9);
  double worst = 1.0;
  for (int instance = 0; instance < 60; ++instance) {
    auto problem = random_problem(random, static_cast<std::uint32_t>(3 + random.below(14)));
    for (auto& size : problem.bytes) size = 100'000 + random.below(900'000);
    for (auto& rate : problem.rx_kbps) rate = 500 + random.below(1000);
    for (auto& rate : problem.tx_kbps) rate *= 1000;
    problem.chunk_bytes = 1000;
    const auto plan = plan_chunks(problem);
    ASSERT_TRUE(plan.has_value());
    EXPECT_GE(plan->seconds, plan->lower_bound_seconds * (1 - 1e-12));
    worst = std::max(worst, plan->seconds / plan->lower_bound_seconds);
  }
  std::cout << "chunks of 1/100 to 1/1000: worst time / lower bound " << worst << "\n";
  EXPECT_LT(worst, 1.02);
}

TEST(ChunksMilp, EqualSizesInOneChunkAreASelection) {
  SplitMix64 random(10);
  for (int instance = 0; instance < 300; ++instance) {
    auto problem = random_problem(random, static_cast<std::uint32_t>(2 + random.below(9)));
    problem.bytes.assign(problem.p.size(), problem.chunk_bytes);
    const auto plan = plan_chunks(problem);
    SelectionProblem selection;
    selection.p = problem.p;
    selection.fanout = problem.fanout;
    selection.tx_kbps = problem.tx_kbps;
    selection.rx_kbps = problem.rx_kbps;
    const auto exact = select_exact(selection);
    ASSERT_TRUE(plan.has_value() && exact.has_value());
    EXPECT_EQ(plan->rate, exact->rate);
  }
}

// By hand: 6 kB from 0 to either of two receivers of 8 and 4 Mbit/s, in chunks of 1 kB; the others
// send 1 kB to 0. Four and two chunks take 4 ms, a whole multicast would take 6 ms.
TEST(ChunksMilp, ChunksOfOneSenderMaySplit) {
  const ChunkProblem problem{
      {6000, 1000, 1000}, 1000, {1, 1, 1}, Fanout::multicast, {100'000, 100'000, 100'000},
      {8000, 8000, 4000}};
  const auto plan = plan_chunks(problem);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->rate, (RateFraction{2000, 1}));
  EXPECT_EQ(plan->deliveries[0], (std::vector<std::uint32_t>{0, 4, 2}));
  EXPECT_DOUBLE_EQ(plan->seconds, 0.004);
  EXPECT_DOUBLE_EQ(plan->lower_bound_seconds, 0.004);
}

TEST(ChunksMilp, SaysWhatIsWrong) {
  ChunkProblem problem{{5, 5}, 2, {1, 1}, Fanout::multicast, {9, 9}, {9, 9}};
  const auto message = [](const ChunkProblem& wrong) {
    const auto plan = plan_chunks(wrong);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(message(problem), "");
  problem.bytes[1] = 131'073;
  EXPECT_NE(message(problem).find("bytes[1] is 131073; with chunks of 2 bytes"), std::string::npos);
  problem.bytes[1] = 0;
  EXPECT_NE(message(problem).find("bytes[1] is 0"), std::string::npos);
  problem.bytes = {5};
  EXPECT_NE(message(problem).find("bytes has 1 entries"), std::string::npos);
  problem.bytes = {5, 5};
  problem.chunk_bytes = 0;
  EXPECT_NE(message(problem).find("chunk_bytes is 0"), std::string::npos);
}

}  // namespace
}  // namespace selmcast
