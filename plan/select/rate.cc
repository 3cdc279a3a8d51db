#include "plan/select/rate.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace selmcast {
namespace {

/// The candidates of one receiver that are still open: rate/c for low <= c <= high.
struct Candidates {
  Kbps rate = 0;
  std::uint32_t low = 1, high = 0;

  std::uint64_t count() const noexcept { return low > high ? 0 : std::uint64_t{high} - low + 1; }
  std::uint32_t middle() const noexcept { return low + (high - low) / 2; }
};

/// The weighted median of the middles: at least a quarter of all open candidates lies on each side
/// of it (itself counted on both).
RateFraction pivot_of(std::vector<Candidates>& open) {
  std::sort(open.begin(), open.end(), [](const Candidates& a, const Candidates& b) {
    return multiply(a.rate, b.middle()) < multiply(b.rate, a.middle());
  });
  std::uint64_t total = 0;
  for (const auto& c : open) total += c.count();
  std::uint64_t below = 0;
  for (const auto& c : open) {
    below += c.count();
    if (2 * below >= total) return reduced(c.rate, c.middle());
  }
  return reduced(open.back().rate, open.back().middle());
}

}  // namespace

bool operator<(const RateFraction& a, const RateFraction& b) noexcept {
  return multiply(a.num, b.den) < multiply(b.num, a.den);
}

RateFraction reduced(std::uint64_t num, std::uint64_t den) noexcept {
  if (den == 1) return {num, 1};
  if (den == 0) return {};
  // The remainder first: denominators are small, and binary steps on large numbers are not free.
  const auto divisor = std::gcd(num % den, den);
  return {num / divisor, den / divisor};
}

WideProduct multiply(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t kLow = 0xFFFFFFFFU;
  const std::uint64_t a0 = a & kLow, a1 = a >> 32U, b0 = b & kLow, b1 = b >> 32U;
  const std::uint64_t mid = a1 * b0 + ((a0 * b0) >> 32U);
  const std::uint64_t mid2 = a0 * b1 + (mid & kLow);
  return {a1 * b1 + (mid >> 32U) + (mid2 >> 32U), a * b};
}

std::strong_ordering compare(std::uint64_t a, std::uint64_t b, const RateFraction& y) noexcept {
  return multiply(a, y.den) <=> multiply(y.num, b);
}

std::uint32_t slots_at(Kbps d, const RateFraction& y, std::uint32_t cap) noexcept {
  if (d == 0 || y.den <= std::numeric_limits<std::uint64_t>::max() / d) {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(d * y.den / y.num, cap));
  }
  std::uint32_t low = 0, high = cap;
  while (low < high) {
    const auto middle = high - (high - low) / 2;
    if (compare(d, middle, y) >= 0) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

std::vector<std::uint32_t> slots_at(const std::vector<Kbps>& rx, const RateFraction& y,
                                    std::uint32_t cap) {
  std::vector<std::uint32_t> out(rx.size());
  std::transform(rx.begin(), rx.end(), out.begin(), [&](Kbps d) { return slots_at(d, y, cap); });
  return out;
}

std::optional<RateFraction> best_rate(const std::vector<Kbps>& rx, std::uint32_t cap,
                                      const RateFraction& upper,
                                      const std::function<bool(const RateFraction&)>& feasible) {
  if (feasible(upper)) return upper;
  std::vector<Candidates> open;
  for (const auto d : rx) {
    if (d > 0) open.push_back({d, slots_at(d, upper, cap) + 1, cap});
  }
  std::optional<RateFraction> best;
  while (true) {
    std::erase_if(open, [](const Candidates& c) { return c.count() == 0; });
    if (open.empty()) return best;
    const auto pivot = pivot_of(open);
    const bool good = feasible(pivot);
    if (good) best = pivot;
    for (auto& c : open) {
      // Candidates above the pivot have c < rate/pivot, those at or below it c >= rate/pivot.
      const auto floor = slots_at(c.rate, pivot, cap);
      const bool exact = floor > 0 && compare(c.rate, floor, pivot) == 0;
      if (good) {
        c.high = std::min(c.high, exact ? floor - 1 : floor);
      } else {
        c.low = std::max(c.low, floor + 1);
      }
    }
  }
}

Bottleneck find_bottleneck(const std::vector<Kbps>& tx, const std::vector<std::uint32_t>& copies,
                           const std::vector<Kbps>& rx, const std::vector<std::uint32_t>& slots,
                           const RateFraction& y) noexcept {
  for (std::uint32_t i = 0; i < tx.size(); ++i) {
    if (copies[i] > 0 && compare(tx[i], copies[i], y) == 0) return {true, i, copies[i]};
  }
  for (std::uint32_t j = 0; j < rx.size(); ++j) {
    if (slots[j] > 0 && compare(rx[j], slots[j], y) == 0) return {false, j, slots[j]};
  }
  return {};
}

}  // namespace selmcast
