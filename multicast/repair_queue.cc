#include "multicast/repair_queue.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr std::uint16_t kSeveral = 0xFFFF;
constexpr std::uint32_t kReceiversMax = 65'533;
constexpr std::uint32_t kOwedWordBits = 64;

constexpr std::uint64_t bit_of(std::uint32_t frame) noexcept {
  return std::uint64_t{1} << (frame % kOwedWordBits);
}

}  // namespace

void RepairQueue::resize(std::uint32_t frames, std::uint32_t receivers) {
  SELMCAST_CHECK(receivers <= kReceiversMax, "too many receivers for 16-bit marks");
  marks_.assign(frames, 0);                                                              // set-up:
  owed_bits_.assign(frames / kOwedWordBits + (frames % kOwedWordBits != 0 ? 1 : 0), 0);  // set-up:
  receivers_ = receivers;
  clear();
}

void RepairQueue::clear() noexcept {
  std::fill(owed_bits_.begin(), owed_bits_.end(), 0);
  owed_ = cursor_ = 0;
}

void RepairQueue::request(std::uint32_t receiver, NackRange range) noexcept {
  SELMCAST_CHECK(receiver < receivers_, "receiver index beyond the queue");
  SELMCAST_CHECK(range.first <= marks_.size() && range.count <= marks_.size() - range.first,
                 "requested frames beyond the queue");
  const auto mark = static_cast<std::uint16_t>(receiver);
  for (std::uint32_t frame = range.first; frame < range.first + range.count; ++frame) {
    std::uint64_t& word = owed_bits_[frame / kOwedWordBits];
    if ((word & bit_of(frame)) == 0) {
      word |= bit_of(frame);
      marks_[frame] = mark;
      ++owed_;
    } else if (marks_[frame] != mark) {
      marks_[frame] = kSeveral;
    }
  }
}

std::uint32_t RepairQueue::next_owed(std::uint32_t from) const noexcept {
  const auto frames = static_cast<std::uint32_t>(marks_.size());
  if (from >= frames) return frames;
  std::uint32_t word = from / kOwedWordBits;
  std::uint64_t bits = owed_bits_[word] & (~std::uint64_t{0} << (from % kOwedWordBits));
  while (bits == 0) {
    if (++word == owed_bits_.size()) return frames;
    bits = owed_bits_[word];
  }
  return word * kOwedWordBits + static_cast<std::uint32_t>(std::countr_zero(bits));
}

std::optional<RepairRun> RepairQueue::take(std::uint32_t frames_max) noexcept {
  if (owed_ == 0 || frames_max == 0) return std::nullopt;
  const auto frames = static_cast<std::uint32_t>(marks_.size());
  std::uint32_t first = next_owed(cursor_);
  if (first == frames) first = next_owed(0);
  const std::uint16_t mark = marks_[first];
  std::uint32_t end = first;
  const std::uint32_t limit = first + std::min(frames_max, frames - first);
  while (end < limit && (owed_bits_[end / kOwedWordBits] & bit_of(end)) != 0 &&
         marks_[end] == mark) {
    owed_bits_[end / kOwedWordBits] &= ~bit_of(end);
    ++end;
  }
  owed_ -= end - first;
  cursor_ = end;
  const bool several = mark == kSeveral;
  return RepairRun{first, end - first, several, several ? 0U : mark};
}

}  // namespace selmcast
