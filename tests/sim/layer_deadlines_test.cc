// Rounds of layers that last longer than every deadline of a stream: what waits its turn behind a
// more urgent layer is no reason to give a rank up, and who makes no progress at all still is.
#include <gtest/gtest.h>

#include <functional>

#include "tests/sim/layer_job.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing_jobs::gradient;
using testing_jobs::layered;

constexpr Rank kVggRanks = 8;
constexpr Duration kVggTimeout = milliseconds(200);
constexpr Kbps kVggRate = 160'000;

/// The layers of VGG-16 (Simonyan and Zisserman 2015, configuration D), a two-hundredth of each:
/// the last three, which the backward pass hands over first, hold nine tenths of all elements.
std::vector<std::size_t> vgg16() {
  const std::vector<std::size_t> weights{
      1'728,     36'864,    73'728,    147'456,   294'912,   589'824,     589'824,    1'179'648,
      2'359'296, 2'359'296, 2'359'296, 2'359'296, 2'359'296, 102'760'448, 16'777'216, 4'096'000};
  std::vector<std::size_t> out;
  for (const auto w : weights) out.push_back(w / 200);
  return out;
}

/// A round in which every rank hears all others at its whole rate, of which the plan leaves 5 % for
/// repair: 1432 bytes of payload take 40 of the frame's header and 42 of the wire's.
Duration round_time() {
  double bytes = 0;
  for (const auto size : vgg16()) bytes += 4.0 * static_cast<double>(size);
  const double bits = 8 * (kVggRanks - 1) * bytes * (1432 + 40 + 42) / 1432;
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(bits / (0.95 * kVggRate)));
}

/// What the ranks of a job of two steps saw.
class LongRounds {
 public:
  explicit LongRounds(const char* policy)
      : config(layered(policy, kVggRanks, kVggRate, vgg16())),
        reports(kVggRanks),
        round_end(kVggRanks) {
    config.timeout = kVggTimeout;
    config.deadline = std::chrono::seconds(60);
  }

  /// `fault` is scheduled before the job runs.
  void run(const std::function<void(SimJob&)>& fault = {}) {
    std::size_t all = 0;
    for (const auto size : config.layers) all += size;
    parameters.assign(kVggRanks, std::vector<float>(all));
    SimJob job(config, parameters);
    if (fault) fault(job);
    auto ran = job.run([this](Rank r) -> SimJob::Application {
      return [this, r](SimRank& rank, Stepper&) { return two_steps(r, rank); };
    });
    ASSERT_TRUE(ran);
    result = *std::move(ran);
    EXPECT_FALSE(result.timed_out);
  }

  SimJobConfig config;
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<RoundReport>> reports;  ///< By rank.
  std::vector<TimePoint> round_end;               ///< Of the first round, by rank.
  SimJobResult result;

 private:
  Result<void> two_steps(Rank r, SimRank& rank) {
    for (std::uint32_t step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < parameters[r].size(); ++i) {
        parameters[r][i] = gradient(r, step, i);
      }
      for (std::size_t l = config.layers.size(); l-- > 0;) {
        rank.compute(microseconds(100));
        rank.push_layer(l);
      }
      auto report = rank.wait();
      if (!report) return report.error();
      reports[r].push_back(*report);
      if (step == 0) round_end[r] = rank.now();
    }
    return {};
  }
};

class LayerDeadlines : public testing::TestWithParam<const char*> {};

