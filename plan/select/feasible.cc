#include "plan/select/feasible.h"

#include <algorithm>

namespace selmcast {

DegreeTest::DegreeTest(std::uint32_t capacity)
    : slots_(capacity),
      by_slots_(capacity),
      by_out_(capacity),
      count_(capacity + 1),
      next_(capacity + 1),
      wide_(capacity + 2),
      columns_(capacity + 1) {}

void DegreeTest::load(std::span<const std::uint32_t> slots) {
  n_ = static_cast<std::uint32_t>(slots.size());
  std::copy(slots.begin(), slots.end(), slots_.begin());
  std::fill_n(next_.begin(), n_ + 1, 0U);
  for (const auto c : slots) ++next_[c];
  wide_[n_ + 1] = 0;
  for (auto k = n_ + 1; k-- > 0;) wide_[k] = wide_[k + 1] + next_[k];
  columns_[0] = 0;
  for (std::uint32_t k = 1; k <= n_; ++k) columns_[k] = columns_[k - 1] + wide_[k];
  sorted_ = false;
}

void DegreeTest::sort_slots() {
  if (sorted_) return;
  // Counting sort, ascending: receivers with k slots come behind the n - wide_[k] with fewer.
  for (std::uint32_t k = 0; k < n_; ++k) next_[k] = n_ - wide_[k];
  for (std::uint32_t j = 0; j < n_; ++j) by_slots_[next_[slots_[j]]++] = j;
  sorted_ = true;
}

void DegreeTest::count(std::span<const std::uint32_t> out) {
  std::fill_n(count_.begin(), n_ + 1, 0U);
  for (const auto q : out) ++count_[q];
}

std::int64_t DegreeTest::deficit(std::span<const std::uint32_t> out) {
  sort_slots();
  count(out);
  std::uint32_t before = 0;
  for (auto q = n_ + 1; q-- > 0;) {
    next_[q] = before;
    before += count_[q];
  }
  for (std::uint32_t i = 0; i < n_; ++i) by_out_[next_[out[i]]++] = i;

  std::int64_t least = 0, top = 0;
  std::uint32_t narrow = 0;                      // Receivers with slots < k, first of by_slots_.
  std::uint32_t block_begin = 0, block_end = 0;  // Senders tied at the k-th place of by_out_.
  std::uint32_t above = 0, tied = 0;  // Of those before and of those tied: with own slots >= k.
  auto kth = n_;
  for (std::uint32_t k = 1; k <= n_; ++k) {
    for (; narrow < n_ && slots_[by_slots_[narrow]] < k; ++narrow) {
      const auto q = out[by_slots_[narrow]];
      above -= q > kth ? 1U : 0U;
      tied -= q == kth ? 1U : 0U;
    }
    if (k - 1 == block_end) {
      above += tied;
      tied = 0;
      kth = out[by_out_[k - 1]];
      block_begin = block_end;
      block_end += count_[kth];
      for (auto r = block_begin; r < block_end; ++r) tied += slots_[by_out_[r]] >= k ? 1 : 0;
    }
    top += kth;
    // Of the tied senders those with wide columns are the worst choice.
    const auto bonus = above + std::min(k - block_begin, tied);
    least = std::min(least, static_cast<std::int64_t>(columns_[k]) - top - bonus);
  }
  return least;
}

bool DegreeTest::admits(std::span<const std::uint32_t> out) {
  count(out);
  // The bonus of k senders is between 0 and min(k, wide_[k]).
  bool sure = true;
  std::uint32_t top = 0, k = 0;
  for (auto q = n_; q-- > 0;) {
    for (const auto end = k + count_[q]; k < end;) {
      top += q;
      ++k;
      if (columns_[k] < top) return false;
      sure &= columns_[k] >= top + std::min(k, wide_[k]);
    }
  }
  return sure || deficit(out) == 0;
}

}  // namespace selmcast
