// The selecting rank of pace=ssp:s,eta as a state machine: single rules, by hand. Random calls are
// in online_replay_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/online/controller.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Targets = std::vector<OnlineController::Target>;

constexpr std::uint64_t kVolume = 1'000'000;  // Bits: 10 ms at 100 Mbit/s.
constexpr Kbps kLink = 100'000;

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}

OnlineController controller(std::uint32_t n, const OnlineSettings& settings,
                            const std::vector<Kbps>& rx = {}) {
  OnlineController out(n, kVolume);
  out.configure(1, settings);
  for (Rank r = 0; r < n; ++r) out.set_rates(r, kLink, rx.empty() ? kLink : rx[r]);
  return out;
}

Targets everyone(std::uint32_t n, Rank but, std::uint32_t age = 0) {
  Targets out;
  for (Rank r = 0; r < n; ++r) {
    if (r != but) out.push_back({r, age, kVolume});
  }
  return out;
}

std::vector<Rank> receivers(const OnlineController::Multicast& m) {
  std::vector<Rank> out;
  for (const auto& target : m.targets) out.push_back(target.receiver);
  std::sort(out.begin(), out.end());
  return out;
}

Targets as_report(const OnlineController::Multicast& m, std::uint64_t left) {
  Targets out;
  for (const auto& target : m.targets) out.push_back({target.receiver, 0, left});
  return out;
}

// Equal idle links: within the 10 ms that the p receivers take, all others fit.
TEST(OnlineController, AloneOnEqualLinksASenderReachesEveryoneAtFullRate) {
  auto c = controller(5, {2, 0, 1, 0.75});
  c.request(at(0), 3, 1, 0, everyone(5, 3));
  EXPECT_FALSE(c.of(3).news);
  c.decide(at(0));
  EXPECT_TRUE(c.of(3).news);
  EXPECT_EQ(receivers(c.of(3)), (std::vector<Rank>{0, 1, 2, 4}));
  EXPECT_EQ(c.of(3).rate, kLink);
  EXPECT_EQ(c.of(3).deadline, at(10));
}

// A tenth of the link takes ten times as long as the p = 2 others: left out, unless it is due.
TEST(OnlineController, ASlowReceiverIsLeftOutUntilItIsDue) {
  for (const std::uint32_t age : {0U, 2U, 3U, 9U}) {
    auto c = controller(4, {2, 3, 1, 0.75}, {kLink, kLink, kLink, kLink / 10});
    c.request(at(0), 0, 1, age, everyone(4, 0, age));
    c.decide(at(0));
    const bool due = age >= 3;
    EXPECT_EQ(receivers(c.of(0)).size(), due ? 3U : 2U) << age;
    EXPECT_EQ(c.of(0).rate, due ? kLink / 10 : kLink) << age;
  }
}

// Both send to both third ranks; each card is shared so that both end in twice the time.
TEST(OnlineController, RatesOfAllTogetherFitTheCards) {
  auto c = controller(4, {3, 0, 1, 0.75});
  for (const Rank r : {0U, 1U}) c.request(at(0), r, 1, 0, everyone(4, r));
  c.decide(at(0));
  EXPECT_LE(c.of(0).rate + c.of(1).rate, kLink * 102 / 100);
  EXPECT_EQ(c.of(0).deadline, at(20));
  c.issue(0);
  c.issue(1);
  c.ended(0, 1, false);
  c.decide(at(20));
  EXPECT_FALSE(c.of(0).open);
  EXPECT_EQ(c.of(1).rate, kLink);
  EXPECT_TRUE(c.of(1).news);
}

TEST(OnlineController, TheSameRequestAgainGetsTheSamePlanAndAnOlderOneNothing) {
  auto c = controller(5, {2, 0, 1, 0.75});
  c.request(at(0), 1, 1, 4, everyone(5, 1));
  c.decide(at(0));
  const auto plan = receivers(c.of(1));
  c.issue(1);
  c.request(at(2), 1, 1, 4, everyone(5, 1));
  EXPECT_TRUE(c.of(1).news);
  EXPECT_EQ(receivers(c.of(1)), plan);
  c.issue(1);
  c.request(at(3), 1, 1, 3, everyone(5, 1));
  c.report(at(3), 1, 1, 3, everyone(5, 1), 0, true);
  EXPECT_FALSE(c.of(1).news);
  EXPECT_EQ(c.of(1).round, 4U);
  c.ended(1, 5, false);
  c.request(at(4), 1, 1, 4, everyone(5, 1));
  EXPECT_FALSE(c.of(1).open);
}

// A sender whose report names a receiver that the plan does not have missed the last plan.
TEST(OnlineController, AReportThatDiffersFromThePlanIsAnswered) {
  auto c = controller(4, {2, 0, 1, 0.75}, {kLink, kLink, kLink, kLink / 10});
  c.request(at(0), 0, 1, 0, everyone(4, 0));
  c.decide(at(0));
  c.issue(0);
  c.report(at(4), 0, 1, 0, as_report(c.of(0), kVolume / 2), 1, false);
  EXPECT_FALSE(c.of(0).news);
  c.report(at(8), 0, 1, 0, everyone(4, 0), 0, false);
  EXPECT_TRUE(c.of(0).news);
  EXPECT_EQ(receivers(c.of(0)), (std::vector<Rank>{1, 2}));
}

