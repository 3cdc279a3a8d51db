// pace=async and pace=ssp:s in virtual time: closed forms, replayed values, who waits for whom.
#include "tests/sim/free_job.h"

#include <gtest/gtest.h>

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing_jobs::initial;
using testing_jobs::run_free;
using testing_jobs::worst_replayed;

SimJobConfig free_config(const std::string& policy, std::size_t ranks) {
  SimJobConfig out;
  const auto parsed = parse_policy(policy);
  EXPECT_TRUE(parsed) << parsed.error().message;
  out.policy = *parsed;
  SimLink link;
  link.tx_kbps = link.rx_kbps = 1'000'000;
  out.network.links.assign(ranks, link);
  out.tx_kbps.assign(ranks, 1'000'000);
  out.rx_kbps.assign(ranks, 1'000'000);
  out.timeout = seconds(1);
  out.deadline = seconds(300);
  out.compute.assign(ranks, milliseconds(5));
  return out;
}

float dyadic_step(Rank rank, std::uint32_t step, std::size_t i) {
  return static_cast<float>((7 * rank + 3 * step + i) % 16) / 256.0F;
}

void expect_fine(const testing_jobs::FreeOutcome& out, std::uint32_t steps) {
  ASSERT_TRUE(out.result) << out.result.error().message;
  EXPECT_FALSE(out.result->timed_out);
  EXPECT_TRUE(out.result->failed_ranks.empty());
  for (std::size_t r = 0; r < out.end.size(); ++r) {
    EXPECT_EQ(out.result->errors[r], "") << "rank " << r;
    EXPECT_LE(out.result->reports[r].size(), steps + 1);
    EXPECT_EQ(out.result->reports[r].size(), out.replay->departures(static_cast<Rank>(r)));
    for (const auto& report : out.result->reports[r]) {
      EXPECT_EQ(report.foreign_frames, 0U);
      EXPECT_TRUE(report.verified);
      EXPECT_TRUE(report.given_up.empty());
    }
    EXPECT_LT(worst_replayed(out, static_cast<Rank>(r)), 1e-5) << "rank " << r;
  }
}

/// With a bound of 0 and numbers that are exact in float32 a job ends with the bits of lock-step
/// and one more round.
void expect_lock_step(const SimJobConfig& job, const std::string& select, std::size_t count) {
  const auto start = initial(4, count);
  const auto free = run_free(job, start, dyadic_step);
  expect_fine(free, job.rounds);
  EXPECT_EQ(free.log.most_ahead({0, 1, 2, 3}), 0U);
  EXPECT_EQ(free.log.most_beyond_ended({0, 1, 2, 3}), 0U);
  auto lock_step = job;
  lock_step.policy = parse_policy(select).value();
  lock_step.rounds = job.rounds + 1;
  lock_step.work = [&job](Rank rank, std::uint32_t step, std::span<float> w) {
    if (step == job.rounds) return;
    for (std::size_t i = 0; i < w.size(); ++i) w[i] += dyadic_step(rank, step, i);
  };
  auto parameters = start;
  SimJob other(lock_step, parameters);
  ASSERT_TRUE(other.run());
  EXPECT_EQ(free.end, parameters) << select << " seed " << job.network.seed;
}

constexpr const char* kExactMeans[] = {"select=all", "select=selmcast:1 groups=sender"};

