// Sums of values that come with their index: of which elements, and from how many ranks, is known
// only when they arrive.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace selmcast {

/// One sum and one count per element. In fixed point (units of 2^-32, cut towards zero and clamped
/// to +-2^28, as everywhere in kernels.h), so that the order of arrival does not matter.
///
/// Allocates in its constructor only. One thread at a time: the driver's while a round runs, the
/// application's between rounds.
class KeyedSums {
 public:
  explicit KeyedSums(std::uint32_t elements) : sums_(elements, 0), counts_(elements, 0) {}

  /// An index beyond the elements is ignored: only a rank with other parameters could send one.
  void add(std::uint32_t index, float value) noexcept {
    if (index >= sums_.size()) return;
    const double bounded =
        value > -0x1p28F ? std::min(static_cast<double>(value), 0x1p28) : -0x1p28;
    sums_[index] += static_cast<std::int64_t>(bounded * 0x1p32);
    ++counts_[index];
  }
  std::uint32_t count(std::uint32_t index) const noexcept { return counts_[index]; }
  /// Of an element with a count.
  double mean(std::uint32_t index) const noexcept {
    return static_cast<double>(sums_[index]) * 0x1p-32 / counts_[index];
  }
  void clear(std::uint32_t index) noexcept {
    sums_[index] = 0;
    counts_[index] = 0;
  }

 private:
  std::vector<std::int64_t> sums_;
  std::vector<std::uint32_t> counts_;
};

/// The part of a stream that is no place of its own but a list of pairs: from element `first` on
/// (even, so that no pair lies in two frames) an index, as the bits of a std::uint32_t, and its
/// value. Such frames are added to `sums` instead of the accumulator, and nothing is mixed into
/// them. `sums` is null when there is no such part.
struct KeyedTail {
  std::uint64_t first = 0;
  KeyedSums* sums = nullptr;
};

}  // namespace selmcast
