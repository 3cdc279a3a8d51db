// The convolutional layer of the small networks: 3 x 3 taps, then the maximum of each 2 x 2 block.
#pragma once

#include <Eigen/Dense>
#include <cstdint>
#include <span>
#include <vector>

#include "train/model.h"

namespace selmcast {

/// Input: square images of one channel. Output: per image one value per block and channel, the
/// channels of a block side by side. The image counts as surrounded by zeros, so every pixel has a
/// map value of its own; the side is even. Parameters: kTaps rows (the 3 x 3 window row by row) of
/// one weight per channel, then one bias per channel.
///
/// The windows of all images become the rows of one matrix (im2col: Chellapilla, Puri, Simard,
/// IWFHR 2006), so that the maps are a matrix product. Of equal values in a block the first one
/// counts as its maximum. Allocates in its constructor only. One thread per object.
template <class Scalar>
class ConvolutionLayer {
 public:
  using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  static constexpr Eigen::Index kTaps = ModelShape::kTaps;

  /// `samples` is the largest number of images of one call.
  ConvolutionLayer(Eigen::Index side, Eigen::Index channels, Eigen::Index samples)
      : side_(side),
        channels_(channels),
        windows_(samples * side * side, kTaps),
        maps_(samples * side * side, channels),
        largest_(static_cast<std::size_t>(samples * side * side / 4 * channels)) {}

  /// Writes one row of `pooled` per image. `parameters` starts with this layer's.
  void forward(std::span<const Scalar> parameters, std::span<const Scalar> images,
               Eigen::Index samples, Eigen::Ref<Matrix> pooled) {
    cut_windows(images, samples);
    const Eigen::Index rows = samples * side_ * side_;
    const Eigen::Map<const Matrix> weights(parameters.data(), kTaps, channels_);
    const Eigen::Map<const Eigen::Matrix<Scalar, 1, Eigen::Dynamic>> biases(
        parameters.data() + kTaps * channels_, channels_);
    maps_.topRows(rows).noalias() = windows_.topRows(rows) * weights;
    maps_.topRows(rows).rowwise() += biases;
    pool(samples, pooled);
  }

  /// The derivatives of this layer's parameters from those of what forward() last put out.
  void backward(const Eigen::Ref<const Matrix>& pooled_error, Eigen::Index samples,
                std::span<Scalar> into) {
    const Eigen::Index rows = samples * side_ * side_;
    auto errors = maps_.topRows(rows);  // The maps themselves are not needed any more.
    errors.setZero();
    const Eigen::Index features = pooled_error.cols();
    for (Eigen::Index sample = 0; sample < samples; ++sample) {
      for (Eigen::Index f = 0; f < features; ++f) {
        const auto at = largest_[static_cast<std::size_t>(sample * features + f)];
        errors(at, f % channels_) += pooled_error(sample, f);
      }
    }
    Eigen::Map<Matrix>(into.data(), kTaps, channels_).noalias() =
        windows_.topRows(rows).transpose() * errors;
    Eigen::Map<Eigen::Matrix<Scalar, 1, Eigen::Dynamic>>(into.data() + kTaps * channels_,
                                                         channels_) = errors.colwise().sum();
  }

 private:
  void cut_windows(std::span<const Scalar> images, Eigen::Index samples) {
    Eigen::Index row = 0;
    for (Eigen::Index sample = 0; sample < samples; ++sample) {
      const Scalar* image = images.data() + sample * side_ * side_;
      for (Eigen::Index y = 0; y < side_; ++y) {
        for (Eigen::Index x = 0; x < side_; ++x, ++row) {
          for (Eigen::Index tap = 0; tap < kTaps; ++tap) {
            const Eigen::Index from_y = y + tap / 3 - 1;
            const Eigen::Index from_x = x + tap % 3 - 1;
            const bool inside = from_y >= 0 && from_y < side_ && from_x >= 0 && from_x < side_;
            windows_(row, tap) = inside ? image[from_y * side_ + from_x] : Scalar{0};
          }
        }
      }
    }
  }

  void pool(Eigen::Index samples, Eigen::Ref<Matrix> pooled) {
    const Eigen::Index blocks = side_ / 2;
    std::size_t next = 0;
    for (Eigen::Index sample = 0; sample < samples; ++sample) {
      for (Eigen::Index block = 0; block < blocks * blocks; ++block) {
        const Eigen::Index corner =
            sample * side_ * side_ + 2 * (block / blocks) * side_ + 2 * (block % blocks);
        for (Eigen::Index channel = 0; channel < channels_; ++channel) {
          Eigen::Index best = corner;
          for (const Eigen::Index at : {corner + 1, corner + side_, corner + side_ + 1}) {
            if (maps_(at, channel) > maps_(best, channel)) best = at;
          }
          pooled(sample, block * channels_ + channel) = maps_(best, channel);
          largest_[next++] = best;
        }
      }
    }
  }

  Eigen::Index side_, channels_;
  Matrix windows_;                     ///< One row per pixel of every image.
  Matrix maps_;                        ///< One row per pixel, one column per channel.
  std::vector<Eigen::Index> largest_;  ///< Row of maps_ that each pooled value came from.
};

}  // namespace selmcast
