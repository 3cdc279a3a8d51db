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
                                         "select=selmcast:2 groups=sender:1",
                                         "select=selmcast:3,0 groups=sender:2",
                                         "select=selmcast:2 route=unicast groups=sender"));

/// Memberships of every round of a calm job under a join budget, in closed form: c senders each, of
/// which b are others in the next round.
void check_memberships(SimJobConfig job_config, std::uint32_t c, std::uint32_t b) {
  const auto n = job_config.network.links.size();
  auto parameters = initial(n, 200'000);
  SimJob job(job_config, parameters);
  const auto result = job.run();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->plan.joins_per_round_max, b);
  EXPECT_EQ(result->plan.group_entries_max, c + b);
  EXPECT_EQ(result->plan.joins, n * c);
  EXPECT_EQ(result->plan.k, 1 + (n - 1 - c + b - 1) / b);
  for (std::size_t r = 0; r < n; ++r) {
    ASSERT_EQ(result->reports[r].size(), job_config.rounds) << result->errors[r];
    for (const auto& report : result->reports[r]) {
      EXPECT_EQ(report.foreign_frames, 0U);
      EXPECT_EQ(report.receivers.size(), c);
      EXPECT_TRUE(report.verified);
      // The first joins what it needs and, as all do, b for the next, and leaves b.
      EXPECT_EQ(report.membership_changes, report.round == 0 ? c + 2 * b : 2 * b);
    }
  }
}

TEST(Job, MembershipsStayWithinTheJoinBudget) {
  auto job = config("select=selmcast:2 groups=sender:1", 5);
  job.rounds = 14;  // More than three cycles of four rounds.
  check_memberships(job, 2, 1);
  job = config("select=selmcast:3 groups=sender:2", 13);
  job.rounds = 20;  // The cycle has six.
  check_memberships(job, 3, 2);
  for (auto& link : job.network.links) link.loss = 0.02;
  job.network.join_settle = std::chrono::milliseconds(3);  // Longer than half a round.
  check_memberships(job, 3, 2);
}

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
