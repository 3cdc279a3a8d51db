// The two small networks: softmax regression and a perceptron with one hidden layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace selmcast {

enum class ModelKind : std::uint8_t { mlp, softmax };

/// Widths of the layers, input first. The parameters lie in one flat buffer, layer after layer: the
/// weights row by row (one row per input), then one bias per output.
struct ModelShape {
  std::vector<std::uint32_t> widths;

  std::size_t parameters() const noexcept;
};

/// mlp: 64-32-10 (2410 parameters); softmax: 64-10 (650).
ModelShape model_shape(ModelKind kind);
std::string_view to_string(ModelKind kind) noexcept;

/// Uniform weights of Glorot and Bengio (AISTATS 2010), biases 0. The same seed gives the same
/// values on every rank and machine. Softmax starts from 0, where its convex loss needs no symmetry
/// broken.
void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> parameters);

/// How a model does on some samples.
struct Score {
  double accuracy = 0.0;  ///< Share of samples whose largest output is the label's.
  double loss = 0.0;      ///< Mean cross-entropy in nats.
};

/// Forward and backward pass through layers of rectifiers with a softmax on top, loss = mean
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
