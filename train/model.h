// The small networks: softmax regression, a perceptron with one hidden layer, and one with a
// convolutional layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace selmcast {

enum class ModelKind : std::uint8_t { mlp, softmax, cnn };

/// Widths of the layers, input first. The parameters lie in one flat buffer, layer after layer: the
/// weights row by row (one row per input), then one bias per output. With channels the first layer
/// is a ConvolutionLayer instead (widths[0] pixels in, widths[1] pooled values out).
struct ModelShape {
  static constexpr std::uint32_t kTaps = 9;  ///< Weights of a channel, 3 x 3.
  std::vector<std::uint32_t> widths;
  std::uint32_t channels = 0;  ///< Of the convolutional first layer; 0 = there is none.

  std::size_t parameters() const noexcept;
  std::size_t layer_parameters(std::size_t layer) const noexcept;
  bool operator==(const ModelShape&) const = default;
};

inline constexpr std::uint32_t kDefaultHidden = 32;
/// mlp: 64-hidden-10 (2410 parameters with 32 hidden ones); softmax: 64-10 (650); cnn: 8 x 8
/// pixels, 8 channels, their 4 x 4 x 8 maxima of blocks, 10 (1370).
ModelShape model_shape(ModelKind kind, std::uint32_t hidden = kDefaultHidden);
/// Images of side x side pixels (even), one convolutional layer, the classes' scores.
ModelShape convolutional_shape(std::uint32_t side, std::uint32_t channels, std::uint32_t classes);
std::string_view to_string(ModelKind kind) noexcept;

/// Uniform weights of Glorot and Bengio (AISTATS 2010), biases 0; a convolutional layer counts
/// 9 values in and 9 per channel out. The same seed gives the same
/// values on every rank and machine. Softmax starts from 0, where its convex loss needs no symmetry
/// broken.
void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> parameters);

/// How a model does on some samples.
struct Score {
  double accuracy = 0.0;  ///< Share of samples whose largest output is the label's.
  double loss = 0.0;      ///< Mean cross-entropy in nats.
};

/// Forward and backward pass through layers with rectifiers and a softmax on top, loss = mean
/// cross-entropy. Holds only work space; the parameters stay the caller's. One thread per object.
/// Scalar is float, or double for checking gradients.
template <class Scalar>
class Network {
 public:
  /// `samples` is the largest number of samples of one call.
  Network(const ModelShape& shape, std::uint32_t samples);
  ~Network();
  Network(Network&&) noexcept;
  Network& operator=(Network&&) noexcept;

  /// `inputs` holds labels.size() rows as wide as the first layer; at least one row. Writes the
  /// gradient of the mean loss (as many values as there are parameters) and returns the loss.
  Scalar gradient(std::span<const Scalar> parameters, std::span<const Scalar> inputs,
                  std::span<const std::uint8_t> labels, std::span<Scalar> gradient);
  /// Accuracy and loss; a tie between outputs goes to the lower class.
  Score score(std::span<const Scalar> parameters, std::span<const Scalar> inputs,
              std::span<const std::uint8_t> labels);

 private:
  struct Workspace;
  std::unique_ptr<Workspace> work_;
};

extern template class Network<float>;
extern template class Network<double>;

/// One step of stochastic gradient descent: parameters -= rate * gradient.
void descend(std::span<float> parameters, std::span<const float> gradient, float rate) noexcept;

}  // namespace selmcast
