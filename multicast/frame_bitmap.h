// One bit per frame of a round from one sender: what has arrived, what is missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "multicast/frame.h"

namespace selmcast {

/// Storage is allocated by resize() only. Indices are frame numbers, offset / payload size.
class FrameBitmap {
 public:
  /// Room for `frames` frames, all absent. Allocates; set-up only.
  void resize(std::uint32_t frames);
  /// From now on only frames [first, end) count, all absent again; end <= frames(). O(frames / 64).
  void begin(std::uint32_t first, std::uint32_t end) noexcept;
  void clear() noexcept { begin(0, frames_); }

  std::uint32_t frames() const noexcept { return frames_; }
  std::uint32_t present() const noexcept { return present_; }
  bool complete() const noexcept { return present_ == end_ - first_; }
  /// One past the highest frame present; the first that counts when none is.
  std::uint32_t horizon() const noexcept { return horizon_; }
  /// Every frame that counts and lies below `end` is present.
  bool whole_below(std::uint32_t end) noexcept { return first_gap() >= std::min(end, end_); }

  /// Marks a frame; false if it was present already. It must be one that counts.
  bool insert(std::uint32_t frame) noexcept;
  bool contains(std::uint32_t frame) const noexcept;

  /// Fills `out` with the gaps within [begin, end), ascending and maximal there, as many as fit;
  /// returns how many. O(words in between).
  std::size_t gaps_between(std::uint32_t begin, std::uint32_t end,
                           std::span<NackRange> out) noexcept;
  /// The same from the first gap on: amortised O(new words), as it remembers the first gap.
  std::size_t gaps_below(std::uint32_t end, std::span<NackRange> out) noexcept;
  /// Lowest absent frame that counts; the end when complete.
  std::uint32_t first_gap() noexcept;

 private:
  std::vector<std::uint64_t> words_;
  std::uint32_t frames_ = 0, first_ = 0, end_ = 0;
  std::uint32_t present_ = 0, horizon_ = 0, first_gap_hint_ = 0;
};

}  // namespace selmcast
