// mix=cumulative over links that put frames in place: how many, and that it changes nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/adding_ones.h"
#include "tests/sim/random_job.h"

namespace selmcast {
namespace {

using testing_jobs::adding_ones;
using testing_jobs::config;
using Rows = std::vector<std::vector<float>>;

/// What rank r does to element i in step s: whole multiples of 1/8, so that sums are exact.
float change_of(Rank r, std::uint32_t s, std::size_t i) {
  return static_cast<float>(static_cast<int>((r + 2) * (s + 1) + i % 13) % 19 - 9) / 8.0F;
}

struct Outcome {
  Rows parameters;
  std::vector<std::vector<RoundReport>> reports;
  SimJobResult job;
};

using Fault = std::function<void(SimJob&)>;

/// `notices`: what each rank's engine has to say at the end.
Outcome run(SimJobConfig config, std::size_t elements, std::uint32_t steps, const Fault& fault = {},
            std::vector<std::string>* notices = nullptr) {
  const auto ranks = config.network.links.size();
  Outcome out{Rows(ranks, std::vector<float>(elements, 2.0F)),
              std::vector<std::vector<RoundReport>>(ranks),
              {}};
  SimJob job(std::move(config), out.parameters);
  if (fault) fault(job);
  auto result = job.run([&](Rank r) -> SimJob::Application {
    return [&, r](SimRank& self, Stepper& stepper) -> Result<void> {
      for (std::uint32_t s = 0; s <= steps; ++s) {
        if (s < steps) {
          for (std::size_t i = 0; i < elements; ++i) out.parameters[r][i] += change_of(r, s, i);
        }
        auto closed = s < steps ? stepper.step() : stepper.finish();
        if (!closed) return closed.error();
        out.reports[r].insert(out.reports[r].end(), closed->begin(), closed->end());
      }
      if (notices != nullptr) (*notices)[r] = self.landing_notice();
      return {};
    };
  });
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  if (result) out.job = std::move(result).value();
  return out;
}

/// Everything is merged: the start and the mean of all steps, in exact numbers.
void expect_mean_of_all(const Outcome& out, std::uint32_t steps) {
  const auto ranks = static_cast<Rank>(out.parameters.size());
  for (const auto& error : out.job.errors) ASSERT_EQ(error, "");
  for (std::size_t i = 0; i < out.parameters[0].size(); ++i) {
    double done = 0.0;
    for (Rank r = 0; r < ranks; ++r) {
      for (std::uint32_t s = 0; s < steps; ++s) done += static_cast<double>(change_of(r, s, i));
    }
    for (Rank r = 0; r < ranks; ++r) {
      ASSERT_EQ(static_cast<double>(out.parameters[r][i]), 2.0 + done / ranks) << r << " " << i;
    }
  }
}

class LandingJobs : public testing::TestWithParam<const char*> {};

// 1432 bytes of payload in a frame: 600 frames a row.
constexpr std::size_t kManyFrames = 600 * 358;

TEST_P(LandingJobs, WithoutLossNearlyAllComesInPlaceAndNothingOfThatIsCopied) {
  auto with = config(GetParam(), 4, 1'000'000);
  with.network.landing_depth = 128;
  const Outcome out = run(with, kManyFrames, 4);
  expect_mean_of_all(out, 4);
  for (const auto& reports : out.reports) {
    for (const auto& round : reports) {
      EXPECT_TRUE(round.verified);
      EXPECT_GT(round.rx_payload_bytes, 0U);
      EXPECT_EQ(round.landed_bytes + round.copied_bytes, round.rx_payload_bytes);
      EXPECT_GE(static_cast<double>(round.landed_bytes),
                0.99 * static_cast<double>(round.rx_payload_bytes));
      EXPECT_EQ(round.misplaced_frames, 0U);
    }
  }
}

TEST_P(LandingJobs, WhateverTheNetworkDoesTheResultIsTheSame) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    auto job = config(GetParam(), 4, 200'000);
    job.seed = job.network.seed = seed;
    for (auto& link : job.network.links) {
      link.loss = 0.03;
      link.duplicate = 0.01 * static_cast<double>(seed % 3);
      link.reorder = 0.02 * static_cast<double>(seed % 2);
      link.corrupt = 0.002;
    }
    if (seed == 6) job.loss = 0.1;
    job.network.landing_depth = 32;
    const Outcome out = run(job, 40'001, 8);
    expect_mean_of_all(out, 8);
    std::uint64_t landed = 0, misplaced = 0;
    for (const auto& reports : out.reports) {
      for (const auto& round : reports) landed += round.landed_frames;
      for (const auto& round : reports) misplaced += round.misplaced_frames;
    }
    EXPECT_GT(landed, 0U);
    EXPECT_GT(misplaced, 0U);
  }
}

// Where losses make most guesses wrong, rounds go without places, up to 32 after one with: a byte
// is copied little more than once then, where wrong guesses cost two to three copies. Once nothing
// is lost any more, frames come in place again.
TEST(LandingJob, LossesDoNotMultiplyCopiesForLong) {
  constexpr std::uint32_t kRounds = 80;
  auto job = config("select=all mix=cumulative", 4, 200'000);
  job.network.landing_depth = 128;
  for (auto& link : job.network.links) link.loss = 0.03;
  std::uint64_t copied = 0, received = 0, last = 0, landed_last = 0;
  SimLink clean = job.network.links.front();
  clean.loss = 0.0;
  const Outcome out = run(job, 100'001, kRounds, [&](SimJob& sim) {
    sim.at(TimePoint(std::chrono::milliseconds(1500)), [clean](SimJob& j) {
      for (Rank r = 0; r < 4; ++r) j.network().set_link(r, clean);
    });
  });
  expect_mean_of_all(out, kRounds);
  for (const auto& reports : out.reports) {
    for (std::size_t i = 4; i < 20; ++i) {
      copied += reports[i].copied_bytes;
      received += reports[i].rx_payload_bytes;
    }
    landed_last += reports.back().landed_bytes;
    last += reports.back().rx_payload_bytes;
  }
  EXPECT_LT(static_cast<double>(copied), 1.5 * static_cast<double>(received));
  EXPECT_GT(static_cast<double>(landed_last), 0.95 * static_cast<double>(last));
}

INSTANTIATE_TEST_SUITE_P(All, LandingJobs,
                         testing::Values("select=all mix=cumulative",
                                         "select=selmcast:2 mix=cumulative",
                                         "select=selmcast:2 mix=cumulative groups=sender"));

// Groups that move from round to round, and copies by unicast, do without.
TEST(LandingJob, WhereGroupsMoveOrThereAreNoneEveryByteIsCopiedOnce) {
  for (const char* policy : {"select=selmcast:2 mix=cumulative groups=sender:1",
                             "select=selmcast:2 mix=cumulative route=unicast"}) {
    auto job = config(policy, 4, 200'000);
    job.network.landing_depth = 32;
    const Outcome out = run(job, 10'001, 3);
    expect_mean_of_all(out, 3);
    for (const auto& reports : out.reports) {
      for (const auto& round : reports) {
        EXPECT_EQ(round.landed_bytes, 0U);
        EXPECT_EQ(round.copied_bytes, round.rx_payload_bytes);
      }
    }
  }
}

// Of the rows (4) and the spare ones (3) the device takes as many as it can: short of rows nothing
// comes in place, short of spare ones what has one does.
TEST(LandingJob, ADeviceThatRefusesRowsCostsCopiesOnly) {
  std::uint64_t landed_before = 0;
  for (const std::uint32_t granted : {0U, 1U, 3U, 4U, 5U, 6U, 7U, 100U}) {
    auto job = config("select=all mix=cumulative", 4, 200'000);
    job.network.landing_depth = 64;
    job.network.landing_regions = granted;
    const Outcome out = run(job, 30'001, 4);
    expect_mean_of_all(out, 4);
    std::uint64_t landed = 0;
    for (const auto& reports : out.reports) {
      for (const auto& round : reports) {
        EXPECT_TRUE(round.verified);
        EXPECT_GT(round.rx_payload_bytes, 0U);
        EXPECT_EQ(round.landed_bytes + round.copied_bytes, round.rx_payload_bytes);
        landed += round.landed_bytes;
      }
    }
    EXPECT_EQ(landed > 0, granted > 4) << granted;
    EXPECT_EQ(landed > landed_before, granted > 4 && granted <= 7) << granted;
    EXPECT_GE(landed, landed_before) << granted;
    landed_before = landed;
  }
}

// Three senders are heard, so three queues serve; with fewer the frames of the others are copied,
// and the engine says of how many groups.
TEST(LandingJob, ADeviceWithFewQueuesCostsCopiesOnly) {
  for (const std::uint32_t queues : {0U, 1U, 2U, 3U, 4U}) {
    auto job = config("select=all mix=cumulative", 4, 200'000);
    job.network.landing_depth = 64;
    job.network.landing_queues = queues;
    std::vector<std::string> notices(4);
    const Outcome out = run(job, 30'001, 4, {}, &notices);
    expect_mean_of_all(out, 4);
    const auto& round = out.reports[0][2];
    const double share =
        static_cast<double>(round.landed_bytes) / static_cast<double>(round.rx_payload_bytes);
    EXPECT_NEAR(share, std::min(queues, 3U) / 3.0, 0.05);
    for (const auto& notice : notices) {
      if (queues >= 3) {
        EXPECT_EQ(notice, "");
      } else {
        EXPECT_THAT(notice, testing::HasSubstr("of " + std::to_string(3 - queues) + " groups"));
      }
    }
  }
}

// A sender that dies in mid-round leaves its row as it was: in contrast to a row that is written
// frame by frame, every element is of the same step.
TEST(LandingJob, ASenderThatDiesLeavesAWholeRow) {
  constexpr std::uint32_t kRanks = 5, kSteps = 6;
  for (std::int64_t at = 3; at < 60; at += 8) {
    auto job = config("select=all mix=cumulative", kRanks, 200'000);
    job.timeout = std::chrono::seconds(1);
    job.network.landing_depth = 64;
    for (auto& link : job.network.links) link.loss = 0.01;
    std::vector<std::vector<float>> parameters(kRanks, std::vector<float>(30'001, 0.0F));
    SimJob sim(job, parameters);
    sim.at(TimePoint(std::chrono::milliseconds(at)),
           [](SimJob& j) { j.kill(2, std::chrono::milliseconds(5)); });
    const auto result = sim.run([&](Rank r) { return adding_ones(parameters[r], kSteps); });
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->failed_ranks, std::vector<Rank>{2});
    for (Rank r = 0; r < kRanks; ++r) {
      if (r == 2) continue;
      ASSERT_EQ(result->errors[r], "");
      for (const float w : parameters[r]) ASSERT_EQ(w, parameters[r].front()) << "at " << at;
    }
  }
}

}  // namespace
}  // namespace selmcast
