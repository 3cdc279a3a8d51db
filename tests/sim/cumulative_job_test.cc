// mix=cumulative over simulated links: nothing is lost or counted twice, whoever hears whom.
#include <gtest/gtest.h>

#include "tests/sim/adding_ones.h"
#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using testing_jobs::adding_ones;
using testing_jobs::config;

constexpr std::size_t kElements = 4'001;

/// What rank r does to element i in step s: whole multiples of 1/8, so that sums are exact.
float step_of(Rank r, std::uint32_t s, std::size_t i) {
  return static_cast<float>(static_cast<int>((r + 1) * (s + 3) + i % 11) % 17 - 8) / 8.0F;
}

class CumulativeJobs : public testing::TestWithParam<const char*> {};

TEST_P(CumulativeJobs, EndWithTheStartAndTheMeanOfAllSteps) {
  constexpr std::uint32_t kRanks = 8, kSteps = 12;  // 8 ranks: dividing is exact, too.
  auto job_config = config(GetParam(), kRanks, 200'000);
  for (auto& link : job_config.network.links) link.loss = 0.03;
  std::vector<std::vector<float>> parameters(kRanks, std::vector<float>(kElements, 2.0F));
  std::vector<double> done(kElements, 0.0);
  SimJob job(job_config, parameters);
  const auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank&, Stepper& stepper) -> Result<void> {
      for (std::uint32_t s = 0; s < kSteps; ++s) {
        for (std::size_t i = 0; i < kElements; ++i) {
          parameters[r][i] += step_of(r, s, i);
          done[i] += static_cast<double>(step_of(r, s, i));  // One application runs at a time.
        }
        if (auto closed = stepper.step(); !closed) return closed.error();
      }
      auto rest = stepper.finish();
      return rest ? Result<void>() : rest.error();
    };
  });
  ASSERT_TRUE(result) << result.error().message;
  for (const auto& error : result->errors) ASSERT_EQ(error, "");
  for (Rank r = 0; r < kRanks; ++r) {
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_EQ(static_cast<double>(parameters[r][i]), 2.0 + done[i] / kRanks)
          << "rank " << r << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CumulativeJobs,
                         testing::Values("mix=cumulative", "select=selmcast:2 mix=cumulative",
                                         "select=selmcast:1,8 mix=cumulative groups=sender",
                                         "select=selmcast:3 pace=periodic:5 mix=cumulative"));

// A rank that dies leaves what each survivor heard of it; the others go on to the end.
TEST(CumulativeJob, SurvivesADeath) {
  constexpr std::uint32_t kRanks = 6, kSteps = 60;
  auto job_config = config("select=selmcast:2 mix=cumulative", kRanks, 200'000);
  job_config.timeout = std::chrono::seconds(1);
  std::vector<std::vector<float>> parameters(kRanks, std::vector<float>(20'001, 0.0F));
  SimJob job(job_config, parameters);
  job.at(TimePoint(std::chrono::milliseconds(5)),
         [](SimJob& j) { j.kill(2, std::chrono::milliseconds(5)); });
  const auto result = job.run([&](Rank r) { return adding_ones(parameters[r], kSteps); });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->failed_ranks, std::vector<Rank>{2});
  for (Rank r = 0; r < kRanks; ++r) {
    if (r == 2) continue;
    ASSERT_EQ(result->errors[r], "");
    for (const float w : parameters[r]) {
      // Five did 60 steps; the sixth between none and 60 of them.
      ASSERT_GE(w, 5 * 60.0F / 6 - 1e-3F);
      ASSERT_LE(w, 60.0F + 1e-3F);
    }
  }
}

}  // namespace
}  // namespace selmcast
