#include "train/model.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "train/convolution.h"
#include "train/dataset.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kChannels = 8;
constexpr std::uint64_t kInitialStream = 0x696e697469616c00U;

template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using ConstMatrixMap = Eigen::Map<const Matrix<Scalar>>;
template <class Scalar>
using RowMap = Eigen::Map<Eigen::Matrix<Scalar, 1, Eigen::Dynamic>>;
template <class Scalar>
using ConstRowMap = Eigen::Map<const Eigen::Matrix<Scalar, 1, Eigen::Dynamic>>;

Eigen::Index index_of(std::size_t value) noexcept {
  return static_cast<Eigen::Index>(value);
}

}  // namespace

std::size_t ModelShape::layer_parameters(std::size_t layer) const noexcept {
  if (layer == 0 && channels > 0) return (kTaps + 1) * channels;
  return (std::size_t{widths[layer]} + 1) * widths[layer + 1];
}

std::size_t ModelShape::parameters() const noexcept {
  std::size_t total = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) total += layer_parameters(i);
  return total;
}

ModelShape convolutional_shape(std::uint32_t side, std::uint32_t channels, std::uint32_t classes) {
  SELMCAST_CHECK(side >= 2 && side % 2 == 0 && channels >= 1, "blocks of 2 x 2 cover the image");
  return {{side * side, side * side / 4 * channels, classes}, channels};
}

ModelShape model_shape(ModelKind kind, std::uint32_t hidden) {
  switch (kind) {
    case ModelKind::softmax:
      return {{Dataset::kFeatures, Dataset::kClasses}};
    case ModelKind::cnn:
      return convolutional_shape(Dataset::kSide, kChannels, Dataset::kClasses);
    case ModelKind::mlp:
      break;
  }
  return {{Dataset::kFeatures, hidden, Dataset::kClasses}};
}

std::string_view to_string(ModelKind kind) noexcept {
  switch (kind) {
    case ModelKind::softmax:
      return "softmax";
    case ModelKind::cnn:
      return "cnn";
    case ModelKind::mlp:
      break;
  }
  return "mlp";
}

void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> parameters) {
  SELMCAST_CHECK(parameters.size() == shape.parameters(), "one value per parameter");
  std::fill(parameters.begin(), parameters.end(), 0.0F);
  if (shape.widths.size() <= 2) return;
  SplitMix64 random(mix_seed(seed ^ kInitialStream));
  std::size_t at = 0;
  for (std::size_t i = 0; i + 1 < shape.widths.size(); ++i) {
    // How many values each value of the layer comes from, and goes to.
    const bool convolves = i == 0 && shape.channels > 0;
    const std::size_t in = convolves ? ModelShape::kTaps : shape.widths[i];
    const std::size_t out = convolves ? ModelShape::kTaps * shape.channels : shape.widths[i + 1];
    const std::size_t biases = convolves ? shape.channels : shape.widths[i + 1];
    const double bound = std::sqrt(6.0 / static_cast<double>(in + out));
    for (std::size_t weight = 0; weight < in * biases; ++weight) {
      parameters[at + weight] = static_cast<float>((2.0 * random.unit() - 1.0) * bound);
    }
    at += shape.layer_parameters(i);
  }
}

template <class Scalar>
struct Network<Scalar>::Workspace {
  struct Layer {
    Eigen::Index in, out;
    std::size_t offset;  ///< Of the weights within the flat buffer; the biases follow them.

    ConstMatrixMap<Scalar> weights(std::span<const Scalar> flat) const {
      return {flat.data() + offset, in, out};
    }
    ConstRowMap<Scalar> biases(std::span<const Scalar> flat) const {
      return {flat.data() + offset + static_cast<std::size_t>(in * out), out};
    }
    Eigen::Map<Matrix<Scalar>> weights(std::span<Scalar> flat) const {
      return {flat.data() + offset, in, out};
    }
    RowMap<Scalar> biases(std::span<Scalar> flat) const {
      return {flat.data() + offset + static_cast<std::size_t>(in * out), out};
    }
  };
  std::vector<Layer> layers;
  std::optional<ConvolutionLayer<Scalar>> convolution;  ///< The first layer, if it is one.
  std::vector<Matrix<Scalar>> outputs;  ///< What each layer put out, one row per sample.
  std::vector<Matrix<Scalar>> errors;   ///< Derivative of the loss by each layer's weighted sum.
  Eigen::Index limit = 0;
  std::size_t parameters = 0;

  void check(std::span<const Scalar> flat, std::span<const Scalar> inputs,
             std::span<const std::uint8_t> labels) const {
    SELMCAST_CHECK(flat.size() == parameters, "one value per parameter");
    SELMCAST_CHECK(!labels.empty() && index_of(labels.size()) <= limit, "samples of one call");
    SELMCAST_CHECK(index_of(inputs.size()) == index_of(labels.size()) * layers.front().in,
                   "one row of inputs per label");
    for (const std::uint8_t label : labels) {
      SELMCAST_CHECK(label < layers.back().out, "a label names an output");
    }
  }

