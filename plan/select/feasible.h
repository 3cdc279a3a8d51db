// Which out-degrees a set of receive slots admits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/select/selection.h"

namespace selmcast {

/// Whether some rate above zero solves a checked problem; the error (bad_input) names the reason.
Result<void> check_solvable(const SelectionProblem& problem);

/// Which out-degrees the slots admit, each pair (i, j), i != j, at most once. Allocates in its
/// constructor only. One thread at a time.
///
/// By max-flow/min-cut the most pairs with at most out[i] of sender i and slots[j] of receiver j
/// are
///   sum_i out_i + min over k = 0..n of
///     sum_j min(slots_j, k) - (sum of the k largest out_i + [slots_i >= k])
/// (Gale-Ryser with Fulkerson's forbidden diagonal).
class DegreeTest {
 public:
  explicit DegreeTest(std::uint32_t capacity);

  /// Slots of n <= capacity receivers, each at most n-1. O(n).
  void load(std::span<const std::uint32_t> slots);
  /// Slots of all receivers together.
  std::uint64_t total() const noexcept { return columns_[n_]; }

  /// The most pairs minus the sum of `out` (n entries of at most n-1): 0 means that every sender
  /// can have exactly out[i] receivers. O(n).
  std::int64_t deficit(std::span<const std::uint32_t> out);
  /// deficit(out) == 0; most often decided by a bound that needs no sorting of the slots.
  bool admits(std::span<const std::uint32_t> out);

 private:
  /// Senders per out-degree into count_.
  void count(std::span<const std::uint32_t> out);
  void sort_slots();

  std::uint32_t n_ = 0;
  bool sorted_ = false;  ///< by_slots_ is that of slots_.
  std::vector<std::uint32_t> slots_, by_slots_, by_out_, count_, next_;
  std::vector<std::uint32_t> wide_;  ///< wide_[k] = receivers with slots >= k.
  /// columns_[k] = sum_j min(slots_j, k), at most n (n-1) < 2^32 as all such sums.
  std::vector<std::uint32_t> columns_;
};

}  // namespace selmcast
