#include "train/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace selmcast {
namespace {

struct Problem {
  std::vector<double> parameters, inputs;
  std::vector<std::uint8_t> labels;
};

Problem random_problem(const ModelShape& shape, std::size_t samples, std::uint64_t seed) {
  SplitMix64 random(seed);
  Problem problem;
  problem.parameters.resize(shape.parameters());
  for (double& value : problem.parameters) value = random.unit() - 0.5;
  problem.inputs.resize(samples * shape.widths.front());
  for (double& value : problem.inputs) value = random.unit();
  for (std::size_t i = 0; i < samples; ++i) {
    problem.labels.push_back(static_cast<std::uint8_t>(random.below(shape.widths.back())));
  }
  return problem;
}

TEST(ModelShape, CountsParameters) {
  EXPECT_EQ(model_shape(ModelKind::mlp).parameters(), 64U * 32 + 32 + 32 * 10 + 10);
  EXPECT_EQ(model_shape(ModelKind::softmax).parameters(), 650U);
}

class Gradient : public ::testing::TestWithParam<ModelShape> {};

TEST_P(Gradient, EqualsCentralDifferencesOfTheLoss) {
  const ModelShape shape = GetParam();
  constexpr std::size_t kSamples = 5;
  // A seed with no maximum or rectifier within a step of its kink, where differences mislead.
  Problem problem = random_problem(shape, kSamples, 8);
  Network<double> network(shape, kSamples);
  std::vector<double> gradient(shape.parameters());
  const double loss =
      network.gradient(problem.parameters, problem.inputs, problem.labels, gradient);
  EXPECT_NEAR(network.score(problem.parameters, problem.inputs, problem.labels).loss, loss, 1e-12);
  constexpr double kStep = 1e-6;
  for (std::size_t i = 0; i < problem.parameters.size(); ++i) {
    const double original = problem.parameters[i];
    problem.parameters[i] = original + kStep;
    const double above = network.score(problem.parameters, problem.inputs, problem.labels).loss;
    problem.parameters[i] = original - kStep;
    const double below = network.score(problem.parameters, problem.inputs, problem.labels).loss;
    problem.parameters[i] = original;
    ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gradient,
                         ::testing::Values(model_shape(ModelKind::softmax),
                                           model_shape(ModelKind::mlp), ModelShape{{6, 5, 4, 3}},
                                           model_shape(ModelKind::cnn),
                                           convolutional_shape(4, 2, 3)));

TEST(Network, SoftmaxAtZeroHasTheClosedForm) {
  // All outputs equal: loss ln 10; bias gradient 1/10 minus the share of the class.
  const ModelShape shape = model_shape(ModelKind::softmax);
  Network<double> network(shape, 4);
  const std::vector<double> parameters(shape.parameters(), 0.0);
  std::vector<double> inputs(4 * 64, 0.0), gradient(parameters.size());
  inputs[5] = 2.0;  // pixel 5 of sample 0, whose label is 3
  const std::vector<std::uint8_t> labels{3, 3, 3, 8};
  EXPECT_NEAR(network.gradient(parameters, inputs, labels, gradient), std::log(10.0), 1e-12);
  EXPECT_NEAR(gradient[640 + 3], 0.1 - 0.75, 1e-12);
  EXPECT_NEAR(gradient[640 + 8], 0.1 - 0.25, 1e-12);
  EXPECT_NEAR(gradient[640 + 0], 0.1, 1e-12);
  EXPECT_NEAR(gradient[5 * 10 + 3], 2.0 * (0.1 - 1.0) / 4, 1e-12);
  EXPECT_EQ(gradient[6 * 10 + 3], 0.0);
}

TEST(Network, ScoreCountsTheLargestOutput) {
  const ModelShape shape{{2, 3}};
  Network<float> network(shape, 3);
  // Rows of weights: input 0 speaks for class 1, input 1 for class 2; bias favours class 0 a
  // little.
  const std::vector<float> parameters{0, 1, 0, 0, 0, 1, 0.5F, 0, 0};
  const std::vector<float> inputs{1, 0, 0, 1, 0, 0};
  EXPECT_EQ(network.score(parameters, inputs, std::vector<std::uint8_t>{1, 2, 0}).accuracy, 1.0);
  EXPECT_NEAR(network.score(parameters, inputs, std::vector<std::uint8_t>{1, 0, 1}).accuracy,
              1.0 / 3, 1e-12);
}

TEST(Network, LargeOutputsDoNotOverflow) {
  const ModelShape shape{{1, 2}};
  Network<float> network(shape, 1);
  std::vector<float> gradient(4);
  const std::vector<float> parameters{3e4F, -3e4F, 0, 0};
  const float loss =
      network.gradient(parameters, std::vector<float>{1}, std::vector<std::uint8_t>{1}, gradient);
  EXPECT_FLOAT_EQ(loss, 6e4F);
  EXPECT_FLOAT_EQ(gradient[2], 1.0F);
  EXPECT_FLOAT_EQ(gradient[3], -1.0F);
}

TEST(Network, AgreesInFloatAndDouble) {
  const ModelShape shape = model_shape(ModelKind::mlp);
  const Problem problem = random_problem(shape, 8, 3);
  const std::vector<float> parameters(problem.parameters.begin(), problem.parameters.end());
  const std::vector<float> inputs(problem.inputs.begin(), problem.inputs.end());
  std::vector<float> narrow(parameters.size());
  std::vector<double> wide(parameters.size());
  Network<float>(shape, 8).gradient(parameters, inputs, problem.labels, narrow);
  Network<double>(shape, 8).gradient(problem.parameters, problem.inputs, problem.labels, wide);
  for (std::size_t i = 0; i < wide.size(); ++i) ASSERT_NEAR(narrow[i], wide[i], 2e-5) << i;
}

TEST(Initialise, IsSeededAndBounded) {
  const ModelShape shape = model_shape(ModelKind::mlp);
  std::vector<float> first(shape.parameters()), again(first.size()), other(first.size());
  initialise(shape, 1, first);
  initialise(shape, 1, again);
  initialise(shape, 2, other);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  const auto bound = static_cast<float>(std::sqrt(6.0 / 96));
  for (std::size_t i = 0; i < 64 * 32; ++i) ASSERT_LE(std::abs(first[i]), bound);
  EXPECT_TRUE(std::all_of(first.begin() + 64 * 32, first.begin() + 65 * 32,
                          [](float bias) { return bias == 0.0F; }));
}

TEST(Descend, SubtractsTheScaledGradient) {
  std::vector<float> parameters{1.0F, 2.0F};
  descend(parameters, std::vector<float>{4.0F, -8.0F}, 0.25F);
  EXPECT_EQ(parameters, (std::vector<float>{0.0F, 4.0F}));
}

}  // namespace
}  // namespace selmcast
