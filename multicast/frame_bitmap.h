// One bit per frame of a round from one sender: what has arrived, what is missing.
#pragma once

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
  /// All absent again. O(frames / 64).
  void clear() noexcept;

  std::uint32_t frames() const noexcept { return frames_; }
  std::uint32_t present() const noexcept { return present_; }
  bool complete() const noexcept { return present_ == frames_; }
  /// One past the highest frame present; 0 when none is.
  std::uint32_t horizon() const noexcept { return horizon_; }

  /// Marks a frame; false if it was present already. frame < frames().
  bool insert(std::uint32_t frame) noexcept;
  bool contains(std::uint32_t frame) const noexcept;

  /// Fills `out` with the gaps within [begin, end), ascending and maximal there, as many as fit;
  /// returns how many. O(words in between).
  std::size_t gaps_between(std::uint32_t begin, std::uint32_t end,
                           std::span<NackRange> out) noexcept;
  /// The same from the first gap on: amortised O(new words), as it remembers the first gap.
  std::size_t gaps_below(std::uint32_t end, std::span<NackRange> out) noexcept;
  /// Lowest absent frame; frames() when complete.
  std::uint32_t first_gap() noexcept;

 private:
  std::vector<std::uint64_t> words_;
  std::uint32_t frames_ = 0, present_ = 0, horizon_ = 0, first_gap_hint_ = 0;
};

}  // namespace selmcast
