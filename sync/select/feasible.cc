#include "sync/select/feasible.h"

#include <algorithm>
#include <numeric>

namespace selmcast {
namespace {

/// Counts marked positions of a prefix (Fenwick tree).
class PrefixCounter {
 public:
  explicit PrefixCounter(std::size_t size) : tree_(size + 1) {
    for (std::size_t at = 1; at <= size; ++at)
      tree_[at] = static_cast<std::int64_t>(at & (~at + 1));
  }
  void unmark(std::size_t position) noexcept {
    for (auto at = position + 1; at < tree_.size(); at += at & (~at + 1)) --tree_[at];
  }
  std::int64_t before(std::size_t position) const noexcept {
    std::int64_t sum = 0;
    for (auto at = position; at > 0; at &= at - 1) sum += tree_[at];
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;  // All marked at first.
};

std::vector<std::uint32_t> sorted_by(const std::vector<std::uint32_t>& key, bool descending) {
  std::vector<std::uint32_t> order(key.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return descending ? key[a] > key[b] : key[a] < key[b];
  });
  return order;
}

}  // namespace

std::int64_t flow_deficit(const std::vector<std::uint32_t>& out,
                          const std::vector<std::uint32_t>& slots) {
  const auto n = out.size();
  const auto by_out = sorted_by(out, true);
  const auto by_slots = sorted_by(slots, false);
  std::vector<std::size_t> place(n);
  for (std::size_t r = 0; r < n; ++r) place[by_out[r]] = r;

  PrefixCounter wide(n);  // Senders of by_out whose own slots are >= k.
  std::int64_t least = 0, top = 0, columns = 0;
  std::size_t narrow = 0;  // Receivers with slots < k.
  std::size_t block_begin = 0, block_end = 0;
  for (std::size_t k = 1; k <= n; ++k) {
    while (narrow < n && slots[by_slots[narrow]] < k) wide.unmark(place[by_slots[narrow++]]);
    const auto kth = out[by_out[k - 1]];
    top += kth;
    columns += static_cast<std::int64_t>(n - narrow);
    if (k - 1 == block_end) {
      block_begin = block_end;
      while (block_end < n && out[by_out[block_end]] == kth) ++block_end;
    }
    // Of the senders tied at the k-th place those with wide columns are the worst choice.
    const auto above = wide.before(block_begin);
    const auto tied = wide.before(block_end) - above;
    const auto bonus = above + std::min(static_cast<std::int64_t>(k - block_begin), tied);
    least = std::min(least, columns - top - bonus);
  }
  return least;
}

}  // namespace selmcast
