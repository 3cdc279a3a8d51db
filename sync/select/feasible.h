// Which out-degrees a set of receive slots admits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sync/select/selection.h"

namespace selmcast {

/// Whether some rate above zero solves a checked problem; the error (bad_input) names the reason.
Result<void> check_solvable(const SelectionProblem& problem);

/// The largest number of pairs (i, j), i != j, each at most once, with at most out[i] pairs of
/// sender i and slots[j] of receiver j, minus the sum of `out`. So 0 means that every sender can
/// have exactly out[i] receivers. Both arrays have the same size n and entries of at most n-1.
///
/// By max-flow/min-cut the value is min over k = 0..n of
///   sum_j min(slots_j, k) - (sum of the k largest out_i + [slots_i >= k])
/// (Gale-Ryser with Fulkerson's forbidden diagonal). O(n log n).
std::int64_t flow_deficit(const std::vector<std::uint32_t>& out,
                          const std::vector<std::uint32_t>& slots);

}  // namespace selmcast
