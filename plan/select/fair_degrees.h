// How the slots of a round are shared among the senders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/select/feasible.h"

namespace selmcast {

/// Fair out-degrees without looking at pairs: the most receivers in total and, among such degrees,
/// the lexicographically largest sorted vector. The degrees that slots admit form a polymatroid, so
/// filling up the senders with the fewest receivers is exact, and a sender that cannot be raised
/// once never can again. Allocates in its constructor only. One thread at a time.
class FairDegrees {
 public:
  explicit FairDegrees(std::uint32_t capacity);

  /// Tries the degrees that share() would give if only the sums of slots and of `most` counted.
  /// True when `slots` admit them: then they are in `out` and are what share() gives, and `least`
  /// is admitted. One test of O(n) for the common case.
  bool guess(DegreeTest& slots, std::span<const std::uint32_t> least,
             std::span<const std::uint32_t> most, std::span<const std::uint32_t> order,
             std::span<std::uint32_t> out);

  /// Degrees between least[i] and most[i] <= n-1 into `out`; `slots` admits `least`. Who comes
  /// first in `order` (all senders, or empty for their indices) gets the odd receivers.
  /// O(n) when guess() is right, otherwise O(log n) such tests and as many for each sender that
  /// the receivers keep below the level of the others.
  void share(DegreeTest& slots, std::span<const std::uint32_t> least,
             std::span<const std::uint32_t> most, std::span<const std::uint32_t> order,
             std::span<std::uint32_t> out);

 private:
  void start(std::span<const std::uint32_t> least, std::span<const std::uint32_t> most);
  void fill(std::uint32_t level, std::span<std::uint32_t> out) const noexcept;
  std::uint32_t level_of(std::uint64_t pairs, std::uint32_t from) const noexcept;
  std::uint64_t sum_at(std::uint32_t level) const noexcept;
  std::uint32_t highest_level(DegreeTest& slots, std::uint64_t most_pairs, std::uint32_t from,
                              std::span<std::uint32_t> out) const;
  std::uint64_t raise(DegreeTest& slots, std::uint64_t left, std::span<std::uint32_t> out);
  bool raised(DegreeTest& slots, std::size_t from, std::size_t count,
              std::span<std::uint32_t> out) const;

  std::uint32_t n_ = 0;
  std::vector<std::uint32_t> low_, high_;  ///< Equal for senders that cannot be raised any more.
  std::vector<std::uint32_t> lowest_;      ///< Senders at the level, in their order.
  std::size_t candidates_ = 0;
};

}  // namespace selmcast
