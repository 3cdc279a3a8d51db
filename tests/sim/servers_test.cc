// Exchanges by way of parameter servers, whole jobs in virtual time.
#include <gtest/gtest.h>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing_jobs::config;
using testing_jobs::initial;

std::vector<double> mean(const std::vector<std::vector<float>>& values,
                         const std::vector<Rank>& without = {}) {
  std::vector<double> out(values[0].size());
  double count = 0;
  for (Rank r = 0; r < values.size(); ++r) {
    if (std::find(without.begin(), without.end(), r) != without.end()) continue;
    ++count;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<double>(values[r][i]);
  }
  for (auto& x : out) x /= count;
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance) << "element " << i;
  }
}

class ServerPolicies : public testing::TestWithParam<const char*> {};

TEST_P(ServerPolicies, EveryRankHoldsTheSameMeanAfterEveryExchange) {
  for (const std::size_t ranks : {1U, 2U, 5U, 8U}) {
    for (const bool lossy : {false, true}) {
      for (const auto element : {WireElement::f32, WireElement::bf16}) {
        auto job_config = config(GetParam(), ranks);
        if (job_config.policy.route.servers > ranks) continue;
        job_config.rounds = 3;
        job_config.element = element;
        if (lossy) {
          for (auto& link : job_config.network.links) {
            link.loss = link.duplicate = link.reorder = 0.05;
          }
        }
        const auto start = initial(ranks, 30'011);
        auto parameters = start;
        SimJob job(job_config, parameters);
        const auto result = job.run();
        ASSERT_TRUE(result) << result.error().message;
        for (std::size_t r = 0; r < ranks; ++r) {
          ASSERT_EQ(result->errors[r], "");
          ASSERT_EQ(result->reports[r].size(), 3U);
          for (const auto& report : result->reports[r]) {
            EXPECT_TRUE(report.verified);
            EXPECT_EQ(report.foreign_frames, 0U);
          }
          EXPECT_EQ(parameters[r], parameters[0]) << "rank " << r;
        }
        expect_near(parameters[0], mean(start), element == WireElement::f32 ? 1e-6 : 0x1p-7);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ServerPolicies,
                         testing::Values("route=ps:1", "route=ps:2", "route=ps:3", "route=ps:8",
                                         "mix=sgd route=ps:1", "mix=sgd route=ps:3"));

TEST(Servers, EveryRankSendsItsParametersOnceAndAServerItsShareForAll) {
  auto job_config = config("route=ps:2", 6);
  auto parameters = initial(6, 300'000);
  SimJob job(job_config, parameters);
  const auto result = job.run();
  ASSERT_TRUE(result);
  for (Rank r = 0; r < 6; ++r) {
    // A server keeps its half and sends it to all the others at once when the mean is made.
    const double full = 300'000.0 * 4;
    const auto& report = result->reports[r].at(0);
    EXPECT_NEAR(static_cast<double>(report.tx_first_bytes), full, full * 0.05) << "rank " << r;
    EXPECT_EQ(report.receivers.size(), r < 2 ? 5U : 2U);
  }
}

TEST(Servers, AShareIsHandedOutWhileTheRestOfItIsGathered) {
  // Five ranks at 100 Mbit/s, 2 MB: four of them share the server's link, 25 Mbit/s each. One after
  // the other gathering and handing out would take a quarter more.
  auto job_config = config("route=ps:1", 5, 100'000);
  job_config.rounds = 3;
  auto parameters = initial(5, 500'000);
  SimJob job(job_config, parameters);
  const auto result = job.run();
  ASSERT_TRUE(result);
  const double wire_bits = 2e6 * 8 * (1500.0 + 18) / 1432.0 / 0.95;
  const double expected_ms = wire_bits / 25e3;
  EXPECT_NEAR(result->reports[1].back().ms, expected_ms, 0.05 * expected_ms);
}

TEST(Servers, AnotherRankServesWhenTheServerDies) {
  for (int ms = 1; ms < 40; ms += 3) {
    auto job_config = config("route=ps:1", 5);
    job_config.rounds = 8;
    job_config.network.seed = static_cast<std::uint64_t>(ms);
    const auto start = initial(5, 100'000);
    auto parameters = start;
    SimJob job(job_config, parameters);
    job.at(TimePoint(milliseconds(ms)), [](SimJob& j) { j.kill(0, milliseconds(2)); });
    const auto result = job.run();
    ASSERT_TRUE(result);
    ASSERT_FALSE(result->timed_out) << ms;
    for (Rank r = 1; r < 5; ++r) {
      EXPECT_EQ(result->errors[r], "") << "killed at " << ms << " ms, rank " << r;
      EXPECT_EQ(result->reports[r].size(), 8U);
      EXPECT_TRUE(parameters[r] == parameters[1]) << "killed at " << ms << " ms, rank " << r;
      for (const float x : parameters[r]) ASSERT_TRUE(x >= 0.0F && x < 1.0F);
    }
    EXPECT_EQ(result->failed_ranks, std::vector<Rank>{0});
  }
}

// What the living server gathered is handed out, and no server's own values instead of it.
TEST(Servers, AServersDeathInAnExchangeLosesNobodysPart) {
  int without = 0;
  for (int tenths = 5; tenths < 400; tenths += 7) {
    auto job_config = config("route=ps:2", 6);
    job_config.rounds = 4;
    std::vector<std::vector<float>> parameters;
    for (Rank r = 0; r < 6; ++r) parameters.emplace_back(100'000, static_cast<float>(r));
    SimJob job(job_config, parameters);
    job.at(TimePoint(microseconds(100 * tenths)), [](SimJob& j) { j.kill(0, milliseconds(2)); });
    const auto result = job.run();
    ASSERT_TRUE(result);
    for (Rank r = 1; r < 6; ++r) {
      ASSERT_EQ(result->errors[r], "");
      // The mean of 0..5, or of 1..5 where rank 0's part did not arrive.
      for (const float x : parameters[r]) ASSERT_TRUE(x == 2.5F || x == 3.0F) << tenths << " " << x;
      without += std::count(parameters[r].begin(), parameters[r].end(), 3.0F) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(without, 20) << "few kills fell into an exchange";
}

TEST(Servers, AWorkersDeathLeavesTheOthersEqual) {
  for (int ms = 1; ms < 40; ms += 3) {
    auto job_config = config("route=ps:2", 6);
    job_config.rounds = 6;
    const auto start = initial(6, 100'000);
    auto parameters = start;
    SimJob job(job_config, parameters);
    job.at(TimePoint(milliseconds(ms)), [](SimJob& j) { j.kill(4, milliseconds(2)); });
    const auto result = job.run();
    ASSERT_TRUE(result);
    for (const Rank r : {0U, 1U, 2U, 3U, 5U}) {
      EXPECT_EQ(result->errors[r], "");
      EXPECT_EQ(parameters[r], parameters[0]);
    }
  }
}

}  // namespace
}  // namespace selmcast
