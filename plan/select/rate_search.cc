#include "plan/select/rate_search.h"

#include <algorithm>
#include <cmath>

#include "plan/select/rate.h"

namespace selmcast {

using slot_kernels::padded;
using slot_kernels::Quotient;

namespace {

bool larger(const Quotient& a, const Quotient& b) noexcept {
  return a.scale < b.scale;
}

}  // namespace

RateSearch::RateSearch(std::uint32_t capacity)
    : rates_(padded(capacity)), collected_(padded(capacity)) {}

bool RateSearch::load(std::span<const Kbps> rates) {
  n_ = static_cast<std::uint32_t>(rates.size());
  summary_ = slot_kernels::load_rates(rates.data(), rates_.data(), n_);
  return summary_.most < static_cast<double>(kFastRateLimit);
}

RateFraction RateSearch::fraction(const Quotient& quotient) const {
  return reduced(static_cast<std::uint64_t>(rates_[quotient.receiver]), quotient.k);
}

RateFraction RateSearch::pick(std::uint64_t rank, std::uint64_t count) {
  // Correctly rounded division keeps different quotients apart and equal ones equal.
  const auto begin = collected_.begin(), end = begin + static_cast<std::ptrdiff_t>(count);
  const auto nth = begin + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(begin, nth, end, larger);
  return fraction(*nth);
}

RateFraction RateSearch::best(std::uint64_t target, std::uint32_t cap) {
  const auto size = padded(n_);
  const auto goal = static_cast<double>(target), limit = static_cast<double>(cap);
  const auto worth_collecting = std::max(32.0, static_cast<double>(n_) / 32);
  // The unknown is the scale 1/y; slots grow with it. `near` has at least `target` of them, `far`
  // fewer.
  double far = 0.0, far_total = 0.0, near = 0.0, near_total = -1.0;
  double scale = (goal + summary_.positive / 2.0) / summary_.sum;
  if (last_target_ == target && last_sum_ > 0) scale = last_scale_ * (last_sum_ / summary_.sum);

  const auto finish = [&](double at, const RateFraction& found) {
    last_scale_ = at;
    last_sum_ = summary_.sum;
    last_target_ = target;
    return found;
  };
  const auto collect = [&] {
    return slot_kernels::collect_quotients(rates_.data(), size, near, far, limit, collected_.data(),
                                           static_cast<std::uint32_t>(collected_.size()));
  };

  for (std::uint32_t turn = 0;; ++turn) {
    const auto total = slot_kernels::total_slots(rates_.data(), size, scale, limit);
    if (total == goal) {
      return finish(scale,
                    fraction(slot_kernels::least_quotient(rates_.data(), size, scale, limit)));
    }
    const auto missing = goal - total;
    if (missing > 0) {
      far = scale;
      far_total = total;
    } else {
      near = scale;
      near_total = total;
    }
    const bool bracketed = near_total >= 0;
    // Once few quotients lie between the ends, they are listed and the right one is picked. Where
    // many are equal, the ends never come that close; then as many as there is room for will do.
    if (bracketed) {
      const auto between = near_total - far_total;
      if (between <= worth_collecting ||
          (turn >= 6 && between <= static_cast<double>(collected_.size()))) {
        const auto listed = collect();
        return finish(near, pick(target - static_cast<std::uint64_t>(far_total), listed));
      }
    }
    // A guess for the other end, a little too far out, so that the next turn can list.
    const auto overshoot = std::sqrt(std::abs(missing)) + 4.0;
    auto next = scale + (missing + (missing > 0 ? overshoot : -overshoot)) / summary_.sum;
    if (next <= far || (bracketed && next >= near) || turn >= 8) {
      next = bracketed ? far + (near - far) / 2 : 2 * std::max(scale, far);
    }
    scale = next;
  }
}

slot_kernels::SlotSummary RateSearch::slots_at(const RateFraction& y, std::uint32_t cap,
                                               std::uint32_t* slots) const {
  // rate * den / num is an integer or at least 2^-32 away from one, and computed with an error
  // below 2^-35: a little more than that, added, lifts what rounding left just below an integer.
  constexpr double kBias = 0x1p-34;
  const auto scale = static_cast<double>(y.den) / static_cast<double>(y.num);
  return slot_kernels::write_slots(rates_.data(), n_, scale, kBias, cap, slots);
}

}  // namespace selmcast
