// Steps of applications over simulated links: how long they take, and what survives a death.
#include <gtest/gtest.h>

#include "sync/steps/stage_exchange.h"
#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing_jobs::config;
using testing_jobs::initial;
using Milliseconds = std::chrono::duration<double, std::milli>;

/// Milliseconds per step in the steady state: ranks that compute for `compute` and change nothing.
double step_ms(const std::string& policy, Duration compute, Kbps rate, std::size_t elements,
               std::size_t ranks = 4) {
  auto job_config = config(policy, ranks, rate);
  auto parameters = initial(ranks, elements);
  SimJob job(job_config, parameters);
  constexpr int kFirst = 10, kLast = 22;
  TimePoint from{}, to{};
  const auto result = job.run([&](Rank) -> SimJob::Application {
    return [&](SimRank& rank, Stepper& stepper) -> Result<void> {
      for (int step = 0; step < kLast; ++step) {
        if (rank.rank() == 0 && step == kFirst) from = rank.now();
        rank.compute(compute);
        if (auto done = stepper.step(); !done) return done.error();
      }
      if (rank.rank() == 0) to = rank.now();
      auto rest = stepper.finish();
      return rest ? Result<void>() : rest.error();
    };
  });
  EXPECT_TRUE(result);
  for (const auto& error : result->errors) EXPECT_EQ(error, "");
  return Milliseconds(to - from).count() / (kLast - kFirst);
}

/// Of the whole model from every rank to all three others: each hears three senders at once. Frames
/// of 1432 bytes of payload are 1500 + 18 on the wire, and the plan leaves 5 % of the rate free.
double model_ms(Kbps rate, std::size_t elements) {
  return static_cast<double>(elements) * 4 * 8 * 1518 / 1432 / 0.95 /
         (static_cast<double>(rate) / 3);
}

// OSP's (ICPP 2023) time of a step: T = Tc + s Tm + max(0, (1 - s) Tm - Tc).
TEST(Steps, TwoStagesTakeAsLongAsTheFormulaSays) {
  constexpr Kbps kRate = 200'000;
  constexpr std::size_t kElements = 100'000;
  const double tm = model_ms(kRate, kElements);
  for (const auto& [ratio, s] :
       {std::pair{1.0, 0.1}, {0.5, 0.5}, {2.0, 0.25}, {0.25, 0.0}, {1.0, 1.0}}) {
    const double tc = ratio * tm;
    const double want = tc + s * tm + std::max(0.0, (1 - s) * tm - tc);
    const auto compute = std::chrono::duration_cast<Duration>(Milliseconds(tc));
    std::string policy = "osp2 pace=stages:" + std::to_string(s);
    const double got = step_ms(policy, compute, kRate, kElements);
    EXPECT_NEAR(got, want, 0.05 * want) << "Tc / Tm = " << ratio << ", s = " << s;
  }
}

TEST(Steps, BspComputesAndThenExchanges) {
  const double tm = model_ms(200'000, 100'000);
  const double got = step_ms("pace=bsp", milliseconds(20), 200'000, 100'000);
  EXPECT_NEAR(got, 20 + tm, 0.05 * (20 + tm));
}

TEST(Steps, OverlapHidesWhatIsShorter) {
  const double tm = model_ms(200'000, 100'000);
  // A step of 30 ms is shorter than an exchange: one exchange after the other, two steps or one in
  // each. A longer step hides the exchange.
  const double longer = step_ms("osp", milliseconds(200), 200'000, 100'000);
  EXPECT_NEAR(longer, 200, 2);
  EXPECT_LT(tm, 200);
  const double capped = step_ms("osp pace=overlap:1", milliseconds(20), 200'000, 100'000);
  EXPECT_NEAR(capped, tm, 0.05 * tm);
}

// The share that waits behind the barrier settles where the rest just fits into the computing.
TEST(Steps, TheShareOfTheFirstStageAdaptsToTheComputing) {
  const double tm = model_ms(200'000, 100'000);
  for (const double ratio : {0.4, 0.7}) {
    const auto compute = std::chrono::duration_cast<Duration>(Milliseconds(ratio * tm));
    auto job_config = config("osp2", 4, 200'000);
    auto parameters = initial(4, 100'000);
    SimJob job(job_config, parameters);
    double sum = 0;
    const auto result = job.run([&](Rank) -> SimJob::Application {
      return [&](SimRank& rank, Stepper& stepper) -> Result<void> {
        for (int step = 0; step < 70; ++step) {
          rank.compute(compute);
          if (auto done = stepper.step(); !done) return done.error();
          if (rank.rank() == 0 && step >= 45) sum += stepper.stages()->share() / 25;
        }
        auto rest = stepper.finish();
        return rest ? Result<void>() : rest.error();
      };
    });
    ASSERT_TRUE(result);
    for (const auto& error : result->errors) EXPECT_EQ(error, "");
    EXPECT_NEAR(1 - sum, ratio, 0.08);
  }
}

/// What a rank does to its parameters in one step: known without the parameters.
float change(Rank rank, std::uint32_t step, std::size_t element) {
  return static_cast<float>((rank * 31 + step * 17 + element * 7) % 65) / 256.0F - 0.125F;
}

class Systems : public testing::TestWithParam<const char*> {};

// Loss, different speeds: at the end all ranks hold the start plus the mean of all that was done.
TEST_P(Systems, NothingIsLostOrCountedTwice) {
  constexpr std::uint32_t kSteps = 25;
  constexpr std::size_t kElements = 3000;
  constexpr Rank kRanks = 5;
  auto job_config = config(GetParam(), kRanks, 100'000);
  for (auto& link : job_config.network.links) link.loss = link.duplicate = link.reorder = 0.03;
  std::vector<std::vector<float>> parameters(kRanks, std::vector<float>(kElements, 0.25F));
  std::vector<double> done(kElements, 0.25);
  for (Rank r = 0; r < kRanks; ++r) {
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < kElements; ++i) {
        done[i] += static_cast<double>(change(r, step, i)) / kRanks;
      }
    }
  }
  SimJob job(job_config, parameters);
  const auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank& rank, Stepper& stepper) -> Result<void> {
      for (std::uint32_t step = 0; step < kSteps; ++step) {
        rank.compute(microseconds(300 * (r + 1)));
        for (std::size_t i = 0; i < kElements; ++i) parameters[r][i] += change(r, step, i);
        if (auto ok = stepper.step(); !ok) return ok.error();
      }
      auto rest = stepper.finish();
      return rest ? Result<void>() : rest.error();
    };
  });
  ASSERT_TRUE(result);
  for (Rank r = 0; r < kRanks; ++r) {
    ASSERT_EQ(result->errors[r], "");
    for (std::size_t i = 0; i < kElements; ++i) {
      ASSERT_NEAR(static_cast<double>(parameters[r][i]), done[i], 2e-6) << "rank " << r;
    }
  }
}

