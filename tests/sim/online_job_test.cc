// Jobs under selmcast-ssp: receivers selected while rounds run. Random ones are in
// online_random_test.cc.
#include <gtest/gtest.h>

#include "tests/sim/online_random.h"

namespace selmcast {
namespace {

using namespace testing_jobs;

/// Links from a sixth of 300 Mbit/s up to all of it, one rank three times as slow at computing.
DrawnFree unequal(const std::string& policy, std::uint32_t n, double loss = 0.0) {
  DrawnFree out;
  out.job.config = config(policy, n);
  out.job.count = 30'000;
  out.job.p = out.job.config.policy.select.p;
  out.slack = out.job.config.policy.pace.slack;
  SimJobConfig& c = out.job.config;
  c.rounds = 20;
  c.timeout = seconds(1);
  c.deadline = seconds(120);
  c.loss = loss;
  c.network.join_settle = microseconds(200);
  for (Rank r = 0; r < n; ++r) {
    const Kbps rate = 50'000 * (1 + r % 6);
    c.network.links[r].tx_kbps = c.network.links[r].rx_kbps = c.tx_kbps[r] = c.rx_kbps[r] = rate;
    c.compute.push_back(milliseconds(r == n / 2 ? 15 : 5));
  }
  return out;
}

std::string broken(const DrawnFree& drawn, const FreeOutcome& out, OnlineCounts* counts = nullptr) {
  if (!out.result) return "no plan: " + out.result.error().message;
  return broken_free_rule(drawn, out) + broken_selection(drawn, out, counts);
}

TEST(OnlineJobs, UnequalRanksKeepTheRulesAndPlansComeInTime) {
  for (const std::uint32_t n : {4U, 7U, 12U}) {
    for (const double loss : {0.0, 0.02}) {
      const auto drawn = unequal("selmcast-ssp", n, loss);
      OnlineCounts counts;
      EXPECT_EQ(broken(drawn, run_drawn(drawn), &counts), "") << n << " ranks, loss " << loss;
      EXPECT_EQ(counts.rounds, n * 21U);  // A step is a round, and there is a last one.
      EXPECT_LE(counts.alone, counts.rounds / 50) << "plans come late";
      EXPECT_GT(counts.cut, 0U) << "nothing is selected while rounds run";
    }
  }
}

// As many receivers as there are ranks: nobody may be left out, whatever the links.
TEST(OnlineJobs, WhereAllAreNeededNobodyIsLeftOut) {
  for (const char* policy :
       {"select=selmcast:3,0 pace=ssp:0,1", "select=selmcast:3,0 pace=ssp:2,0"}) {
    const auto all = unequal(policy, 4);
    const auto out = run_drawn(all);
    EXPECT_EQ(broken(all, out), "");
    for (Rank r = 0; r < 4; ++r) {
      for (const auto& report : out.result->reports[r]) EXPECT_EQ(report.receivers.size(), 3U);
    }
  }
}

// ssp:0 with all as receivers is lock-step in values too.
TEST(OnlineJobs, WithoutSlackTheMeansAreThoseOfLockStep) {
  const auto drawn = unequal("select=selmcast:3,0 pace=ssp:0,0.75", 4);
  const auto start = initial(4, drawn.job.count);
  auto lock_step = drawn.job.config;
  lock_step.policy = parse_policy("select=all").value();
  lock_step.rounds = drawn.job.config.rounds + 1;
  lock_step.compute.clear();
  auto want = start;
  SimJob job(lock_step, want);
  ASSERT_TRUE(job.run());
  const auto out = run_free(drawn.job.config, start);
  for (Rank r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < want[r].size(); ++i) ASSERT_NEAR(out.end[r][i], want[r][i], 1e-5);
  }
}

/// Kills one of nine ranks and looks at what the others did.
void play_kill(Rank killed, milliseconds at, milliseconds notice, double loss) {
  auto drawn = unequal("selmcast-ssp", 9, loss);
  drawn.job.kills.push_back({killed, TimePoint(at), notice});
  const auto out = run_drawn(drawn);
  OnlineCounts counts;
  const auto where = testing::Message() << "rank " << killed << " at " << at.count() << " ms";
  ASSERT_EQ(broken(drawn, out, &counts), "") << where;
  EXPECT_EQ(out.result->failed_ranks, (std::vector<Rank>{killed})) << where;
  for (Rank r = 0; r < 9; ++r) {
    if (r == killed) continue;
    EXPECT_EQ(out.result->reports[r].size(), 21U) << where;
    // Whoever selects then has taken over: the last rounds are planned again.
    const auto& last = out.replay->selected(r).rbegin()->second;
    EXPECT_FALSE(last.alone) << where << ", by rank " << r;
    EXPECT_EQ(std::count(last.receivers.begin(), last.receivers.end(), killed), 0) << where;
  }
}

TEST(OnlineJobs, AWorkerIsKilledAndTheOthersGoOn) {
  for (const int at : {3, 60, 200}) {
    for (const double loss : {0.0, 0.02}) play_kill(5, milliseconds(at), milliseconds(30), loss);
  }
}

TEST(OnlineJobs, TheSelectingRankIsKilledAndTheNextTakesOver) {
  for (const int at : {3, 60, 200}) {
    for (const double loss : {0.0, 0.02}) play_kill(0, milliseconds(at), milliseconds(30), loss);
  }
}

// Nobody is told of the death for long: each goes on by its own choice, once, as its receiver 0
// does not answer.
TEST(OnlineJobs, WithoutASelectingRankEveryoneChoosesAlone) {
  auto drawn = unequal("select=selmcast:2 pace=ssp:8,0.75", 6);
  drawn.job.kills.push_back({0, TimePoint(milliseconds(40)), milliseconds(900)});
  const auto out = run_drawn(drawn);
  OnlineCounts counts;
  EXPECT_EQ(broken(drawn, out, &counts), "");
  EXPECT_EQ(out.result->failed_ranks, (std::vector<Rank>{0}));
  EXPECT_GE(counts.alone, 5U);
}

double ms_of(const FreeOutcome& out, std::uint32_t steps) {
  TimePoint last{};
  for (Rank r = 0; r < out.end.size(); ++r) last = std::max(last, out.log.begin_of(r, steps));
  return std::chrono::duration<double, std::milli>(last - TimePoint()).count();
}

// How long 20 steps take in virtual time, and how many receivers they reach. Printed: the algorithm
// promises no time, only that everyone is served.
TEST(OnlineJobs, ShowsWhatSelectingOnlineIsWorth) {
  for (const std::uint32_t n : {6U, 9U, 12U}) {
    for (const char* policy : {"select=selmcast:2 pace=ssp:4,0.75", "select=selmcast:2 pace=ssp:4",
                               "select=selmcast:2", "select=all pace=ssp:4"}) {
      const auto drawn = unequal(policy, n);
      const auto out = run_drawn(drawn);
      ASSERT_TRUE(out.result) << out.result.error().message;
      EXPECT_FALSE(out.result->timed_out);
      std::size_t reached = 0, rounds = 0;
      for (const auto& reports : out.result->reports) {
        rounds += reports.size();
        for (const auto& report : reports) reached += report.receivers.size();
      }
      std::printf("%2u ranks, %-34s %7.1f ms, %.2f receivers a round\n", n, policy,
                  ms_of(out, drawn.job.config.rounds),
                  static_cast<double>(reached) / static_cast<double>(rounds));
    }
  }
}

}  // namespace
}  // namespace selmcast
