#include "tools/perf/figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace selmcast::perf {

Spread spread_of(std::vector<double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {kNone, kNone, kNone};
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

std::uint32_t percentile(std::span<const std::uint32_t> sorted, double share) noexcept {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const auto at = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace selmcast::perf