// A rank dies at any moment: the others go on, end, and hold the same parameters.
TEST_P(Systems, SurvivorsEndWithEqualParameters) {
  for (int ms = 1; ms < 60; ms += 4) {
    auto job_config = config(GetParam(), 5, 100'000);
    job_config.timeout = std::chrono::seconds(1);
    job_config.network.seed = static_cast<std::uint64_t>(ms);
    std::vector<std::vector<float>> parameters(5, std::vector<float>(3000, 0.0F));
    SimJob job(job_config, parameters);
    const Rank victim = static_cast<Rank>(ms / 4 % 5);
    job.at(TimePoint(milliseconds(ms)), [victim](SimJob& j) { j.kill(victim, milliseconds(2)); });
    const auto result = job.run([&](Rank r) -> SimJob::Application {
      return [&, r](SimRank& rank, Stepper& stepper) -> Result<void> {
        for (std::uint32_t step = 0; step < 20; ++step) {
          rank.compute(microseconds(700));
          for (std::size_t i = 0; i < 3000; ++i) parameters[r][i] += change(r, step, i);
          if (auto ok = stepper.step(); !ok) return ok.error();
        }
        auto rest = stepper.finish();
        return rest ? Result<void>() : rest.error();
      };
    });
    ASSERT_TRUE(result);
    ASSERT_FALSE(result->timed_out) << "killed at " << ms;
    const Rank first = victim == 0 ? 1 : 0;
    for (Rank r = 0; r < 5; ++r) {
      if (r == victim) continue;
      ASSERT_EQ(result->errors[r], "") << "rank " << victim << " killed at " << ms;
      for (std::size_t i = 0; i < 3000; ++i) {
        ASSERT_NEAR(parameters[r][i], parameters[first][i], 1e-5F)
            << "rank " << victim << " killed at " << ms << ", rank " << r << ", element " << i;
      }
    }
  }
}

// Nobody knows which round is the last until it comes. A rank that dies just then may have been
// heard by some of the others only; no living one may be taken for dead by those.
TEST(OverlapEnds, NobodyIsLeftBehindWhenARankDiesInTheLastRounds) {
  constexpr std::uint32_t kJob = 5;
  int deaths = 0;
  for (const char* const policy : {"osp", "losp", "osp route=ps:1", "osp route=ps:2"}) {
    for (Rank victim = 0; victim < kJob; ++victim) {
      for (int at = 6'000; at < 22'000; at += 370) {
        auto job_config = config(policy, kJob, 50'000);
        job_config.timeout = milliseconds(300);
        std::vector<std::vector<float>> parameters(kJob, std::vector<float>(3000, 0.0F));
        job_config.deadline = std::chrono::seconds(20);
        SimJob job(job_config, parameters);
        job.at(TimePoint(microseconds(at)),
               [victim](SimJob& j) { j.kill(victim, milliseconds(2)); });
        const auto result = job.run([&](Rank r) -> SimJob::Application {
          return [&, r](SimRank& rank, Stepper& stepper) -> Result<void> {
            for (std::uint32_t step = 0; step < 8 + 2 * r; ++step) {
              rank.compute(microseconds(700));
              for (auto& w : parameters[r]) w += 1.0F;
              if (auto ok = stepper.step(); !ok) return ok.error();
            }
            auto rest = stepper.finish();
            return rest ? Result<void>() : rest.error();
          };
        });
        ASSERT_TRUE(result);
        ASSERT_FALSE(result->timed_out)
            << policy << ": rank " << victim << " killed at " << at << " us";
        for (Rank r = 0; r < kJob; ++r) {
          if (r == victim) continue;
          ASSERT_EQ(result->errors[r], "")
              << policy << ": rank " << victim << " killed at " << at << " us, rank " << r;
        }
        for (const Rank lost : result->failed_ranks) EXPECT_EQ(lost, victim);
        deaths += result->failed_ranks.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(deaths, 200) << "most kills came after the end";
}

INSTANTIATE_TEST_SUITE_P(All, Systems,
                         testing::Values("osp", "losp", "osp2", "osp2 pace=stages:0.3", "slim",
                                         "losp route=ps:1", "osp2 route=ps:2", "slim route=ps:2"));

}  // namespace
}  // namespace selmcast
