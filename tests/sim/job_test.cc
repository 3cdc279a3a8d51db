// Whole jobs in virtual time against an independent computation of the gossip mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using testing_jobs::config;
using testing_jobs::expected_average;
using testing_jobs::initial;
using testing_jobs::tolerance;
using testing_jobs::worst_difference;

/// Returns what all ranks sent in all rounds.
std::uint64_t run_and_check(SimJobConfig job_config, std::size_t count,
                            std::size_t least_receivers) {
  const auto start = initial(job_config.network.links.size(), count);
  auto parameters = start;
  SimJob job(job_config, parameters);
  auto result = job.run();
  EXPECT_TRUE(result) << result.error().message;
  if (!result) return 0;
  EXPECT_FALSE(result->timed_out);
  std::uint64_t sent = 0;
  for (std::size_t r = 0; r < start.size(); ++r) {
    EXPECT_EQ(result->errors[r], "") << "rank " << r;
    EXPECT_EQ(result->reports[r].size(), job_config.rounds);
    for (const auto& report : result->reports[r]) {
      EXPECT_GE(report.receivers.size(), least_receivers);
      EXPECT_EQ(report.foreign_frames, 0U);
      EXPECT_TRUE(report.verified);
      sent += report.tx_bytes;
    }
  }
  EXPECT_LT(worst_difference(parameters, expected_average(start, result->reports)),
            tolerance(job_config));
  return sent;
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

TEST(Job, SixteenBitElementsHalveWhatIsSent) {
  for (const char* policy : {"select=all", "select=selmcast:2 route=unicast groups=sender"}) {
    auto job = config(policy, 4);
    job.rounds = 3;
    for (auto& link : job.network.links) link.loss = 0.02;
    const auto whole = static_cast<double>(run_and_check(job, 200'001, 2));
    for (const auto element : {WireElement::bf16, WireElement::f16}) {
      job.element = element;
      const auto sent = static_cast<double>(run_and_check(job, 200'001, 2));
      EXPECT_NEAR(sent / whole, 0.5, 0.025) << policy;
    }
  }
}

TEST(Job, GradientMeansAreEqualOnAllRanks) {
  for (const auto element : {WireElement::bf16, WireElement::f16}) {
    auto job_config = config("select=all mix=sgd", 4);
    job_config.rounds = 2;
    job_config.element = element;
    job_config.deterministic = true;
    for (auto& link : job_config.network.links) link.loss = 0.02;
    auto parameters = initial(4, 10'001);
    for (auto& rank : parameters) {
      for (auto& x : rank) x = (x - 0.5F) / 3;
    }
    SimJob job(job_config, parameters);
    auto result = job.run();
    ASSERT_TRUE(result) << result.error().message;
    for (std::size_t r = 1; r < 4; ++r) EXPECT_EQ(parameters[r], parameters[0]);
  }
}

}  // namespace
}  // namespace selmcast
