#include <gtest/gtest.h>

#include "base/random.h"
#include "plan/select/published_ssp.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

SspSelection cluster(std::uint32_t p, std::vector<Kbps> rx) {
  SspSelection out;
  out.p.assign(rx.size(), p);
  out.tx_kbps.assign(rx.size(), Kbps{1} << 40U);
  out.rx_kbps = std::move(rx);
  return out;
}

OpenMulticast fresh(Rank sender, std::uint64_t volume, std::size_t n) {
  OpenMulticast out;
  out.sender = sender;
  out.volume = volume;
  for (Rank j = 0; j < n; ++j) {
    if (j != sender) out.targets.push_back({j, volume, 0, false});
  }
  return out;
}

std::vector<Rank> receivers_of(const OpenMulticast& multicast) {
  std::vector<Rank> out;
  for (const auto& target : multicast.targets) out.push_back(target.receiver);
  return out;
}

// All start at once with nothing sent, and none is blocked: with a common deadline Algorithm 2 is
// Algorithm 1. The deadlines are common here because everyone has the same `blocked` time, which is
// that of the slowest receiver.
TEST(SelectSsp, WithEqualStartsAndDeadlinesIsTheBspHeuristic) {
  SplitMix64 random(3);
  for (int instance = 0; instance < 200; ++instance) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(12));
    SelectionProblem bsp;
    SspSelection ssp;
    ssp.fanout = bsp.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
    for (Rank r = 0; r < n; ++r) {
      bsp.p.push_back(static_cast<std::uint32_t>(1 + random.below(n - 1)));
      bsp.tx_kbps.push_back(1 + random.below(60));
      bsp.rx_kbps.push_back(1 + random.below(30));
    }
    bsp.age.assign(n, std::vector<std::uint32_t>(n));
    for (auto& row : bsp.age) {
      for (auto& age : row) age = static_cast<std::uint32_t>(random.below(5));
    }
    ssp.p = bsp.p;
    ssp.tx_kbps = bsp.tx_kbps;
    ssp.rx_kbps = bsp.rx_kbps;
    const std::vector<std::uint64_t> volume(n, 1);
    const auto expected =
        select_published_volumes(bsp, volume, SenderOrder::forced_first, Ties::by_index);
    std::vector<OpenMulticast> open;
    for (Rank i = 0; i < n; ++i) {
      open.push_back(fresh(i, 1, n));
      open.back().blocked = expected->time;
      for (auto& target : open.back().targets) target.age = bsp.age[i][target.receiver];
    }
    select_published_ssp(ssp, open);
    for (Rank i = 0; i < n; ++i) {
      EXPECT_EQ(receivers_of(open[i]), expected->receivers[i]) << instance << " " << i;
      EXPECT_FALSE(open[i].deadline < expected->time || expected->time < open[i].deadline);
    }
  }
}

TEST(SelectSsp, KeepsForcedDeliveredAndNearlyDoneReceivers) {
  auto problem = cluster(1, {10, 10, 10, 10, 10});
  problem.eta = 0.5;
  std::vector<OpenMulticast> open = {fresh(0, 100, 5)};
  open[0].targets[0].left = 49;      // Rank 1: less than half is left.
  open[0].targets[1].left = 50;      // Rank 2: exactly half, may go.
  open[0].targets[2].forced = true;  // Rank 3.
  open[0].targets[3].left = 0;       // Rank 4: delivered.
  // Its deadline is that of rank 3 with 100/10, which rank 2 meets: it comes back unless loaded.
  open.push_back(fresh(1, 100, 5));
  open[1].targets = {{2, 100, 0, true}};
  select_published_ssp(problem, open);
  EXPECT_EQ(receivers_of(open[0]), (std::vector<Rank>{1, 3, 4}));
  EXPECT_EQ(receivers_of(open[1]), (std::vector<Rank>{2}));
  EXPECT_EQ(open[0].deadline.value(), 10.0);
}

// Two multicasts want one receiver each of {2, 3}; 3 is slower. The one that is blocked longer
// chooses first, and its spare time lets it take the slow receiver as well.
TEST(SelectSsp, BlockedSendersGoFirstAndUseTheirTime) {
  auto problem = cluster(1, {10, 10, 10, 5});
  auto open_at = [&](std::uint64_t blocked_first, std::uint64_t blocked_second) {
    std::vector<OpenMulticast> open = {fresh(0, 10, 4), fresh(1, 10, 4)};
    for (auto& multicast : open) multicast.targets = {{2, 10, 0, false}, {3, 10, 0, false}};
    open[0].blocked = {blocked_first, 1};
    open[1].blocked = {blocked_second, 1};
    select_published_ssp(problem, open);
    return open;
  };
  // 0 takes 2 (time 1); for 1 both cost 2 (20/10 and 10/5), index: 2, so load 20: deadlines 2 and
  // max(blocked, 2); 3 then costs 10/5 = 2 and goes to the first in order.
  auto open = open_at(0, 0);
  EXPECT_EQ(receivers_of(open[0]), (std::vector<Rank>{2, 3}));
  EXPECT_EQ(receivers_of(open[1]), (std::vector<Rank>{2}));
  open = open_at(0, 9);
  EXPECT_EQ(open[1].deadline.value(), 9.0);
  EXPECT_EQ(receivers_of(open[0]), (std::vector<Rank>{2, 3}));
  EXPECT_EQ(receivers_of(open[1]), (std::vector<Rank>{2, 3}));  // 20/5 = 4 is within 9.
}

TEST(SelectSsp, ForcedPairsAloneDecideWhereTheyExceedP) {
  auto problem = cluster(1, {10, 10, 10, 1});
  std::vector<OpenMulticast> open = {fresh(0, 10, 4)};
  open[0].targets[2].forced = true;  // The slow one: 10 ms, and all others fit into that.
  select_published_ssp(problem, open);
  EXPECT_EQ(receivers_of(open[0]), (std::vector<Rank>{1, 2, 3}));
  EXPECT_EQ(open[0].deadline.value(), 10.0);
}

}  // namespace
}  // namespace selmcast
