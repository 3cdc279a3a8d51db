#include "train/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "training_support.h"

namespace selmcast {
namespace {

using testing::digits_task;
using testing::rotating;

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

TEST(Gossip, AveragesWhatEachRankHears) {
  std::vector<std::vector<float>> models{{0, 8}, {4, 0}, {8, 4}};
  gossip({{1}, {}, {0, 1}}, models);  // 0 hears 2; 1 hears 0 and 2; 2 hears nobody
  EXPECT_EQ(models[0], (std::vector<float>{4, 6}));
  EXPECT_EQ(models[1], (std::vector<float>{4, 4}));
  EXPECT_EQ(models[2], (std::vector<float>{8, 4}));
}

TEST(Gossip, LeavesEqualModelsAloneBitForBit) {
  const std::vector<float> odd{0.1F, -3.3F, 1e-30F};
  std::vector<std::vector<float>> models(7, odd);
  gossip(everyone(7)(0), models);
  for (const auto& model : models) EXPECT_EQ(model, odd);
}

TEST(Reference, EveryoneAveragingEqualsSharedGradients) {
  // mean(w - r g_i) = w - r mean(g_i) as long as all start a round alike: synchronous SGD.
  TrainOptions options;
  options.workers = 4;
  options.epochs = 2;
  const TrainTask task = digits_task(options);
  const auto averaged = train_with_gossip(task, everyone(4));
  const auto shared = train_with_shared_gradients(task);
  for (const auto& model : averaged) EXPECT_LT(largest_difference(model, shared), 1e-4);
  EXPECT_GT(largest_difference(shared, task.initial_parameters()), 0.1);
}

TEST(Reference, SharedGradientsOfWholeShardsEqualOneProcessOnAllSamples) {
  // One batch is a whole shard: the mean gradient is then that of all samples, whoever holds them.
  TrainOptions options;
  options.workers = 3;  // 1437 = 3 * 479
  options.batch = 479;
  options.epochs = 5;
  const TrainTask task = digits_task(options);
  ASSERT_EQ(task.rounds_per_epoch(), 1U);
  EXPECT_LT(largest_difference(train_with_shared_gradients(task), train_alone(task)), 1e-5);
}

TEST(Reference, ObserverSeesEveryPoint) {
  TrainOptions options;
  options.workers = 2;
  options.epochs = 3;
  const TrainTask task = digits_task(options);
  const std::uint32_t epoch = task.rounds_per_epoch();
  std::vector<std::uint32_t> points;
  std::vector<float> last;
  const auto models = train_with_gossip(
      task, nobody(2), [&](std::uint32_t steps, std::span<const std::vector<float>> seen) {
        points.push_back(steps);
        last = seen[1];
      });
  EXPECT_EQ(points, (std::vector<std::uint32_t>{epoch, 2 * epoch, 3 * epoch}));
  EXPECT_EQ(last, models[1]);
}

TEST(Reference, MeanModel) {
  EXPECT_EQ(mean_model(std::vector<std::vector<float>>{{1, 2}, {3, 6}}),
            (std::vector<float>{2, 4}));
}

/// Bounds measured over many seeds with another implementation (selection study): they hold here
/// too.
class Accuracy : public ::testing::TestWithParam<std::tuple<ModelKind, std::uint64_t>> {};

TEST_P(Accuracy, LearnsFromSkewedDataOnlyByTalking) {
  TrainOptions options;
  options.model = std::get<0>(GetParam());
  options.learning_rate = options.model == ModelKind::softmax ? 1.0 : 0.3;
  options.seed = std::get<1>(GetParam());
  options.epochs = 14;  // 308 rounds
  const TrainTask task = digits_task(options);
  Judge judge(task);
  const double together = judge.score(train_with_gossip(task, everyone(8))[0]).accuracy;
  EXPECT_GE(together, 0.92);
  EXPECT_GE(judge.score(train_alone(task)).accuracy, 0.92);
  double mean = 0.0;
  double worst = 1.0;
  const auto gossiped = train_with_gossip(task, rotating(8, 2));
  for (const auto& model : gossiped) {
    const double accuracy = judge.score(model).accuracy;
    mean += accuracy / 8;
    worst = std::min(worst, accuracy);
  }
  EXPECT_GE(judge.score(mean_model(gossiped)).accuracy, 0.92);
  EXPECT_GE(judge.score(mean_model(gossiped)).accuracy - together, -0.025);
  EXPECT_GE(mean, 0.90);
  EXPECT_GE(worst, 0.86);
  double alone = 0.0;
  for (const auto& model : train_with_gossip(task, nobody(8))) {
    alone += judge.score(model).accuracy / 8;
  }
  EXPECT_LE(alone, 0.40);
}

INSTANTIATE_TEST_SUITE_P(Models, Accuracy,
                         ::testing::Combine(::testing::Values(ModelKind::mlp, ModelKind::softmax),
                                            ::testing::Range<std::uint64_t>(1, 6)));

}  // namespace
}  // namespace selmcast
