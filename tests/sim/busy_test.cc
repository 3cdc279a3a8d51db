// pace=busy (WBSP, worker-busy synchronous parallel: Yang, Hu, Liu, Jin and others, Parallel
// Computing 121, 103092, 2024), whole jobs in virtual time.
#include <gtest/gtest.h>

#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using namespace testing_jobs;

constexpr int kStepMs[] = {1, 1, 1, 4};
constexpr std::size_t kValues = 500;

struct Busy {
  std::uint64_t steps = 0;  ///< Of all ranks.
  Duration waited{};        ///< In step(), of all ranks.
  std::vector<std::vector<float>> end;
};

/// Every rank steps, adding 1 to each value, until `until`; under a pace with rounds of all, until
/// the slowest has come there.
Busy play(const char* policy, TimePoint until) {
  auto job_config = config(policy, 4, 10'000'000);
  Busy out;
  out.end.assign(4, std::vector<float>(kValues, 0.0F));
  const auto slowest = static_cast<std::uint32_t>(until.time_since_epoch() / milliseconds(4));
  const bool alone = job_config.policy.has(Trait::uneven_steps);
  SimJob job(job_config, out.end);
  const auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank& rank, Stepper& stepper) -> Result<void> {
      for (std::uint32_t step = 0; alone ? rank.now() < until : step < slowest; ++step) {
        rank.compute(milliseconds(kStepMs[r]));
        for (float& value : out.end[r]) value += 1.0F;
        const TimePoint before = rank.now();
        if (auto ok = stepper.step(); !ok) return ok.error();
        out.waited += rank.now() - before;
        ++out.steps;
      }
      auto rest = stepper.finish();
      return rest ? Result<void>() : rest.error();
    };
  });
  EXPECT_TRUE(result);
  for (const auto& error : result->errors) EXPECT_EQ(error, "");
  return out;
}

TEST(Busy, DoesThirteenGradientsWhereBspDoesFour) {
  const TimePoint until(milliseconds(400));
  const Busy busy = play("pace=busy mix=compensate:0", until),
             bsp = play("select=all mix=average", until);
  // In 4 ms: four of each fast rank and one of the slow one, beside one of each.
  EXPECT_NEAR(static_cast<double>(busy.steps) / static_cast<double>(bsp.steps), 3.25, 0.03);
  EXPECT_EQ(busy.waited, Duration::zero()) << "a worker waited";
  EXPECT_GT(bsp.waited, milliseconds(3 * 3 * 90));
}

TEST(Busy, AllHoldTheSameModelInTheEndAndNoStepIsLost) {
  const Busy busy = play("pace=busy mix=compensate:0", TimePoint(milliseconds(400)));
  for (const auto& model : busy.end) {
    EXPECT_EQ(model, busy.end[0]);
    // Each rank's steps move the agreed model by a quarter of what they did.
    EXPECT_NEAR(static_cast<double>(model[0]), static_cast<double>(busy.steps) / 4, 0.01);
  }
}

}  // namespace
}  // namespace selmcast
