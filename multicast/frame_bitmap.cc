#include "multicast/frame_bitmap.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kWordBits = 64;

/// Lowest index in [from, end) whose bit equals `value`; `end` if there is none. Bits at and above
/// `end` may have any value.
std::uint32_t find_bit(std::span<const std::uint64_t> words, std::uint32_t from, std::uint32_t end,
                       bool value) noexcept {
  if (from >= end) return end;
  const std::uint64_t flip = value ? 0 : ~std::uint64_t{0};
  const std::uint32_t last_word = (end - 1) / kWordBits;
  std::uint32_t word = from / kWordBits;
  std::uint64_t bits = (words[word] ^ flip) & (~std::uint64_t{0} << (from % kWordBits));
  while (bits == 0) {
    if (word == last_word) return end;
    bits = words[++word] ^ flip;
  }
  return std::min(end, word * kWordBits + static_cast<std::uint32_t>(std::countr_zero(bits)));
}

}  // namespace

void FrameBitmap::resize(std::uint32_t frames) {
  words_.assign(frames / kWordBits + (frames % kWordBits != 0 ? 1 : 0), 0);  // set-up:
  frames_ = frames;
  clear();
}

void FrameBitmap::begin(std::uint32_t first, std::uint32_t end) noexcept {
  SELMCAST_CHECK(first <= end && end <= frames_, "frames beyond the bitmap");
  std::fill(words_.begin(), words_.end(), 0);
  first_ = first;
  end_ = end;
  present_ = 0;
  horizon_ = first_gap_hint_ = first;
}

bool FrameBitmap::insert(std::uint32_t frame) noexcept {
  SELMCAST_CHECK(frame >= first_ && frame < end_, "not a frame that counts");
  std::uint64_t& word = words_[frame / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (frame % kWordBits);
  if ((word & bit) != 0) return false;
  word |= bit;
  ++present_;
  horizon_ = std::max(horizon_, frame + 1);
  return true;
}

bool FrameBitmap::contains(std::uint32_t frame) const noexcept {
  SELMCAST_CHECK(frame < frames_, "frame number beyond the bitmap");
  return ((words_[frame / kWordBits] >> (frame % kWordBits)) & 1U) != 0;
}

std::uint32_t FrameBitmap::first_gap() noexcept {
  // Frames are only ever added, so everything below the hint stays present until begin().
  first_gap_hint_ = find_bit(words_, first_gap_hint_, end_, false);
  return first_gap_hint_;
}

std::size_t FrameBitmap::gaps_between(std::uint32_t begin, std::uint32_t end,
                                      std::span<NackRange> out) noexcept {
  end = std::min(end, end_);
  std::size_t found = 0;
  std::uint32_t from = find_bit(words_, begin, end, false);
  while (from < end && found < out.size()) {
    const std::uint32_t to = find_bit(words_, from, end, true);
    out[found++] = {from, to - from};
    from = find_bit(words_, to, end, false);
  }
  return found;
}

std::size_t FrameBitmap::gaps_below(std::uint32_t end, std::span<NackRange> out) noexcept {
  return gaps_between(first_gap(), end, out);
}

}  // namespace selmcast
