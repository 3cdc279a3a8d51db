// Programs of every shape, executed frame by frame over a network that loses, repeats and reorders,
// give what a sequential interpreter gives.
#include "tests/sim/random_program.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/sim/program_interpreter.h"
#include "tests/sim/random_job.h"
#include "tests/sim/seeds.h"

namespace selmcast {
namespace {

using namespace testing_jobs;

constexpr std::size_t kProgramElements = 9'001;

/// Whole numbers, so that sums are exact whatever their order.
float start_of(Rank rank, std::size_t element) {
  return static_cast<float>((37 * rank + 11 * element + rank * element) % 512);
}

SimJobConfig job_config(const Drawing& drawing, std::uint64_t seed) {
  auto out = config("mix=sgd", drawing.ranks);
  out.network.seed = seed;
  out.rounds = 2;
  out.timeout = seconds(2);
  out.deadline = seconds(20);
  for (auto& link : out.network.links) link.loss = link.duplicate = link.reorder = 0.04;
  const RateFraction rate{50'000, 1};
  out.compile = [&drawing, rate](const View& view, Rank self) -> Result<Program> {
    return program_of(drawing, view.epoch, self, rate);
  };
  out.adapt = [&drawing](DriverConfig& driver) {
    driver.phases_max = static_cast<std::uint32_t>(2 * drawing.trees.size());
    for (const auto& tree : drawing.trees) driver.copies = driver.copies || tree.quorum;
  };
  return out;
}

/// Frames are cut as the driver cuts them.
std::size_t elements_below(const SimJobConfig& config, const Shard& part, std::uint32_t index) {
  const std::size_t payload = (config.network.max_frame_bytes - kFrameHeaderBytes) / 8 * 8;
  const StreamShape shape{kProgramElements * sizeof(float), static_cast<std::uint32_t>(payload), 1};
  const auto first = shape.range_of({index, part.of}).first;
  return std::min<std::size_t>(shape.offset_of(first), shape.bytes) / sizeof(float);
}

std::vector<std::vector<float>> run(const SimJobConfig& config,
                                    std::vector<std::vector<float>> parameters,
                                    std::uint64_t* repaired = nullptr) {
  SimJob job(config, parameters);
  const auto result = job.run();
  EXPECT_TRUE(result) << result.error().message;
  if (!result) return parameters;
  EXPECT_FALSE(result->timed_out);
  for (const auto& error : result->errors) EXPECT_EQ(error, "");
  for (const auto& reports : result->reports) {
    EXPECT_EQ(reports.size(), config.rounds);
    for (const auto& report : reports) {
      if (repaired != nullptr) *repaired += report.repaired_frames;
    }
  }
  return parameters;
}

class RandomPrograms : public testing::TestWithParam<Shape> {};

TEST_P(RandomPrograms, GiveWhatTheInterpreterGives) {
  std::uint64_t repaired = 0;
  for (auto [seed, last] = seeds(25); seed <= last; ++seed) {
    const Drawing drawing = draw(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + drawing.text());
    const auto config = job_config(drawing, seed);
    std::vector<std::vector<float>> start(drawing.ranks, std::vector<float>(kProgramElements));
    for (Rank r = 0; r < drawing.ranks; ++r) {
      for (std::size_t i = 0; i < kProgramElements; ++i) start[r][i] = start_of(r, i);
    }
    const auto end = run(config, start, &repaired);
    std::vector<Program> programs;
    View view;
    view.epoch = 1;
    for (Rank r = 0; r < drawing.ranks; ++r) programs.push_back(*config.compile(view, r));
    for (const auto& tree : drawing.trees) {
      const std::size_t from = elements_below(config, tree.part, tree.part.index);
      const std::size_t to = elements_below(config, tree.part, tree.part.index + 1);
      // Several of every frame.
      for (std::size_t i = from; i < to; i += 61) {
        std::vector<double> own;
        for (Rank r = 0; r < drawing.ranks; ++r) own.push_back(static_cast<double>(start[r][i]));
        Interpreter interpreter(programs, own, tree.part);
        for (std::uint32_t round = 0; round < config.rounds; ++round) own = interpreter.round(0);
        for (Rank r = 0; r < drawing.ranks; ++r) {
          ASSERT_NEAR(static_cast<double>(end[r][i]), own[r], 1e-3) << "rank " << r << " at " << i;
        }
      }
    }
  }
  EXPECT_GT(repaired, 0U) << "nothing was lost";
}

std::string name_of(const testing::TestParamInfo<Shape>& shape) {
  constexpr const char* kNames[] = {"Star", "Chain", "Ring", "Tree"};
  return kNames[static_cast<std::size_t>(shape.param)];
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomPrograms,
                         testing::Values(Shape::star, Shape::chain, Shape::ring, Shape::tree),
                         name_of);

// Which ranks a quorum takes depends on time. Each rank's value is a power of two, so the sum says
// who is in it: at least the quorum, the root among them, the same for all ranks.
TEST(RandomQuorums, AreMeansOverAtLeastSoManyRanksTheSameEverywhere) {
  std::uint32_t partial = 0;
  for (auto [seed, last] = seeds(25); seed <= last; ++seed) {
    const Drawing drawing = draw(Shape::quorum, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + drawing.text());
    auto config = job_config(drawing, seed);
    config.rounds = 1;
    std::vector<std::vector<float>> start;
    for (Rank r = 0; r < drawing.ranks; ++r) {
      start.emplace_back(kProgramElements, static_cast<float>(1U << r));
    }
    const auto end = run(config, start);
    for (const auto& tree : drawing.trees) {
      const std::size_t from = elements_below(config, tree.part, tree.part.index);
      const std::size_t to = elements_below(config, tree.part, tree.part.index + 1);
      for (std::size_t i = from; i < to; ++i) {
        for (Rank r = 0; r < drawing.ranks; ++r) ASSERT_EQ(end[r][i], end[0][i]) << r << " " << i;
        bool explained = false;
        const std::uint32_t least = 1 + drawing.ranks / 2;
        for (std::uint32_t n = least; n <= drawing.ranks && !explained; ++n) {
          const double sum = static_cast<double>(end[0][i]) * n;
          const auto bits = static_cast<std::uint32_t>(sum + 0.5);
          explained = std::abs(sum - bits) < 1e-2 &&
                      static_cast<std::uint32_t>(std::popcount(bits)) == n &&
                      (bits >> tree.root & 1U) != 0 && bits < 1U << drawing.ranks;
          partial += explained && n < drawing.ranks ? 1 : 0;
        }
        ASSERT_TRUE(explained) << end[0][i] << " at " << i;
      }
    }
  }
  EXPECT_GT(partial, 1000U) << "nobody was ever too late, so nothing was shown";
}

}  // namespace
}  // namespace selmcast
