// The convolutional network against loops that follow its definition term by term.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "train/model.h"
#include "train/reference.h"
#include "training_support.h"

namespace selmcast {
namespace {

/// One image of side x side, with nested loops only.
class NaiveNetwork {
 public:
  NaiveNetwork(std::size_t side, std::size_t channels, std::size_t classes)
      : side_(side), channels_(channels), classes_(classes) {}

  /// Adds this image's derivatives, divided by `samples`, to `gradient`; returns its loss.
  double gradient(const std::vector<double>& p, const double* image, std::size_t label,
                  double samples, std::vector<double>& gradient) const {
    const std::size_t half = side_ / 2;
    const std::size_t dense = 10 * channels_;
    const std::size_t features = half * half * channels_;
    std::vector<double> scores(p.end() - static_cast<std::ptrdiff_t>(classes_), p.end());
    std::vector<double> pooled(features);
    std::vector<std::size_t> from(features);
    for (std::size_t f = 0; f < features; ++f) {
      const std::size_t channel = f % channels_;
      const std::size_t top = f / channels_ / half * 2, left = f / channels_ % half * 2;
      pooled[f] = -1e300;
      for (std::size_t q = 0; q < 4; ++q) {
        const std::size_t y = top + q / 2, x = left + q % 2;
        const double value = map(p, image, channel, y, x);
        if (value > pooled[f]) {
          pooled[f] = value;
          from[f] = y * side_ + x;
        }
      }
      for (std::size_t c = 0; c < classes_; ++c) {
        scores[c] += std::max(pooled[f], 0.0) * p[dense + f * classes_ + c];
      }
    }
    double sum = 0.0;
    for (const double score : scores) sum += std::exp(score);
    for (std::size_t c = 0; c < classes_; ++c) {
      const double error = (std::exp(scores[c]) / sum - (c == label ? 1.0 : 0.0)) / samples;
      gradient[dense + features * classes_ + c] += error;
      for (std::size_t f = 0; f < features; ++f) {
        if (pooled[f] <= 0.0) continue;
        gradient[dense + f * classes_ + c] += error * pooled[f];
        add_taps(image, f % channels_, from[f] / side_, from[f] % side_,
                 error * p[dense + f * classes_ + c], gradient);
      }
    }
    return std::log(sum) - scores[label];
  }

 private:
  /// The pixel under a tap of the window around (y, x); 0 outside the image.
  double pixel(const double* image, std::size_t y, std::size_t x, std::size_t tap) const {
    const std::size_t row = y + tap / 3, column = x + tap % 3;  // Of the image with its border.
    if (row == 0 || column == 0 || row > side_ || column > side_) return 0.0;
    return image[(row - 1) * side_ + column - 1];
  }
  double map(const std::vector<double>& p, const double* image, std::size_t channel, std::size_t y,
             std::size_t x) const {
    double value = p[9 * channels_ + channel];
    for (std::size_t tap = 0; tap < 9; ++tap) {
      value += pixel(image, y, x, tap) * p[tap * channels_ + channel];
    }
    return value;
  }
  void add_taps(const double* image, std::size_t channel, std::size_t y, std::size_t x,
                double error, std::vector<double>& gradient) const {
    gradient[9 * channels_ + channel] += error;
    for (std::size_t tap = 0; tap < 9; ++tap) {
      gradient[tap * channels_ + channel] += error * pixel(image, y, x, tap);
    }
  }

  std::size_t side_, channels_, classes_;
};

class Convolution : public ::testing::TestWithParam<ModelShape> {};

TEST_P(Convolution, LossAndGradientAreThoseOfTheDefinition) {
  const ModelShape shape = GetParam();
  constexpr std::size_t kSamples = 6;
  const std::size_t pixels = shape.widths[0];
  const auto side = static_cast<std::size_t>(std::lround(std::sqrt(pixels)));
  const std::size_t classes = shape.widths.back();
  SplitMix64 random(11);
  std::vector<double> parameters(shape.parameters()), inputs(kSamples * pixels);
  for (double& value : parameters) value = random.unit() - 0.5;
  for (double& value : inputs) value = random.unit();
  std::vector<std::uint8_t> labels;
  std::vector<double> expected(parameters.size(), 0.0), gradient(parameters.size());
  double loss = 0.0;
  const NaiveNetwork naive(side, shape.channels, classes);
  for (std::size_t i = 0; i < kSamples; ++i) {
    labels.push_back(static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(classes))));
    loss +=
        naive.gradient(parameters, &inputs[i * pixels], labels[i], kSamples, expected) / kSamples;
  }
  // Room for more samples than there are: the rows beyond must not take part.
  Network<double> network(shape, kSamples + 3);
  EXPECT_NEAR(network.gradient(parameters, inputs, labels, gradient), loss, 1e-12);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(gradient[i], expected[i], 1e-12) << "parameter " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution,
                         ::testing::Values(model_shape(ModelKind::cnn),
                                           convolutional_shape(2, 1, 2),
                                           convolutional_shape(6, 3, 4)));

TEST(ConvolutionShape, CountsParameters) {
  EXPECT_EQ(model_shape(ModelKind::cnn).parameters(), 9U * 8 + 8 + 4 * 4 * 8 * 10 + 10);
  EXPECT_EQ(model_shape(ModelKind::mlp, 200).parameters(), 65U * 200 + 201 * 10);
}

TEST(ConvolutionInitialise, IsSeededAndWithinTheBoundsOfItsLayers) {
  const ModelShape shape = model_shape(ModelKind::cnn);
  std::vector<float> first(shape.parameters()), again(first.size()), other(first.size());
  initialise(shape, 1, first);
  initialise(shape, 1, again);
  initialise(shape, 2, other);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  const auto largest = [&](std::size_t from, std::size_t to) {
    float value = 0.0F;
    for (std::size_t i = from; i < to; ++i) value = std::max(value, std::abs(first[i]));
    return value;
  };
  const auto taps = static_cast<float>(std::sqrt(6.0 / (9 + 72)));
  const auto dense = static_cast<float>(std::sqrt(6.0 / (128 + 10)));
  EXPECT_LE(largest(0, 72), taps);
  EXPECT_GT(largest(0, 72), 0.9F * taps);
  EXPECT_EQ(largest(72, 80), 0.0F);
  EXPECT_LE(largest(80, 80 + 1280), dense);
  EXPECT_GT(largest(80, 80 + 1280), 0.99F * dense);
  EXPECT_EQ(largest(80 + 1280, first.size()), 0.0F);
}

TEST(ConvolutionTraining, ReadsDigitsInASingleProcess) {
  TrainOptions options;
  options.model = ModelKind::cnn;
  options.epochs = 25;
  const auto task = testing::digits_task(options);
  EXPECT_GE(Judge(task).score(train_alone(task)).accuracy, 0.95);
}

}  // namespace
}  // namespace selmcast
