// Numbers out of repeats.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace selmcast::perf {

/// Median of an odd number of values; mean of the middle two of an even number. NaN of none.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);

/// The smallest value that at least `share` (0..1) of the `sorted` values do not exceed (nearest
/// rank). 0 of none.
std::uint32_t percentile(std::span<const std::uint32_t> sorted, double share) noexcept;

}  // namespace selmcast::perf
