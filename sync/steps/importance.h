// codec=split: which blocks of the parameters matter most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace selmcast {

/// The parameters in blocks, divided into those that matter most and the rest. The measure is that
/// of OSP (ICPP 2023), parameter times gradient, |w g| on average over a block (how much the loss
/// would change to first order if the block were lost), with the last agreed change of w for g.
/// Equal arguments give the same division.
///
/// Allocates in its constructor only. One thread at a time.
class ImportantBlocks {
 public:
  explicit ImportantBlocks(std::size_t elements);

  /// Divides anew: the most important blocks that together hold `share` of the elements, rounded to
  /// whole blocks. One value per element in each argument.
  void choose(std::span<const float> agreed, std::span<const float> change, double share);
  /// All blocks count as important, in their order.
  void choose_all();

  /// Places of the important blocks in a stream, and of all: the last block has as many as the
  /// others, whatever it holds, so that the numbers do not depend on which blocks are chosen.
  std::size_t important() const noexcept { return chosen_ * block_; }
  std::size_t places() const noexcept { return order_.size() * block_; }
  std::size_t block_elements() const noexcept { return block_; }
  /// Of the division, for comparing ranks: below 2^22, so that float32 means of it are exact
  /// enough.
  std::uint32_t fingerprint() const noexcept;

  /// Calls take(first, count, at) for every important block, or for every other one, in the order
  /// of the parameters: elements [first, first + count), which have place `at` in a stream where
  /// the important ones come first.
  template <class Take>
  void for_each(bool important, Take take) const {
    const std::size_t begin = important ? 0 : chosen_;
    const std::size_t end = important ? chosen_ : order_.size();
    for (std::size_t b = begin; b < end; ++b) {
      const std::size_t first = order_[b] * block_;
      take(first, size_of(order_[b]), b * block_);
    }
  }

 private:
  std::size_t size_of(std::size_t block) const noexcept {
    return block + 1 < order_.size() ? block_ : elements_ - block * block_;
  }

  std::size_t elements_, block_;
  std::size_t chosen_ = 0;            ///< Blocks.
  std::vector<std::uint32_t> order_;  ///< Important ones first, each part ascending.
  std::vector<double> weight_;
};

}  // namespace selmcast
