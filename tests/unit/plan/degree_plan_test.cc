#include "plan/select/degree_plan.h"

#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

std::vector<std::uint32_t> degrees_of(const Selection& selection) {
  std::vector<std::uint32_t> out;
  for (const auto& receivers : selection.receivers) {
    out.push_back(static_cast<std::uint32_t>(receivers.size()));
  }
  return out;
}

/// The plan and select_exact(), which is tested by exhaustive search and integer programs, agree.
void expect_same(DegreePlan& plan, const SelectionProblem& problem, int& solved) {
  const auto selection = select_exact(problem);
  const auto planned = plan.plan(problem.tx_kbps, problem.rx_kbps);
  ASSERT_EQ(planned.has_value(), selection.has_value()) << reference::describe(problem);
  if (!selection) {
    EXPECT_EQ(planned.error().message, selection.error().message);
    return;
  }
  ++solved;
  ASSERT_EQ(plan.rate(), selection->rate) << reference::describe(problem);
  const auto wanted = degrees_of(*selection);
  ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), plan.out_degrees().begin()))
      << reference::describe(problem);
  const auto slots = reference::slots(problem.rx_kbps, reference::ratio(plan.rate()));
  ASSERT_TRUE(std::equal(slots.begin(), slots.end(), plan.slots().begin()))
      << reference::describe(problem);
}

TEST(DegreePlan, AgreesWithExplicitSelections) {
  SplitMix64 random(55);
  int solved = 0;
  for (int instance = 0; instance < 3000 && !HasFatalFailure(); ++instance) {
    const auto n = static_cast<std::uint32_t>(2 + random.below(instance % 10 == 0 ? 60 : 12));
    auto problem = reference::random_problem(random, n);
    problem.age.clear();
    problem.forced.clear();
    problem.forbidden.clear();
    problem.k = 0;
    auto plan = DegreePlan::make(problem.p, problem.fanout);
    ASSERT_TRUE(plan.has_value());
    // Several views: what the last one left behind must not matter.
    for (int view = 0; view < 4 && !HasFatalFailure(); ++view) {
      expect_same(*plan, problem, solved);
      for (auto& d : problem.rx_kbps) d = random.chance(0.3) ? random.below(30) : d;
      for (auto& u : problem.tx_kbps) u = random.chance(0.3) ? 1 + random.below(30) : u;
    }
  }
  std::cout << solved << " views compared\n";
  EXPECT_GT(solved, 5000);
}

TEST(DegreePlan, AgreesForRatesOfRealLinksAndBeyond) {
  SplitMix64 random(56);
  int solved = 0;
  for (int instance = 0; instance < 60 && !HasFatalFailure(); ++instance) {
    const auto n = static_cast<std::uint32_t>(20 + random.below(180));
    SelectionProblem problem;
    problem.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
    const auto most = static_cast<std::uint32_t>(1 + random.below(n - 1));
    for (std::uint32_t i = 0; i < n; ++i) {
      problem.p.push_back(static_cast<std::uint32_t>(1 + random.below(most)));
    }
    auto plan = DegreePlan::make(problem.p, problem.fanout);
    ASSERT_TRUE(plan.has_value());
    for (const Kbps link : {Kbps{100'000'000}, Kbps{1} << 36U}) {
      for (int view = 0; view < 3 && !HasFatalFailure(); ++view) {
        problem.rx_kbps.clear();
        problem.tx_kbps.clear();
        for (std::uint32_t i = 0; i < n; ++i) {
          problem.rx_kbps.push_back(link / 1000 * (750 + random.below(500)) + random.below(999));
          const auto copies = problem.fanout == Fanout::unicast ? most : 1;
          problem.tx_kbps.push_back(link / 1000 * copies * (400 + random.below(1000)));
        }
        // The reference's products must fit 64 bits.
        ASSERT_LT(problem.tx_kbps.back() >> 45U, 1U);
        expect_same(*plan, problem, solved);
      }
    }
  }
  EXPECT_EQ(solved, 360);
}

// 0 and 1 want everyone. Worked by hand.
TEST(DegreePlan, ConditionOnDegreesLowersTheRate) {
  auto plan = DegreePlan::make({3, 3, 1, 1}, Fanout::multicast);
  ASSERT_TRUE(plan.has_value());
  const std::vector<Kbps> tx(4, 1000), rx{12, 12, 12, 12};
  // Two slots each: 0 and 1 fill those of 2 and 3, and 2 and 3 take the rest of 0 and 1.
  ASSERT_TRUE(plan->plan(tx, rx).has_value());
  EXPECT_EQ(plan->rate(), (RateFraction{6, 1}));
  // At rate 6 there are 3 + 3 + 1 + 1 = 8 slots for 8 deliveries; but 2 and 3 must hear both 0
  // and 1.
  ASSERT_TRUE(plan->plan(tx, std::vector<Kbps>{36, 36, 6, 6}).has_value());
  EXPECT_EQ(plan->rate(), (RateFraction{3, 1}));
}

TEST(DegreePlan, SaysWhatIsWrong) {
  EXPECT_NE(DegreePlan::make({1, 4, 1}, Fanout::unicast).error().message.find("p of sender 1 is 4"),
            std::string::npos);
  auto plan = DegreePlan::make({1, 2, 1}, Fanout::unicast);
  ASSERT_TRUE(plan.has_value());
  const auto message = [&](const std::vector<Kbps>& tx, const std::vector<Kbps>& rx) {
    const auto planned = plan->plan(tx, rx);
    return planned ? std::string() : planned.error().message;
  };
  EXPECT_EQ(message({9, 9, 9}, {5, 5, 5}), "");
  EXPECT_NE(message({9, 9}, {5, 5, 5}).find("tx_kbps has 2 entries"), std::string::npos);
  EXPECT_NE(message({9, 9, 0}, {5, 5, 5}).find("sender 2 has no"), std::string::npos);
  EXPECT_NE(message({9, 9, 9}, {5, 5, 0}).find("sender 1 needs p = 2"), std::string::npos);
  EXPECT_NE(message({9, 9, 9}, {5, 5, Kbps{1} << 53U}).find("rx_kbps[2]"), std::string::npos);
}

}  // namespace
}  // namespace selmcast