TEST_P(LayerDeadlines, ALayerThatWaitsItsTurnIsNoReasonToGiveARankUp) {
  LongRounds job(GetParam());
  job.run();
  ASSERT_GT(round_time(), 5 * kVggTimeout);
  EXPECT_TRUE(job.result.failed_ranks.empty());
  for (Rank r = 0; r < kVggRanks; ++r) {
    EXPECT_EQ(job.result.errors[r], "");
    ASSERT_EQ(job.reports[r].size(), 2U);
    for (const auto& report : job.reports[r]) {
      EXPECT_EQ(report.receivers.size(), kVggRanks - 1);
      EXPECT_TRUE(report.given_up.empty());
      EXPECT_TRUE(report.verified);
    }
    EXPECT_GT(job.round_end[r] - TimePoint(), 5 * kVggTimeout);
    for (std::size_t i = 0; i < job.parameters[r].size(); i += 101) {
      float sum = 0;
      for (Rank s = 0; s < kVggRanks; ++s) sum += gradient(s, 1, i);
      ASSERT_EQ(job.parameters[r][i], sum / kVggRanks) << "rank " << r << " element " << i;
    }
  }
}

// Nobody is told of the death: a silent rank is found out by the timeout alone, and the round takes
// no longer than that more than an undisturbed one.
TEST_P(LayerDeadlines, ARankThatDiesInALongRoundIsGivenUpAfterTheTimeout) {
  constexpr Rank kVictim = 3;
  LongRounds job(GetParam());
  job.run([](SimJob& sim) {
    sim.at(TimePoint(milliseconds(450)), [](SimJob& j) { j.kill(kVictim, std::chrono::hours(2)); });
  });
  EXPECT_EQ(job.result.failed_ranks, std::vector<Rank>{kVictim});
  for (Rank r = 0; r < kVggRanks; ++r) {
    if (r == kVictim) continue;
    EXPECT_EQ(job.result.errors[r], "");
    ASSERT_EQ(job.reports[r].size(), 2U);
    EXPECT_EQ(job.reports[r][0].given_up, std::vector<Rank>{kVictim});
    EXPECT_EQ(job.reports[r][1].receivers.size(), kVggRanks - 2);
    EXPECT_LT(job.round_end[r] - TimePoint(), round_time() + kVggTimeout + kVggTimeout / 2);
    for (std::size_t i = 0; i < job.parameters[r].size(); i += 101) {
      float sum = 0;
      for (Rank s = 0; s < kVggRanks; ++s) sum += s == kVictim ? 0 : gradient(s, 1, i);
      ASSERT_NEAR(job.parameters[r][i], sum / (kVggRanks - 1), 1e-5) << "element " << i;
    }
  }
}

// One layer from one rank to one other never arrives, all else does. The round goes on as long as
// anything else of these two moves, which is finite, and three timeouts more.
TEST_P(LayerDeadlines, ALayerThatNeverArrivesEndsTheRoundThreeTimeoutsAfterAllOthers) {
  constexpr std::uint16_t kBroken = 5;
  LongRounds job(GetParam());
  job.config.network.loses = [](Rank from, Rank to, std::span<const std::byte> frame) {
    const auto parsed = parse_frame(frame, 1);
    return from == 2 && to == 0 && parsed.header.kind == FrameKind::data &&
           parsed.header.stream == kBroken;
  };
  job.run();
  for (Rank r = 0; r < kVggRanks; ++r) {
    ASSERT_GE(job.reports[r].size(), 1U) << "rank " << r;
    EXPECT_LT(job.round_end[r] - TimePoint(), round_time() + 3 * kVggTimeout + kVggTimeout / 2);
    const std::vector<Rank> none;
    EXPECT_EQ(job.reports[r][0].given_up, r == 0   ? std::vector<Rank>{2}
                                          : r == 2 ? std::vector<Rank>{0}
                                                   : none);
  }
  // One of the two has to go, and the others go on.
  ASSERT_EQ(job.result.failed_ranks.size(), 1U);
  const Rank gone = job.result.failed_ranks.front();
  EXPECT_TRUE(gone == 0 || gone == 2) << gone;
  for (Rank r = 0; r < kVggRanks; ++r) {
    if (r == gone) continue;
    EXPECT_EQ(job.result.errors[r], "") << "rank " << r;
    EXPECT_EQ(job.reports[r].size(), 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, LayerDeadlines, testing::Values("p3", "p3 order=fifo"));

}  // namespace
}  // namespace selmcast
