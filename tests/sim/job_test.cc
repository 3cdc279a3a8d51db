// Whole jobs in virtual time against an independent computation of the gossip mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sync/sim_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<std::vector<float>> initial(std::size_t ranks, std::size_t count) {
  std::vector<std::vector<float>> out(ranks, std::vector<float>(count));
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      out[r][i] = static_cast<float>((1000003 * r + 7919 * i + 5) % 1024) / 1024.0F;
    }
  }
  return out;
}

SimJobConfig config(const std::string& policy, std::size_t ranks, Kbps rate = 1'000'000) {
  SimJobConfig out;
  auto parsed = parse_policy(policy);
  EXPECT_TRUE(parsed) << parsed.error().message;
  out.policy = *parsed;
  SimLink link;
  link.tx_kbps = link.rx_kbps = rate;
  out.network.links.assign(ranks, link);
  out.tx_kbps.assign(ranks, rate);
  out.rx_kbps.assign(ranks, rate);
  return out;
}

// Round by round in double precision from the receiver sets alone: knows nothing of the engine.
std::vector<std::vector<double>> expected_average(
    const std::vector<std::vector<float>>& start,
    const std::vector<std::vector<RoundReport>>& reports) {
  std::vector<std::vector<double>> w;
  for (const auto& s : start) w.emplace_back(s.begin(), s.end());
  for (std::size_t round = 0; round < reports[0].size(); ++round) {
    auto next = w;
    std::vector<int> heard(w.size(), 0);
    for (std::size_t s = 0; s < w.size(); ++s) {
      for (const Rank to : reports[s][round].receivers) {
        ++heard[to];
        for (std::size_t i = 0; i < w[s].size(); ++i) next[to][i] += w[s][i];
      }
    }
    for (std::size_t r = 0; r < w.size(); ++r) {
      for (auto& x : next[r]) x /= heard[r] + 1;
    }
    w = next;
  }
  return w;
}

void expect_near(const std::vector<std::vector<float>>& got,
                 const std::vector<std::vector<double>>& want) {
  for (std::size_t r = 0; r < got.size(); ++r) {
    double worst = 0;
    for (std::size_t i = 0; i < got[r].size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[r][i]) - want[r][i]));
    }
    EXPECT_LT(worst, 1e-5) << "rank " << r;
  }
}

void run_and_check(SimJobConfig job_config, std::size_t count, std::size_t least_receivers) {
  const auto start = initial(job_config.network.links.size(), count);
  auto parameters = start;
  SimJob job(job_config, parameters);
  auto result = job.run();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_FALSE(result->timed_out);
  for (std::size_t r = 0; r < start.size(); ++r) {
    EXPECT_EQ(result->errors[r], "") << "rank " << r;
    ASSERT_EQ(result->reports[r].size(), job_config.rounds);
    for (const auto& report : result->reports[r]) {
      EXPECT_GE(report.receivers.size(), least_receivers);
      EXPECT_EQ(report.foreign_frames, 0U);
      EXPECT_TRUE(report.verified);
    }
  }
  expect_near(parameters, expected_average(start, result->reports));
}

class Policies : public testing::TestWithParam<const char*> {};

TEST_P(Policies, LossFreeAverageMatchesTheReceiverSets) {
  for (const std::size_t ranks : {4U, 5U, 8U}) {
    auto job = config(GetParam(), ranks);
    job.rounds = 5;
    run_and_check(job, 20'001, 1);
  }
}

TEST_P(Policies, LossDuplicationReorderingCorruptionChangeNothing) {
  auto job = config(GetParam(), 6);
  job.rounds = 4;
  for (auto& link : job.network.links) {
    link.loss = 0.05;
    link.duplicate = 0.05;
    link.reorder = 0.05;
    link.corrupt = 0.02;
  }
  run_and_check(job, 50'000, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Policies,
                         testing::Values("select=all", "select=selmcast:2", "select=selmcast:3",
                                         "select=random:2 groups=sender",
                                         "select=selmcast:2 groups=sender",
                                         "select=selmcast:2 route=unicast groups=sender"));

TEST(Job, OneAndTwoWorkers) {
  for (const std::size_t ranks : {1U, 2U}) {
    auto job = config("select=all", ranks);
    job.rounds = 3;
    run_and_check(job, 999, ranks - 1);
  }
}

}  // namespace
}  // namespace selmcast
