// The generated data set: its values, its size, how hard it is and what a skewed split does to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/random.h"
#include "generated_samples.h"
#include "train/reference.h"
#include "training_support.h"

namespace selmcast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Generated, HasTheValuesOfTheFormula) {
  const Dataset data = generate_clusters(123'457);
  for (const testing::GeneratedSample& sample : testing::kGeneratedSamples) {
    const auto image = data.image(sample.index);
    EXPECT_EQ(data.labels[sample.index], sample.label) << sample.index;
    EXPECT_EQ((std::array{image[0], image[1], image[31], image[63]}), sample.pixels)
        << sample.index;
  }
}

TEST(Generated, ALargerSetBeginsWithTheSmaller) {
  const Dataset large = generate_clusters(3000), small = generate_clusters(1000);
  EXPECT_TRUE(std::ranges::equal(small.labels, std::span(large.labels).first(1000)));
  EXPECT_TRUE(std::ranges::equal(small.pixels, std::span(large.pixels).first(64'000)));
}

/// Centres as the page states them: signs from one stream, class c mod 10.
std::array<std::array<float, 64>, 20> stated_centres() {
  std::array<std::array<float, 64>, 20> centres{};
  SplitMix64 random(mix_seed(0x636C757374657273U));
  for (auto& centre : centres) {
    for (float& value : centre) value = random() >> 63U != 0 ? 1.0F : -1.0F;
  }
  return centres;
}

// Whoever knows the centres and takes the nearest one (the largest projection, of either sign) is
// right up to the wrong labels, 0.01, and the union bound, 0.018.
TEST(Generated, TheNearestCentreIsRightWithinTheStatedBounds) {
  const Dataset data = generate_clusters(20'000);
  const auto centres = stated_centres();
  std::uint32_t right = 0;
  std::array<int, 10> classes{};
  for (std::uint32_t i = 0; i < data.size(); ++i) {
    std::size_t best = 0;
    float largest = -1.0F;
    for (std::size_t c = 0; c < centres.size(); ++c) {
      float product = 0.0F;
      for (std::size_t x = 0; x < 64; ++x) product += data.image(i)[x] * centres.at(c).at(x);
      if (std::abs(product) <= largest) continue;
      largest = std::abs(product);
      best = c;
    }
    if (best % 10 == data.labels[i]) ++right;
    ++classes.at(data.labels[i]);
  }
  // Three standard deviations of 20 000 draws on either side.
  EXPECT_GT(right, 20'000 * (0.99 * (1 - 0.018) - 0.004));
  EXPECT_LT(right, 20'000 * (0.99 + 0.003));
  for (const int count : classes) EXPECT_NEAR(count, 2000, 130);
}

TrainOptions options_of(ShardKind split) {
  TrainOptions options;
  options.split = split;
  options.epochs = 3;
  return options;
}

double alone(const TrainTask& task) {
  const auto models = train_with_gossip(task, nobody(task.options().workers));
  Judge judge(task);
  double mean = 0.0;
  for (const auto& model : models) mean += judge.score(model).accuracy;
  return mean / static_cast<double>(models.size());
}

TEST(Generated, WorkersThatNeverTalkFailUnderSkewOnly) {
  const auto skew = *TrainTask::make(options_of(ShardKind::skew), generate_clusters(8000));
  const auto iid = *TrainTask::make(options_of(ShardKind::iid), generate_clusters(8000));
  EXPECT_LT(alone(skew), 0.4);
  EXPECT_GT(alone(iid), 0.6);
}

TEST(Generated, NeedsAHiddenLayer) {
  TrainOptions options = options_of(ShardKind::iid);
  options.epochs = 6;
  options.hidden = 64;
  const auto data = generate_clusters(20'000);
  const auto mlp = *TrainTask::make(options, data);
  EXPECT_GE(Judge(mlp).score(train_alone(mlp)).accuracy, 0.96);
  options.model = ModelKind::softmax;
  const auto softmax = *TrainTask::make(options, data);
  EXPECT_LT(Judge(softmax).score(train_alone(softmax)).accuracy, 0.3);
}

TEST(LoadData, ReadsWhatTheWordNames) {
  EXPECT_EQ(load_data("generated").value().size(), 20'000U);
  EXPECT_EQ(load_data("generated").value().name, "generated:20000");
  EXPECT_EQ(load_data("generated:1000").value().size(), 1000U);
  EXPECT_EQ(load_data("digits").value().size(), 1797U);
  EXPECT_EQ(load_data("").value().name, "digits");
  EXPECT_EQ(load_data(*find_digits()).value().name, *find_digits());
  for (const char* bad : {"generated:", "generated:999", "generated:1000001", "generated:-1",
                          "generated:2e4", "generated:1000 ", "generated:99999999999999999999"}) {
    const auto data = load_data(bad);
    ASSERT_FALSE(data) << bad;
    EXPECT_EQ(data.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(data.error().message, AllOf(HasSubstr(bad), HasSubstr("1000..1000000")));
  }
  EXPECT_THAT(load_data("generated.csv").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace selmcast
