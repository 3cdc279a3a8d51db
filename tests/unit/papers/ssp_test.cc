#include "tools/papers/ssp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/random.h"
#include "tools/papers/experiment.h"

namespace selmcast {
namespace {

SspConfig equal_workers(std::uint32_t n, std::uint32_t p) {
  SspConfig out;
  out.tx_kbps.assign(n, 40'000'000);
  out.rx_kbps.assign(n, 40'000'000);
  out.p = p;
  out.k = 0;
  out.volume_bits = 4e8;  // 10 ms at full rate.
  out.compute_ms = 100;
  out.horizon_ms = 10'000;
  return out;
}

/// The three schemes of the experiments.
std::vector<SspConfig> schemes(const SspConfig& config) {
  std::vector<SspConfig> out(3, config);
  out[1].own_rates = true;
  out[2].selmcast = false;
  return out;
}

TEST(ComputeTime, HasMeanOneAndTheStatedDeviation) {
  struct Expected {
    ComputeModel model;
    double deviation;
  };
  // Lognormal: sqrt(exp(sigma^2) - 1). ResNet-50: 0.12^2 + 0.6^2 * 0.05 * 0.95, rooted.
  const Expected all[] = {
      {ComputeModel::lstm, std::sqrt(std::exp(0.55 * 0.55) - 1)},
      {ComputeModel::transformer, std::sqrt(std::exp(0.3 * 0.3) - 1)},
      {ComputeModel::resnet50, std::sqrt(0.12 * 0.12 + 0.36 * 0.05 * 0.95)},
      {ComputeModel::constant, 0.0},
  };
  for (const auto& [model, deviation] : all) {
    constexpr std::uint32_t kDraws = 100'000;
    double sum = 0, squares = 0;
    for (std::uint32_t round = 0; round < kDraws; ++round) {
      const double time = compute_time(model, 5, round % 7, round);
      EXPECT_GT(time, 0.0);
      sum += time;
      squares += time * time;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 1.0, 5 * deviation / std::sqrt(kDraws) + 1e-12) << to_string(model);
    EXPECT_NEAR(std::sqrt(std::max(squares / kDraws - mean * mean, 0.0)), deviation, 0.02)
        << to_string(model);
  }
}

// ssp = 0 and equal compute times is BSP: everyone computes 100 ms, then every receiver takes
// p = n-1 copies of 10 ms. The utilisation is 100 / (100 + 10 (n-1)).
TEST(StudySsp, BspOfEqualWorkersIsTheClosedForm) {
  for (auto config : schemes(equal_workers(5, 4))) {
    for (const auto fanout : {Fanout::multicast, Fanout::unicast}) {
      config.ssp = 0;
      config.fanout = fanout;
      config.horizon_ms = 50 * 140 + 0.5;
      const auto got = simulate_ssp(config);
      EXPECT_EQ(got.rounds, std::vector<std::uint32_t>(5, 50));
      EXPECT_NEAR(got.utilisation, (50 * 100 + 0.5) / config.horizon_ms, 1e-6);
      EXPECT_EQ(got.receivers, 4.0);
    }
  }
}

// Unequal links, all to all: the round lasts as long as the largest load per rate, 4 copies into
// the slowest receiver of 10 Gbit/s, 160 ms.
TEST(StudySsp, BspOfUnequalLinksLastsLoadOverRate) {
  for (auto config : schemes(equal_workers(5, 4))) {
    config.rx_kbps = {40'000'000, 20'000'000, 10'000'000, 30'000'000, 40'000'000};
    config.ssp = 0;
    config.horizon_ms = 20 * 260 + 0.5;
    const auto got = simulate_ssp(config);
    EXPECT_EQ(got.rounds, std::vector<std::uint32_t>(5, 20));
  }
}

// One worker takes ten times as long. The others run ahead until they have finished ssp + 1 rounds
// more (the last of which they began ssp rounds ahead), and then wait for it.
TEST(StudySsp, OneStragglerHoldsTheOthersAtTheBound) {
  for (auto config : schemes(equal_workers(4, 3))) {
    config.volume_bits = 1000;  // Sending takes no time to speak of.
    config.compute_scale = {10, 1, 1, 1};
    for (const std::uint32_t ssp : {0U, 1U, 3U}) {
      config.ssp = ssp;
      config.horizon_ms = 9'900;
      const auto got = simulate_ssp(config);
      EXPECT_EQ(got.rounds[0], 9U);
      for (Rank r = 1; r < 4; ++r) EXPECT_EQ(got.rounds[r], 9 + ssp + 1);
      EXPECT_EQ(got.most_ahead, ssp);
      EXPECT_NEAR(got.utilisation, (9'900 + 3 * 100.0 * (9 + ssp + 1)) / (4 * 9'900), 1e-3);
    }
    config.ssp = SspConfig::kNoBound;
    config.horizon_ms = 9'950;
    EXPECT_EQ(simulate_ssp(config).rounds, (std::vector<std::uint32_t>{9, 99, 99, 99}));
  }
}

TEST(StudySsp, ForcedPairsAreServedWithinKPlusOneRounds) {
  for (auto config : schemes(equal_workers(12, 2))) {
    SplitMix64 random(5);
    for (auto& rate : config.rx_kbps) rate += random.below(20'000'000);
    config.model = ComputeModel::lstm;
    for (const std::uint32_t k : {1U, 2U, 5U}) {
      for (const std::uint32_t ssp : {0U, 4U}) {
        config.k = k;
        config.ssp = ssp;
        const auto got = simulate_ssp(config);
        EXPECT_GE(*std::min_element(got.rounds.begin(), got.rounds.end()), 10U);
        EXPECT_LE(got.worst_gap, k + 1);
        EXPECT_GE(got.receivers, 2.0);
        EXPECT_EQ(got.added_again, 0U);
        EXPECT_LE(got.most_ahead, ssp);
      }
    }
  }
}

TEST(StudySsp, DroppedReceiversStayDroppedUnderJitterAndUnicast) {
  auto all = schemes(equal_workers(10, 3));
  all.push_back(all.front());
  all.back().fanout = Fanout::unicast;
  for (auto& config : all) {
    config.jitter = 0.7;
    config.k = 4;
    config.volume_bits = 2e9;
    config.model = ComputeModel::transformer;
    config.seed = 3;
    const auto got = simulate_ssp(config);
    EXPECT_EQ(got.added_again, 0U);
    EXPECT_LE(got.worst_gap, 5U);
    EXPECT_GE(got.receivers, 3.0);
    const auto again = simulate_ssp(config);
    EXPECT_EQ(again.rounds, got.rounds);
    EXPECT_EQ(again.utilisation, got.utilisation);
  }
}

// What the papers claim of SSP, in direction: more receivers than Orpheus has, which has p (0.3 n);
// and with rates of their own a better utilisation. Half a simulated minute of each.
TEST(StudySsp, TheExperimentShowsTheClaimsAndRepeats) {
  StudyOptions options;
  options.minutes = 0.5;
  options.trials = 1;
  std::uint64_t calls = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, 18U);
  };
  const auto all = ssp_experiments();
  ASSERT_EQ(all.front().name, "ssp");
  const auto table = all.front().run(options);
  options.progress = nullptr;
  const auto again = all.front().run(options);
  EXPECT_EQ(calls, 18U);
  std::map<std::string, double> found;
  for (std::size_t at = 0; at < table->points.size(); ++at) {
    const auto& point = table->points[at];
    ASSERT_EQ(point.ours.size(), 2U);
    EXPECT_EQ(point.ours[0].mean, again->points[at].ours[0].mean);
    EXPECT_EQ(point.ours[1].mean, again->points[at].ours[1].mean);
    found[point.setting + " " + point.method + " " + point.metric] = point.ours[1].mean;
  }
  for (const std::string model : {"LSTM", "Transformer", "ResNet-50"}) {
    EXPECT_NEAR(found.at(model + " orpheus receivers"), 0.3, 0.001);
    EXPECT_GT(found.at(model + " published receivers"), 0.36);
    EXPECT_GT(found.at(model + " published, own rates receivers"), 0.36);
    EXPECT_GT(found.at(model + " published, own rates utilisation"),
              found.at(model + " orpheus utilisation"));
  }
}

// Orpheus without k: exactly p receivers.
TEST(StudySsp, OrpheusHasExactlyP) {
  auto config = equal_workers(9, 3);
  config.selmcast = false;
  config.model = ComputeModel::resnet50;
  EXPECT_EQ(simulate_ssp(config).receivers, 3.0);
}

}  // namespace
}  // namespace selmcast