  /// Leaves the scores before the softmax in outputs.back().
  void forward(std::span<const Scalar> flat, std::span<const Scalar> inputs, Eigen::Index rows) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto out = outputs[i].topRows(rows);
      if (i == 0 && convolution) {
        convolution->forward(flat, inputs, rows, out);
      } else {
        const auto weights = layers[i].weights(flat);
        if (i == 0) {
          out.noalias() = ConstMatrixMap<Scalar>(inputs.data(), rows, layers[0].in) * weights;
        } else {
          out.noalias() = outputs[i - 1].topRows(rows) * weights;
        }
        out.rowwise() += layers[i].biases(flat);
      }
      if (i + 1 < layers.size()) out = out.cwiseMax(Scalar{0});
    }
  }

  /// Turns the scores into errors of the last layer, (softmax - one hot) / rows; returns the loss.
  Scalar softmax_errors(std::span<const std::uint8_t> labels) {
    const Eigen::Index rows = index_of(labels.size());
    Scalar loss{0};
    for (Eigen::Index row = 0; row < rows; ++row) {
      const auto scores = outputs.back().row(row);
      auto error = errors.back().row(row);
      const Scalar largest = scores.maxCoeff();  // exp() of differences to it cannot overflow
      error = (scores.array() - largest).exp().matrix();
      const Scalar sum = error.sum();
      const Eigen::Index label = labels[static_cast<std::size_t>(row)];
      loss += std::log(sum) - (scores(label) - largest);
      error /= sum;
      error(label) -= Scalar{1};
    }
    errors.back().topRows(rows) /= static_cast<Scalar>(rows);
    return loss / static_cast<Scalar>(rows);
  }

  void backward(std::span<const Scalar> flat, std::span<const Scalar> inputs, Eigen::Index rows,
                std::span<Scalar> into) {
    for (std::size_t i = layers.size(); i-- > 0;) {
      const auto error = errors[i].topRows(rows);
      if (i == 0 && convolution) return convolution->backward(error, rows, into);
      layers[i].biases(into) = error.colwise().sum();
      if (i == 0) {
        layers[i].weights(into).noalias() =
            ConstMatrixMap<Scalar>(inputs.data(), rows, layers[0].in).transpose() * error;
        return;
      }
      const auto below = outputs[i - 1].topRows(rows);
      layers[i].weights(into).noalias() = below.transpose() * error;
      auto below_error = errors[i - 1].topRows(rows);
      below_error.noalias() = error * layers[i].weights(flat).transpose();
      below_error.array() *= (below.array() > Scalar{0}).template cast<Scalar>();
    }
  }
};

template <class Scalar>
Network<Scalar>::Network(const ModelShape& shape, std::uint32_t samples)
    : work_(std::make_unique<Workspace>()) {
  SELMCAST_CHECK(shape.widths.size() >= 2 && samples >= 1, "a layer and a sample at least");
  work_->limit = index_of(samples);
  work_->parameters = shape.parameters();
  if (shape.channels > 0) {
    const auto side = static_cast<std::uint32_t>(std::lround(std::sqrt(shape.widths[0])));
    SELMCAST_CHECK(shape == convolutional_shape(side, shape.channels, shape.widths.back()),
                   "one convolutional layer and one of scores");
    work_->convolution.emplace(side, shape.channels, index_of(samples));
  }
  std::size_t offset = 0;
  for (std::size_t i = 0; i + 1 < shape.widths.size(); ++i) {
    const std::size_t in = shape.widths[i];
    const std::size_t out = shape.widths[i + 1];
    work_->layers.push_back({index_of(in), index_of(out), offset});
    work_->outputs.emplace_back(index_of(samples), index_of(out));
    work_->errors.emplace_back(index_of(samples), index_of(out));
    offset += shape.layer_parameters(i);
  }
}

template <class Scalar>
Network<Scalar>::~Network() = default;
template <class Scalar>
Network<Scalar>::Network(Network&&) noexcept = default;
template <class Scalar>
Network<Scalar>& Network<Scalar>::operator=(Network&&) noexcept = default;

template <class Scalar>
Scalar Network<Scalar>::gradient(std::span<const Scalar> parameters, std::span<const Scalar> inputs,
                                 std::span<const std::uint8_t> labels, std::span<Scalar> gradient) {
  work_->check(parameters, inputs, labels);
  SELMCAST_CHECK(gradient.size() == parameters.size(), "one derivative per parameter");
  const Eigen::Index rows = index_of(labels.size());
  work_->forward(parameters, inputs, rows);
  const Scalar loss = work_->softmax_errors(labels);
  work_->backward(parameters, inputs, rows, gradient);
  return loss;
}

template <class Scalar>
Score Network<Scalar>::score(std::span<const Scalar> parameters, std::span<const Scalar> inputs,
                             std::span<const std::uint8_t> labels) {
  work_->check(parameters, inputs, labels);
  const Eigen::Index rows = index_of(labels.size());
  work_->forward(parameters, inputs, rows);
  std::size_t right = 0;
  for (Eigen::Index row = 0; row < rows; ++row) {
    Eigen::Index best = 0;
    work_->outputs.back().row(row).maxCoeff(&best);
    if (best == labels[static_cast<std::size_t>(row)]) ++right;
  }
  const double loss = static_cast<double>(work_->softmax_errors(labels));
  return {static_cast<double>(right) / static_cast<double>(rows), loss};
}

template class Network<float>;
template class Network<double>;

void descend(std::span<float> parameters, std::span<const float> gradient, float rate) noexcept {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= rate * gradient[i];
}

}  // namespace selmcast
