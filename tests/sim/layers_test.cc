// Layers that are handed over one by one: P3's example, the mean of every layer, loss and deaths.
#include <gtest/gtest.h>

#include "tests/sim/layer_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing_jobs::gradient;
using testing_jobs::layered;
using testing_jobs::steps;
using testing_jobs::Timing;

/// Time of a step in the steady state, in units of a layer's forward pass. Backward takes two, and
/// the exchange of all layers together `exchange` units, divided as `weights` say.
double step_units(const char* policy, const std::vector<double>& weights, double exchange) {
  constexpr Kbps kRate = 1'000'000;
  constexpr double kUnitMs = 5;
  double sum = 0;
  for (const double w : weights) sum += w;
  // Two ranks hear one another at the whole rate. 1432 bytes of payload are 1518 on the wire, and
  // the plan leaves 5 % of the rate free.
  const double elements = exchange * kUnitMs * kRate * 0.95 * 1432 / 1518 / 32;
  std::vector<std::size_t> layers;
  std::size_t all = 0;
  for (const double w : weights) {
    layers.push_back(static_cast<std::size_t>(elements * w / sum));
    all += layers.back();
  }
  auto job_config = layered(policy, 2, kRate, layers);
  std::vector<std::vector<float>> parameters(2, std::vector<float>(all, 1.0F));
  SimJob job(job_config, parameters);
  const Timing timing{
      std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(kUnitMs)),
      std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(2 * kUnitMs))};
  std::vector<TimePoint> begun;
  const auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank& rank, Stepper&) -> Result<void> {
      return steps(
          rank, 4, layers.size(), timing,
          [&](std::uint32_t, std::size_t l) {
            if (r == 0 && l == layers.size() - 1) begun.push_back(rank.now());
          },
          [](std::uint32_t, std::size_t) {});
    };
  });
  EXPECT_TRUE(result);
  for (const auto& error : result->errors) EXPECT_EQ(error, "");
  const std::chrono::duration<double, std::milli> period = begun.at(3) - begun.at(2);
  return period.count() / kUnitMs;
}

// P3's example (systems of ten layers, forward 1 and backward 2 units each, 30 units of exchange):
// in the order of the backward pass a step takes 42.0 units, by priority 33.1; with a heavy last
// layer 42.0 and 33.0.
TEST(Layers, PriorityBringsTheNextStepForward) {
  const std::vector<double> equal(10, 1.0);
  EXPECT_NEAR(step_units("p3 order=fifo", equal, 30), 42.0, 0.02 * 42.0);
  EXPECT_NEAR(step_units("p3", equal, 30), 33.1, 0.02 * 33.1);
  std::vector<double> heavy(10, 1.0 / 3);
  heavy.back() = 7.0;
  EXPECT_NEAR(step_units("p3 order=fifo", heavy, 30), 42.0, 0.02 * 42.0);
  EXPECT_NEAR(step_units("p3", heavy, 30), 33.0, 0.03 * 33.0);
}

// Where the exchange keeps up with the backward pass there is nothing to gain: only the first
// layer's own exchange is not hidden.
TEST(Layers, PriorityGainsNothingWhereTheNetworkIsFast) {
  const std::vector<double> equal(10, 1.0);
  const double fifo = step_units("p3 order=fifo", equal, 10);
  const double p3 = step_units("p3", equal, 10);
  EXPECT_NEAR(fifo, 31.0, 0.02 * 31.0);
  EXPECT_NEAR(p3, fifo, 0.01 * fifo);
}

class LayerPolicies : public testing::TestWithParam<const char*> {};

TEST_P(LayerPolicies, EveryLayerIsTheMeanOfAllRanksGradients) {
  const std::vector<std::size_t> sizes{1, 700, 3, 20'000, 64};
  std::size_t all = 0;
  for (const auto size : sizes) all += size;
  constexpr Rank kRanks = 4;
  auto job_config = layered(GetParam(), kRanks, 100'000, sizes);
  for (auto& link : job_config.network.links) link.loss = link.duplicate = link.reorder = 0.03;
  std::vector<std::vector<float>> parameters(kRanks, std::vector<float>(all));
  SimJob job(job_config, parameters);
  constexpr std::uint32_t kSteps = 6;
  const auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank& rank, Stepper&) -> Result<void> {
      const auto first_of = [&](std::size_t l) {
        std::size_t at = 0;
        for (std::size_t i = 0; i < l; ++i) at += sizes[i];
        return at;
      };
      const auto check = [&](std::uint32_t step, std::size_t l) {
        if (step == 0) return;
        for (std::size_t i = first_of(l); i < first_of(l) + sizes[l]; ++i) {
          double mean = 0;
          for (Rank s = 0; s < kRanks; ++s) mean += static_cast<double>(gradient(s, step - 1, i));
          ASSERT_NEAR(static_cast<double>(parameters[r][i]), mean / kRanks,
                      job_config.element == WireElement::f32 ? 0.0 : 0.05)
              << "rank " << r << " step " << step << " element " << i;
        }
      };
      return steps(rank, kSteps, sizes.size(), {microseconds(100 * (r + 1)), microseconds(200)},
                   check, [&](std::uint32_t step, std::size_t l) {
                     for (std::size_t i = first_of(l); i < first_of(l) + sizes[l]; ++i) {
                       parameters[r][i] = gradient(r, step, i);
                     }
                   });
    };
  });
  ASSERT_TRUE(result);
  for (const auto& error : result->errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(All, LayerPolicies,
                         testing::Values("p3", "p3 order=fifo", "p3 route=unicast",
                                         "p3 groups=sender"));

TEST(Layers, TheOthersGoOnWhenARankDies) {
  const std::vector<std::size_t> sizes{500, 8000, 30};
  for (int ms = 1; ms < 60; ms += 3) {
    auto job_config = layered("p3", 4, 50'000, sizes);
    job_config.timeout = std::chrono::seconds(1);
    job_config.network.seed = static_cast<std::uint64_t>(ms);
    std::vector<std::vector<float>> parameters(4, std::vector<float>(8530, 1.0F));
    SimJob job(job_config, parameters);
    const Rank victim = static_cast<Rank>(ms % 4);
    job.at(TimePoint(milliseconds(ms)), [victim](SimJob& j) { j.kill(victim, milliseconds(2)); });
    const auto result = job.run([&](Rank) -> SimJob::Application {
      return [&](SimRank& rank, Stepper&) -> Result<void> {
        return steps(
            rank, 8, sizes.size(), {microseconds(300), microseconds(600)},
            [](std::uint32_t, std::size_t) {}, [](std::uint32_t, std::size_t) {});
      };
    });
    ASSERT_TRUE(result);
    ASSERT_FALSE(result->timed_out) << ms;
    for (Rank r = 0; r < 4; ++r) {
      if (r == victim) continue;
      EXPECT_EQ(result->errors[r], "") << "rank " << victim << " killed at " << ms << " ms";
      for (const float x : parameters[r]) ASSERT_EQ(x, 1.0F);
    }
  }
}

}  // namespace
}  // namespace selmcast