TEST(FreeJob, SspZeroExchangesAndMergesWhatLockStepDoes) {
  for (const std::string select : kExactMeans) {
    auto job = free_config(select + " pace=ssp:0", 4);
    job.rounds = 5;
    for (std::size_t r = 0; r < 4; ++r) {
      job.compute[r] = milliseconds(1 + 7 * r);
      job.network.links[r].delay = microseconds(10 + 400 * r);
      job.network.links[r].loss = 0.03;
    }
    expect_lock_step(job, select, 5'000);
  }
}

// A rank that learns late how far the others are must not merge what they send meanwhile.
TEST(FreeJob, SspZeroStaysInStepWhenNewsIsLate) {
  for (const std::string select : kExactMeans) {
    auto job = free_config(select + " pace=ssp:0", 4);
    job.rounds = 5;
    job.compute.assign(4, microseconds(300));
    job.network.links[2].delay = milliseconds(4);
    for (auto& link : job.network.links) link.loss = 0.2;
    for (job.network.seed = 1; job.network.seed <= 40; ++job.network.seed) {
      expect_lock_step(job, select, 100);
    }
  }
}

class FreePolicies : public testing::TestWithParam<const char*> {};

TEST_P(FreePolicies, ValuesAreTheReplayedMeans) {
  for (const double loss : {0.0, 0.05}) {
    auto job = free_config(GetParam(), 5);
    job.rounds = 12;
    for (std::size_t r = 0; r < 5; ++r) {
      job.compute[r] = microseconds(300 + 900 * r);
      job.network.links[r].loss = loss;
      job.network.links[r].duplicate = job.network.links[r].reorder = loss;
      job.network.links[r].corrupt = loss / 3;
    }
    const auto out = run_free(job, initial(5, 20'001), dyadic_step);
    expect_fine(out, job.rounds);
    if (job.policy.has(Trait::bounded)) {
      for (const auto& reports : out.result->reports) EXPECT_EQ(reports.size(), job.rounds + 1);
    }
  }
}

TEST_P(FreePolicies, WithoutStepsEveryoneComesToOneValueWithinTheRangeOfTheFirst) {
  auto job = free_config(GetParam(), 6);
  job.rounds = 80;
  for (std::size_t r = 0; r < 6; ++r) job.compute[r] = microseconds(500 + 300 * r);
  const auto start = initial(6, 999);
  const auto out = run_free(job, start);
  expect_fine(out, job.rounds);
  for (std::size_t i = 0; i < start[0].size(); ++i) {
    const auto column = [i](const auto& rows, auto pick) {
      float best = rows[0][i];
      for (const auto& row : rows) best = pick(best, row[i]);
      return best;
    };
    const auto least = [](float a, float b) { return std::min(a, b); };
    const auto most = [](float a, float b) { return std::max(a, b); };
    ASSERT_GE(column(out.end, least), column(start, least) - 1e-6F);
    ASSERT_LE(column(out.end, most), column(start, most) + 1e-6F);
    ASSERT_LT(column(out.end, most) - column(out.end, least), 1e-4F) << "element " << i;
  }
}

TEST_P(FreePolicies, EqualInputsStayEqualBitForBit) {
  auto job = free_config(GetParam(), 5);
  job.rounds = 10;
  for (std::size_t r = 0; r < 5; ++r) job.compute[r] = microseconds(500 + 700 * r);
  std::vector<std::vector<float>> start(5, std::vector<float>(2'000));
  for (auto& w : start) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.1F * static_cast<float>(i + 1);
  }
  const auto out = run_free(job, start);
  expect_fine(out, job.rounds);
  EXPECT_EQ(out.end, start);
}

INSTANTIATE_TEST_SUITE_P(
    All, FreePolicies,
    testing::Values("pace=async", "pace=ssp:0", "pace=ssp:2",
                    "select=selmcast:2 groups=sender pace=async",
                    "select=selmcast:2 groups=sender pace=ssp:1", "select=random:2 pace=ssp:3",
                    "select=random:1 pace=async",
                    "select=selmcast:2 route=unicast groups=sender pace=async"));

// Nobody waits: every rank's steps begin exactly when it has computed those before.
TEST(FreeJob, AsyncRanksBeginStepsAsIfTheyWereAlone) {
  for (const char* select : {"select=all", "select=selmcast:2 groups=sender"}) {
    auto job = free_config(std::string(select) + " pace=async", 6);
    job.rounds = 40;
    job.compute.assign(6, milliseconds(20));
    job.compute[3] = milliseconds(200);
    const auto out = run_free(job, initial(6, 30'000), dyadic_step);
    expect_fine(out, job.rounds);
    const auto at = [&](Rank r, std::uint32_t step) {
      return out.log.begin_of(r, step) - TimePoint();
    };
    for (Rank r = 0; r < 6; ++r) {
      for (std::uint32_t step = 0; step <= 40; ++step) {
        // The simulation's clock moves by a microsecond at least.
        const Duration alone = step * job.compute[r];
        ASSERT_GE(at(r, step), alone) << "rank " << r << " step " << step;
        ASSERT_LE(at(r, step), alone + microseconds(step)) << "rank " << r << " step " << step;
      }
      // A multicast takes well below a step here, so each step travels by itself.
      EXPECT_EQ(out.result->reports[r].size(), 41U);
    }
  }
}

// A round of 1.2 MB takes some 30 ms at a third of a link, a step 10: several steps per departure.
TEST(FreeJob, StepsOfALongMulticastTravelTogetherWithTheNext) {
  auto job = free_config("pace=async", 4);
  job.rounds = 40;
  job.compute.assign(4, milliseconds(10));
  const auto out = run_free(job, initial(4, 300'000), dyadic_step);
  expect_fine(out, job.rounds);
  for (Rank r = 0; r < 4; ++r) {
    // The simulation's clock moves by a microsecond at least, so a step may begin that much late.
    EXPECT_GE(out.log.begin_of(r, 40) - TimePoint(), milliseconds(400));
    EXPECT_LE(out.log.begin_of(r, 40) - TimePoint(), milliseconds(400) + microseconds(40));
    const auto rounds = out.result->reports[r].size();
    EXPECT_GE(rounds, 5U);
    EXPECT_LE(rounds, 17U);
  }
}

// Everyone's last parameters meet in one last round, whoever was done first.
TEST(FreeJob, AllRanksEndWithTheMeanOfTheirLastParameters) {
  for (const char* policy : {"pace=async", "pace=ssp:2"}) {
    auto job = free_config(policy, 4);
    job.rounds = 4;
    for (std::size_t r = 0; r < 4; ++r) job.compute[r] = milliseconds(5 + 40 * r);
    const auto out = run_free(job, initial(4, 3'000), dyadic_step);
    expect_fine(out, job.rounds);
    std::vector<double> mean(3'000, 0.0);
    for (Rank r = 0; r < 4; ++r) {
      const auto& last = out.replay->last_sent(r);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += last[i] / 4;
    }
    for (Rank r = 0; r < 4; ++r) {
      for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(out.end[r][i], mean[i], 1e-6);
    }
  }
}

// Rank 0 takes ten times as long. The others do s steps more than it has, and then wait for the end
// of its rounds: step c begins when rank 0 has done c - s.
TEST(FreeJob, SspHoldsTheOthersExactlyAtTheBound) {
  for (const std::uint32_t s : {0U, 1U, 3U}) {
    auto job = free_config("pace=ssp:" + std::to_string(s), 4);
    job.rounds = 8;
    job.compute.assign(4, milliseconds(20));
    job.compute[0] = milliseconds(200);
    const auto out = run_free(job, initial(4, 10'000), dyadic_step);
    expect_fine(out, job.rounds);
    EXPECT_EQ(out.log.most_ahead({0, 1, 2, 3}), s);
    EXPECT_EQ(out.log.most_beyond_ended({0, 1, 2, 3}), s);
    for (Rank r = 1; r < 4; ++r) {
      for (std::uint32_t c = 0; c <= 8; ++c) {
        const Duration began = out.log.begin_of(r, c) - TimePoint();
        // The slow rank itself waits for the end of its round with s = 0, a few milliseconds.
        const Duration slow = c > s ? (c - s) * Duration(milliseconds(200)) : Duration::zero();
        const Duration due = c > s ? slow : c * Duration(milliseconds(20));
        EXPECT_GE(began, due) << "s " << s << " rank " << r << " step " << c;
        EXPECT_LE(began, due + milliseconds(5) * (c + 1)) << "s " << s << " rank " << r << " " << c;
      }
    }
  }
}

// An application that hangs while its process lives: named and evicted by those who wait for it.
TEST(FreeJob, ARankThatDoesNotStepIsEvictedByThoseWhoWait) {
  for (const char* policy : {"pace=ssp:1", "pace=async"}) {
    auto job = free_config(policy, 4);
    job.rounds = 6;
    job.compute[2] = std::chrono::hours(2);
    const auto out = run_free(job, initial(4, 3'000), dyadic_step);
    ASSERT_TRUE(out.result) << out.result.error().message;
    EXPECT_FALSE(out.result->timed_out) << policy;
    EXPECT_EQ(out.result->failed_ranks, std::vector<Rank>{2}) << policy;
    EXPECT_NE(out.result->errors[2].find("made no progress"), std::string::npos);
    for (const Rank r : {0U, 1U, 3U}) {
      EXPECT_EQ(out.result->errors[r], "") << policy;
      EXPECT_EQ(out.log.begin_of(r, 6) == kNever, false) << policy;
      EXPECT_LT(worst_replayed(out, r), 1e-5);
      // Three timeouts of waiting, not more than one of finding out.
      EXPECT_LT(out.log.begin_of(r, 6) - TimePoint(), seconds(5));
    }
  }
}

TEST(FreeJob, ADeadRankStopsCounting) {
  for (const char* policy : {"pace=ssp:2", "select=selmcast:2 groups=sender pace=ssp:0",
                             "select=selmcast:2 groups=sender pace=async"}) {
    auto job = free_config(policy, 5);
    job.rounds = 30;
    const auto out = run_free(job, initial(5, 20'000), dyadic_step, [](SimJob& sim) {
      sim.at(TimePoint(milliseconds(52)), [](SimJob& j) { j.kill(1, milliseconds(30)); });
    });
    ASSERT_TRUE(out.result) << out.result.error().message;
    EXPECT_FALSE(out.result->timed_out) << policy;
    EXPECT_EQ(out.result->failed_ranks, std::vector<Rank>{1}) << policy;
    EXPECT_EQ(out.result->plan.epoch, 2U) << policy;
    for (const Rank r : {0U, 2U, 3U, 4U}) {
      EXPECT_EQ(out.result->errors[r], "") << policy;
      EXPECT_EQ(out.result->reports[r].back().epoch, 2U) << policy;
      EXPECT_LT(worst_replayed(out, r), 1e-5);
    }
  }
}

// Ranks go over to the new epoch between multicasts of their own, so a long one of the old epoch
// goes on among ranks that have gone over: nobody is given up but the dead.
TEST(FreeJob, MulticastsOfTheOldEpochEndAmongThoseWhoHaveLeftIt) {
  for (const char* policy : {"pace=async", "pace=ssp:2"}) {
    auto job = free_config(policy, 5);
    job.rounds = 30;
    for (std::size_t r = 0; r < 5; ++r) job.compute[r] = milliseconds(4 + 3 * r);
    const auto out = run_free(job, initial(5, 200'000), dyadic_step, [](SimJob& sim) {
      sim.at(TimePoint(milliseconds(95)), [](SimJob& j) { j.kill(1, milliseconds(2)); });
    });
    ASSERT_TRUE(out.result) << out.result.error().message;
    EXPECT_FALSE(out.result->timed_out) << policy;
    EXPECT_EQ(out.result->failed_ranks, std::vector<Rank>{1}) << policy;
    for (const Rank r : {0U, 2U, 3U, 4U}) {
      EXPECT_EQ(out.result->errors[r], "") << policy;
      for (const auto& report : out.result->reports[r]) {
        for (const Rank lost : report.given_up) EXPECT_EQ(lost, 1U) << policy;
        // Everyone whom the epoch's plan names got all of it, or is dead.
        const std::size_t others = report.epoch == 1 ? 4 : 3;
        EXPECT_EQ(report.receivers.size() + report.given_up.size(), others) << policy;
      }
      EXPECT_LT(worst_replayed(out, r), 1e-5);
    }
  }
}

}  // namespace
}  // namespace selmcast
