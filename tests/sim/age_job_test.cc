// Whole jobs under mix=age against an independent computation with exact integer credits.
#include <gtest/gtest.h>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using testing_jobs::initial;
using testing_jobs::worst_difference;

SimJobConfig age_config(const std::string& policy, std::size_t ranks) {
  SimJobConfig out;
  auto parsed = parse_policy(policy);
  EXPECT_TRUE(parsed) << parsed.error().message;
  out.policy = *parsed;
  for (std::size_t r = 0; r < ranks; ++r) {
    SimLink link;
    link.tx_kbps = link.rx_kbps = 200'000 * (1 + 3 * (r % 3));  // So that in-degrees differ.
    out.network.links.push_back(link);
    out.tx_kbps.push_back(link.tx_kbps);
    out.rx_kbps.push_back(link.rx_kbps);
  }
  return out;
}

/// From the receiver sets alone: rational credits of pairs in units of gamma / n, in double.
std::vector<std::vector<double>> expected_age(const std::vector<std::vector<float>>& start,
                                              const std::vector<std::vector<RoundReport>>& reports,
                                              double gamma) {
  const std::size_t n = start.size();
  std::vector<std::vector<double>> w;
  for (const auto& s : start) w.emplace_back(s.begin(), s.end());
  std::vector<std::vector<double>> credit(n, std::vector<double>(n, 0.0));
  const double cap = 1.0 - 1.0 / static_cast<double>(n);
  for (std::size_t round = 0; round < reports[0].size(); ++round) {
    std::vector<std::vector<Rank>> heard(n);
    for (Rank s = 0; s < n; ++s) {
      for (const Rank to : reports[s][round].receivers) heard[to].push_back(s);
    }
    auto next = w;
    for (std::size_t r = 0; r < n; ++r) {
      for (auto& c : credit[r]) c += gamma / static_cast<double>(n);
      double sum = 0.0;
      for (const Rank s : heard[r]) sum += std::min(credit[r][s], cap);
      const double factor = sum > cap ? cap / sum : 1.0;
      for (const Rank s : heard[r]) {
        const double weight = std::min(credit[r][s], cap) * factor;
        credit[r][s] -= weight;
        for (std::size_t i = 0; i < w[r].size(); ++i) next[r][i] += weight * (w[s][i] - w[r][i]);
      }
    }
    w = next;
  }
  return w;
}

class AgeJobs : public testing::TestWithParam<const char*> {};

TEST_P(AgeJobs, FollowTheReceiverSetsWhateverIsLost) {
  for (const bool deterministic : {false, true}) {
    for (const auto element : {WireElement::f32, WireElement::bf16}) {
      auto config = age_config(GetParam(), 6);
      config.rounds = 12;
      config.deterministic = deterministic;
      config.element = element;
      for (auto& link : config.network.links) link.loss = 0.03;
      const auto start = initial(6, 4'001);
      auto parameters = start;
      SimJob job(config, parameters);
      const auto result = job.run();
      ASSERT_TRUE(result) << result.error().message;
      for (std::size_t r = 0; r < 6; ++r) ASSERT_EQ(result->errors[r], "");
      const auto want = expected_age(start, result->reports, config.policy.mix.gamma);
      EXPECT_LT(worst_difference(parameters, want), testing_jobs::tolerance(config));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AgeJobs,
                         testing::Values("mix=age", "mix=age:1", "select=selmcast:2 mix=age",
                                         "select=selmcast:1 mix=age:0.5 groups=sender",
                                         "select=random:2 mix=age"));

// n = 2, gamma = 1: half of the difference each round, so both hold the mean after one.
TEST(AgeJob, TwoRanksMeetInTheMiddle) {
  auto config = age_config("mix=age:1", 2);
  std::vector<std::vector<float>> parameters{{0.0F, 8.0F}, {1.0F, -2.0F}};
  SimJob job(config, parameters);
  ASSERT_TRUE(job.run());
  for (const auto& rank : parameters) EXPECT_EQ(rank, (std::vector<float>{0.5F, 3.0F}));
}

// The survivors go on under the next view, in which a pair earns gamma over one rank less, and
// come together within the range of what there was.
TEST(AgeJob, SurvivesDeaths) {
  for (const char* policy : {"mix=age", "select=selmcast:2 mix=age", "select=random:2 mix=age"}) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      auto config = age_config(policy, 6);
      config.rounds = 60;
      config.timeout = std::chrono::seconds(1);
      config.seed = config.network.seed = seed;
      auto parameters = initial(6, 20'001);
      SimJob job(config, parameters);
      const auto at = std::chrono::microseconds(500 + 1700 * seed);
      job.at(TimePoint(at), [](SimJob& j) { j.kill(2, std::chrono::milliseconds(5)); });
      const auto result = job.run();
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_FALSE(result->timed_out);
      EXPECT_EQ(result->failed_ranks, std::vector<Rank>{2});
      double spread = 0.0;
      for (Rank r = 0; r < 6; ++r) {
        if (r == 2) continue;
        ASSERT_EQ(result->errors[r], "") << policy;
        ASSERT_EQ(result->reports[r].size(), 60U);
        EXPECT_GT(result->reports[r].back().epoch, 1U);
        for (std::size_t i = 0; i < parameters[r].size(); ++i) {
          ASSERT_GE(parameters[r][i], -1e-5F);
          ASSERT_LE(parameters[r][i], 1.0F + 1e-5F);
          spread =
              std::max(spread, static_cast<double>(std::abs(parameters[r][i] - parameters[0][i])));
        }
      }
      EXPECT_LT(spread, 1e-3) << policy;
    }
  }
}

}  // namespace
}  // namespace selmcast