// Whoever takes over knows nothing of what is under way and cuts nobody out of it.
TEST(OnlineController, WhatAnotherOrTheSenderChoseIsKept) {
  for (const bool alone : {false, true}) {
    auto c = controller(5, {1, 0, 1, 0.75});
    c.report(at(0), 0, 1, 7, everyone(5, 0), 0, alone);
    c.decide(at(0));
    EXPECT_TRUE(c.of(0).kept);
    for (const Rank r : {1U, 2U, 3U}) c.request(at(1), r, 1, 7, everyone(5, r));
    c.decide(at(1));
    EXPECT_EQ(receivers(c.of(0)), (std::vector<Rank>{1, 2, 3, 4}));
  }
}

// Rank 0 is two rounds ahead of rank 1 under s = 1, so it waits for rank 1's next multicast:
// requested every 50 ms, the last time at 100, and p copies of 10 ms.
TEST(OnlineController, BlockingTimesAreForecastFromRequests) {
  auto c = controller(3, {2, 0, 1, 0.75});
  for (std::uint32_t round = 0; round < 3; ++round) {
    c.request(at(50 * round), 1, 1, round, everyone(3, 1));
    c.decide(at(50 * round));
    c.ended(1, round + 1, false);
  }
  c.ended(2, 9, false);
  c.request(at(110), 0, 1, 4, everyone(3, 0));
  EXPECT_DOUBLE_EQ(c.blocked(0, at(110)).value(), 40 + 2 * 10.0);
  EXPECT_DOUBLE_EQ(c.blocked(0, at(200)).value(), 2 * 10.0);
  // While it sends: until its deadline.
  c.request(at(150), 1, 1, 3, everyone(3, 1));
  c.decide(at(150));
  const auto until = std::chrono::duration<double, std::milli>(c.of(1).deadline - at(152)).count();
  EXPECT_DOUBLE_EQ(c.blocked(0, at(152)).value(), until);
  c.ended(1, 4, false);
  EXPECT_DOUBLE_EQ(c.blocked(0, at(155)).value(), 0.0);
}

TEST(OnlineController, NobodyWaitsForTheLostAndTheStopped) {
  auto c = controller(3, {1, 0, 0, 0.75});
  c.request(at(0), 0, 1, 3, everyone(3, 0));
  EXPECT_GT(c.blocked(0, at(0)).value(), 0.0);
  c.lose(1);
  c.ended(2, 1, true);
  EXPECT_DOUBLE_EQ(c.blocked(0, at(0)).value(), 0.0);
  c.decide(at(0));
  EXPECT_EQ(receivers(c.of(0)), (std::vector<Rank>{2}));
}

// What counts is the number of the plan: told again it keeps it, changed it gets a larger one.
TEST(OnlineController, PlansAreNumberedAndALostOneIsToldAgain) {
  auto c = controller(3, {2, 0, 1, 0.75});
  EXPECT_FALSE(c.decide(at(0)));
  c.request(at(0), 0, 1, 0, everyone(3, 0));
  EXPECT_TRUE(c.decide(at(0)));
  EXPECT_TRUE(c.to_tell(0));
  EXPECT_EQ(c.issue(0), 1U);
  EXPECT_FALSE(c.to_tell(0));
  c.report(at(1), 0, 1, 0, as_report(c.of(0), kVolume / 2), 1, false);
  EXPECT_FALSE(c.decide(at(1)));
  c.report(at(2), 0, 1, 0, as_report(c.of(0), kVolume / 2), 0, false);
  EXPECT_TRUE(c.decide(at(2)));
  EXPECT_EQ(c.issue(0), 1U);
  EXPECT_EQ(c.of(0).rate, kLink);
  // Rank 2 is to hear half a volume more from 0 and one from 1, both within 15 ms.
  c.request(at(3), 1, 1, 0, everyone(3, 1));
  EXPECT_TRUE(c.decide(at(3)));
  EXPECT_TRUE(c.to_tell(1));
  EXPECT_EQ(c.issue(1), 2U);
  ASSERT_TRUE(c.to_tell(0));
  EXPECT_EQ(c.issue(0), 3U);
  EXPECT_NEAR(static_cast<double>(c.of(0).rate), kLink / 3.0, kLink * 0.01);
}

// Its sender has left that epoch behind, or will: it asks again in the new one.
TEST(OnlineController, WhatIsUnderWayInAnotherEpochIsLeftAlone) {
  auto c = controller(5, {1, 0, 1, 0.75});
  c.request(at(0), 0, 1, 3, everyone(5, 0));
  c.decide(at(0));
  const auto before = receivers(c.of(0));
  c.request(at(1), 1, 1, 3, everyone(5, 1));
  c.configure(2, {1, 0, 1, 0.75});
  EXPECT_FALSE(c.of(1).open);
  for (const Rank r : {1U, 2U, 3U}) c.request(at(2), r, 2, 3, everyone(5, r));
  EXPECT_TRUE(c.decide(at(2)));
  EXPECT_EQ(receivers(c.of(0)), before);
  EXPECT_FALSE(c.to_tell(0));
  EXPECT_TRUE(c.to_tell(1));
  // A sender that is ahead gets its plan once this rank has followed.
  c.request(at(3), 4, 3, 3, everyone(5, 4));
  c.decide(at(3));
  EXPECT_FALSE(c.to_tell(4));
  c.configure(3, {1, 0, 1, 0.75});
  c.request(at(4), 4, 3, 3, everyone(5, 4));
  EXPECT_TRUE(c.decide(at(4)));
  EXPECT_TRUE(c.to_tell(4));
}

}  // namespace
}  // namespace selmcast
