#include "plan/select/fair_degrees.h"

#include <algorithm>
#include <numeric>

namespace selmcast {

FairDegrees::FairDegrees(std::uint32_t capacity)
    : low_(capacity), high_(capacity), lowest_(capacity) {}

void FairDegrees::start(std::span<const std::uint32_t> least, std::span<const std::uint32_t> most) {
  n_ = static_cast<std::uint32_t>(least.size());
  std::copy(least.begin(), least.end(), low_.begin());
  std::copy(most.begin(), most.end(), high_.begin());
}

void FairDegrees::fill(std::uint32_t level, std::span<std::uint32_t> out) const noexcept {
  for (std::uint32_t i = 0; i < n_; ++i) out[i] = std::min(std::max(level, low_[i]), high_[i]);
}

std::uint64_t FairDegrees::sum_at(std::uint32_t level) const noexcept {
  std::uint32_t sum = 0;  // Below 2^32: fewer than 2^16 members with fewer than 2^16 receivers.
  for (std::uint32_t i = 0; i < n_; ++i) sum += std::min(std::max(level, low_[i]), high_[i]);
  return sum;
}

std::uint32_t FairDegrees::level_of(std::uint64_t pairs, std::uint32_t from) const noexcept {
  auto low = from, high = n_ - 1;
  while (low < high) {
    const auto middle = high - (high - low) / 2;
    if (sum_at(middle) <= pairs) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::uint32_t FairDegrees::highest_level(DegreeTest& slots, std::uint64_t most_pairs,
                                         std::uint32_t from, std::span<std::uint32_t> out) const {
  auto low = from, high = level_of(most_pairs, from);
  fill(high, out);
  if (slots.admits(out)) return high;
  --high;
  while (low < high) {
    const auto middle = high - (high - low) / 2;
    fill(middle, out);
    if (slots.admits(out)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  fill(low, out);
  return low;
}

bool FairDegrees::raised(DegreeTest& slots, std::size_t from, std::size_t count,
                         std::span<std::uint32_t> out) const {
  for (auto c = from; c < from + count; ++c) ++out[lowest_[c]];
  if (slots.admits(out)) return true;
  for (auto c = from; c < from + count; ++c) --out[lowest_[c]];
  return false;
}

std::uint64_t FairDegrees::raise(DegreeTest& slots, std::uint64_t left,
                                 std::span<std::uint32_t> out) {
  // One by one in their order, but the longest stretches that can be raised are found by bisection.
  for (std::size_t at = 0; at < candidates_ && left > 0; ++at) {
    auto stretch = static_cast<std::size_t>(std::min<std::uint64_t>(left, candidates_ - at));
    if (raised(slots, at, stretch, out)) {
      left -= stretch;
      at += stretch - 1;
      continue;
    }
    while (stretch > 1) {
      const auto half = stretch / 2;
      if (raised(slots, at, half, out)) {
        at += half;
        left -= half;
        stretch -= half;
      } else {
        stretch = half;
      }
    }
    const auto tight = lowest_[at];
    low_[tight] = high_[tight] = out[tight];
  }
  return left;
}

bool FairDegrees::guess(DegreeTest& slots, std::span<const std::uint32_t> least,
                        std::span<const std::uint32_t> most, std::span<const std::uint32_t> order,
                        std::span<std::uint32_t> out) {
  start(least, most);
  const auto pairs = std::min(slots.total(), sum_at(n_ - 1));
  if (sum_at(0) > pairs) return false;
  const auto level = level_of(pairs, 0);
  fill(level, out);
  auto left = static_cast<std::uint32_t>(pairs - sum_at(level));
  for (std::uint32_t r = 0; r < n_ && left > 0; ++r) {
    const auto i = order.empty() ? r : order[r];
    const auto more = out[i] == level && high_[i] > level ? 1U : 0U;
    out[i] += more;
    left -= more;
  }
  return slots.admits(out);
}

void FairDegrees::share(DegreeTest& slots, std::span<const std::uint32_t> least,
                        std::span<const std::uint32_t> most, std::span<const std::uint32_t> order,
                        std::span<std::uint32_t> out) {
  if (guess(slots, least, most, order, out)) return;
  // Without a limit of the senders every slot can be used.
  const auto all = sum_at(n_ - 1);
  const auto most_pairs = all == std::uint64_t{n_} * (n_ - 1)
                              ? slots.total()
                              : all - static_cast<std::uint64_t>(-slots.deficit(most));
  for (std::uint32_t level = 0;;) {
    level = highest_level(slots, most_pairs, level, out);
    auto left = most_pairs - std::accumulate(out.begin(), out.end(), std::uint64_t{0});
    if (left == 0) return;
    candidates_ = 0;
    for (std::uint32_t r = 0; r < n_; ++r) {
      const auto i = order.empty() ? r : order[r];
      if (out[i] == level && high_[i] > level) lowest_[candidates_++] = i;
    }
    if (raise(slots, left, out) == 0) return;
  }
}

}  // namespace selmcast
