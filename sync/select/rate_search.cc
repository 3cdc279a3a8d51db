#include "sync/select/rate_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sync/select/rate.h"

namespace selmcast {

using slot_kernels::padded;
using slot_kernels::Quotient;

namespace {

/// Cells of the window: how many quotients they hold where these are evenly spread, and the room
/// for more when a window is new. The smaller, the more cells must be passed to reach an answer.
constexpr std::uint32_t kPerCell = 4, kSpare = 8;
constexpr std::uint32_t cells_for(std::uint32_t n) noexcept {
  return 2 * padded(n) / kPerCell;
}
/// A receiver has at most one quotient more than its rate times the width of the window.
constexpr std::uint32_t most_listed(std::uint32_t n) noexcept {
  return cells_for(n) * kPerCell + n + 1;
}

bool larger(const Quotient& a, const Quotient& b) noexcept {
  return a.scale < b.scale;
}

}  // namespace

QuotientWindow::QuotientWindow(std::uint32_t capacity)
    : cell_(cells_for(capacity) + 1),
      entries_(most_listed(capacity) + std::size_t{cells_for(capacity)} * kSpare),
      listed_(most_listed(capacity)) {}

void QuotientWindow::build(const double* rates, std::uint32_t n, double sum, std::uint32_t cap,
                           const RateFraction& centre) {
  cells_ = cells_for(n);
  cap_ = cap;
  per_scale_ = sum / kPerCell;
  const auto middle = cell_of(static_cast<double>(centre.den) / static_cast<double>(centre.num));
  first_ = middle - std::min<std::uint64_t>(middle, cells_ / 2);
  // Whatever rounding does at the ends, all quotients of the cells lie between these.
  constexpr double kWiden = 0x1p-40;
  const auto far = static_cast<double>(first_) / per_scale_ * (1 - kWiden);
  const auto near = static_cast<double>(first_ + cells_) / per_scale_ * (1 + kWiden);
  const auto room = most_listed(n);
  const auto listed =
      slot_kernels::collect_quotients(rates, padded(n), near, far, cap, listed_.data(), room);
  at_ = 0;
  before_ = static_cast<std::uint64_t>(listed.total_far);
  if (listed.count > room) return clear();
  distribute({listed_.data(), static_cast<std::size_t>(listed.count)});
}

void QuotientWindow::distribute(std::span<const Quotient> listed) {
  std::fill_n(cell_.begin(), cells_, Cell{});
  for (const auto& q : listed) {
    const auto number = cell_of(q.scale);
    if (number < first_) {
      ++before_;
    } else if (number - first_ < cells_) {
      ++cell_[number - first_].size;
    }
  }
  std::uint32_t start = 0;
  for (std::uint32_t c = 0; c < cells_; ++c) {
    cell_[c].start = start;
    start += std::exchange(cell_[c].size, 0) + kSpare;
  }
  cell_[cells_].start = start;
  for (const auto& q : listed) {
    const auto at = cell_of(q.scale) - first_;
    if (at >= cells_) continue;
    auto& cell = cell_[at];
    entries_[cell.start + cell.size++] = {static_cast<std::uint16_t>(q.receiver),
                                          static_cast<std::uint16_t>(q.k)};
  }
}

/// Calls quotient(cell, entry) for a receiver's quotients in the window; returns how many come
/// before it.
template <class Visit>
std::uint32_t QuotientWindow::visit(std::uint32_t receiver, double rate,
                                    const Visit& quotient) const {
  if (rate == 0) return 0;
  auto k = static_cast<std::uint32_t>(
      std::min(rate * (static_cast<double>(first_) / per_scale_), static_cast<double>(cap_)));
  while (k > 0 && cell_of(k / rate) >= first_) --k;
  while (k < cap_ && cell_of((k + 1) / rate) < first_) ++k;
  const auto before = k;
  while (k++ < cap_) {
    const auto at = cell_of(k / rate) - first_;
    if (at >= cells_) break;
    quotient(static_cast<std::uint32_t>(at),
             Entry{static_cast<std::uint16_t>(receiver), static_cast<std::uint16_t>(k)});
  }
  return before;
}

void QuotientWindow::change(std::uint32_t receiver, double before, double after) {
  before_ -= visit(receiver, before, [this](std::uint32_t at, const Entry& entry) {
    auto& cell = cell_[at];
    const auto first = entries_.begin() + cell.start;
    *std::find(first, first + cell.size, entry) = first[cell.size - 1];
    --cell.size;
    before_ -= at < at_ ? 1 : 0;
  });
  bool fits = true;
  before_ += visit(receiver, after, [&](std::uint32_t at, const Entry& entry) {
    auto& cell = cell_[at];
    fits = fits && cell.start + cell.size < cell_[at + 1].start;
    if (!fits) return;
    entries_[cell.start + cell.size++] = entry;
    before_ += at < at_ ? 1 : 0;
  });
  if (!fits) clear();
}

std::optional<Quotient> QuotientWindow::find(const double* rates, std::uint64_t target) {
  while (target <= before_) {
    if (at_ == 0) return std::nullopt;
    before_ -= cell_[--at_].size;
  }
  while (target > before_ + cell_[at_].size) {
    if (at_ + 1 == cells_) return std::nullopt;
    before_ += cell_[at_++].size;
  }
  return nth_of(cell_[at_], static_cast<std::uint32_t>(target - before_), rates);
}

Quotient QuotientWindow::nth_of(const Cell& cell, std::uint32_t rank, const double* rates) {
  const auto* const entry = entries_.data() + cell.start;
  const auto first = listed_.begin(), last = first + cell.size;
  bool equal = true;
  for (auto q = first; q != last; ++q) {
    const auto [receiver, k] = entry[q - first];
    *q = {k / rates[receiver], receiver, k};
    equal = equal && q->scale == first->scale;
  }
  // Full cells are those of equal rates: nothing to select there.
  const auto nth = first + (rank - 1);
  if (!equal) std::nth_element(first, nth, last, larger);
  return *nth;
}

RateSearch::RateSearch(std::uint32_t capacity)
    : rates_(padded(capacity)), collected_(padded(capacity)), window_(capacity) {}

bool RateSearch::load(std::span<const Kbps> rates) {
  n_ = static_cast<std::uint32_t>(rates.size());
  window_.clear();
  summary_ = slot_kernels::load_rates(rates.data(), rates_.data(), n_);
  return summary_.most < static_cast<double>(kFastRateLimit);
}

void RateSearch::change(std::uint32_t receiver, Kbps rate) {
  window_.clear();
  set_rate(receiver, static_cast<double>(rate));
}

void RateSearch::set_rate(std::uint32_t receiver, double after) {
  const auto before = std::exchange(rates_[receiver], after);
  summary_.sum += after - before;
  summary_.positive += (after > 0 ? 1U : 0U) - (before > 0 ? 1U : 0U);
  summary_.most = std::max(summary_.most, after);
  auto& least = summary_.least_positive;
  if (after > 0 && (after <= least || least == 0)) {
    least = after;
  } else if (before > 0 && before == least) {
    // Where many have the least rate, another one is soon found.
    least = 0;
    for (std::uint32_t j = 0; j < n_ && least != before; ++j) {
      if (rates_[j] > 0 && (least == 0 || rates_[j] < least)) least = rates_[j];
    }
  }
  summary_.least = summary_.positive == n_ ? least : 0;
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
  const auto before = rates_[receiver];
  set_rate(receiver, static_cast<double>(rate));
  if (window_.cap() != cap) window_.clear();
  if (!window_.empty()) window_.change(receiver, before, rates_[receiver]);
  if (!window_.empty()) {
    if (const auto found = window_.find(rates_.data(), target)) return fraction(*found);
  }
  const auto found = best(target, cap);
  window_.build(rates_.data(), n_, summary_.sum, cap, found);
  return found;
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
