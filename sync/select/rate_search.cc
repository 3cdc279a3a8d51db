#include "sync/select/rate_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sync/select/rate.h"

namespace selmcast {

using slot_kernels::padded;
using slot_kernels::Quotient;

namespace {

/// How far the answer may move in both directions before the window is built again, and room for
/// twice that.
constexpr double kWindowReach = 160;
constexpr std::uint32_t kWindowMost = 1024;

bool larger(const Quotient& a, const Quotient& b) noexcept {
  return a.value > b.value;
}

}  // namespace

RateSearch::RateSearch(std::uint32_t capacity)
    : rates_(padded(capacity)), collected_(padded(capacity)) {
  window_.sorted.resize(kWindowMost);
}

bool RateSearch::load(std::span<const Kbps> rates) {
  n_ = static_cast<std::uint32_t>(rates.size());
  window_.size = 0;
  summary_ = slot_kernels::load_rates(rates.data(), rates_.data(), n_);
  return summary_.most < static_cast<double>(kFastRateLimit);
}

void RateSearch::change(std::uint32_t receiver, Kbps rate) {
  window_.size = 0;
  const auto before = rates_[receiver];
  const auto after = static_cast<double>(rate);
  rates_[receiver] = after;
  summary_.sum += after - before;
  summary_.positive += (after > 0 ? 1U : 0U) - (before > 0 ? 1U : 0U);
  summary_.most = std::max(summary_.most, after);
  const bool inside = before > summary_.least_positive && after > summary_.least_positive;
  if (inside) return;
  summary_.least = *std::min_element(rates_.begin(), rates_.begin() + n_);
  summary_.least_positive = 0;
  for (std::uint32_t j = 0; j < n_; ++j) {
    if (rates_[j] == 0) continue;
    if (summary_.least_positive == 0 || rates_[j] < summary_.least_positive) {
      summary_.least_positive = rates_[j];
    }
  }
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
  const auto collect = [&]() -> slot_kernels::Collected {
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
        return finish(near, pick(target - static_cast<std::uint64_t>(far_total), listed.count));
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

RateFraction RateSearch::best_after(std::uint32_t receiver, Kbps rate, std::uint64_t target,
                                    std::uint32_t cap) {
  auto window = std::exchange(window_.size, 0);
  const auto before = rates_[receiver];
  change(receiver, rate);
  window_.size = window_.cap == cap ? window : 0;
  if (window_.size > 0) update_window(receiver, before, rates_[receiver]);
  if (!window_.holds(target)) {
    const auto found = best(target, cap);
    if (!build_window(target, cap)) return found;
  }
  return fraction(window_.sorted[target - window_.far_total - 1]);
}

bool RateSearch::build_window(std::uint64_t target, std::uint32_t cap) {
  const auto size = padded(n_);
  window_.cap = cap;
  window_.near = last_scale_ + kWindowReach / summary_.sum;
  window_.far = std::max(0.0, last_scale_ - kWindowReach / summary_.sum);
  const auto listed = slot_kernels::collect_quotients(
      rates_.data(), size, window_.near, window_.far, cap, window_.sorted.data(), kWindowMost);
  window_.far_total = static_cast<std::uint64_t>(listed.total_far);
  window_.size = listed.count <= kWindowMost ? static_cast<std::uint32_t>(listed.count) : 0;
  std::sort(window_.sorted.begin(), window_.sorted.begin() + window_.size, larger);
  return window_.holds(target);
}

void RateSearch::update_window(std::uint32_t receiver, double before, double after) {
  const auto slots = [this](double rate, double scale) {
    return std::min(std::floor(rate * scale), static_cast<double>(window_.cap));
  };
  const auto first = window_.sorted.begin();
  const auto last = std::remove_if(first, first + window_.size,
                                   [&](const Quotient& q) { return q.receiver == receiver; });
  window_.size = static_cast<std::uint32_t>(last - first);
  window_.far_total += static_cast<std::uint64_t>(slots(after, window_.far));
  window_.far_total -= static_cast<std::uint64_t>(slots(before, window_.far));
  for (auto k = slots(after, window_.far) + 1; k <= slots(after, window_.near); ++k) {
    if (window_.size == kWindowMost) {
      window_.size = 0;
      return;
    }
    const Quotient added{after / k, receiver, static_cast<std::uint32_t>(k)};
    const auto end = first + window_.size++;
    const auto at = std::upper_bound(first, end, added, larger);
    std::copy_backward(at, end, end + 1);
    *at = added;
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
