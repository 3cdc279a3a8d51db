// Exact arithmetic on rates: slots, comparisons, and the search for the best common rate.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.h"
#include "plan/select/selection.h"

namespace selmcast {

inline constexpr Kbps kRateLimit = Kbps{1} << 53U;
inline constexpr std::uint32_t kMaxMembers = 65'535;

constexpr std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

/// The 128-bit product of two 64-bit numbers; ordered by value.
struct WideProduct {
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const WideProduct&) const = default;
};
WideProduct multiply(std::uint64_t a, std::uint64_t b) noexcept;

/// Sign of a/b - y for b, y > 0: how the rate a/b compares with y.
std::strong_ordering compare(std::uint64_t a, std::uint64_t b, const RateFraction& y) noexcept;

/// min(floor(d / y), cap): how many transfers of rate y > 0 the rate d carries.
std::uint32_t slots_at(Kbps d, const RateFraction& y, std::uint32_t cap) noexcept;
/// The same for every receiver.
std::vector<std::uint32_t> slots_at(const std::vector<Kbps>& rx, const RateFraction& y,
                                    std::uint32_t cap);

/// The highest rate that is feasible and at most `upper`, where `feasible` is monotone (true below,
/// false above some rate) and changes only at quotients rx[j]/c, 1 <= c <= cap; nullopt when none
/// is. Bisects the n*cap quotients without listing them (weighted median of the n sorted
/// sequences): O(log(n cap)) calls of `feasible` and O(n log n) work between two.
std::optional<RateFraction> best_rate(const std::vector<Kbps>& rx, std::uint32_t cap,
                                      const RateFraction& upper,
                                      const std::function<bool(const RateFraction&)>& feasible);

/// The tight side at rate y: the lowest sender with tx/copies == y, otherwise the lowest receiver
/// whose rate is used up by its slots. `copies[i]` = how often sender i pays for y.
Bottleneck find_bottleneck(const std::vector<Kbps>& tx, const std::vector<std::uint32_t>& copies,
                           const std::vector<Kbps>& rx, const std::vector<std::uint32_t>& slots,
                           const RateFraction& y) noexcept;

}  // namespace selmcast
