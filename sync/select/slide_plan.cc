#include "sync/select/slide_plan.h"

#include <algorithm>
#include <numeric>

#include "sync/select/rate.h"

namespace selmcast {
namespace {

struct Turns {
  std::uint32_t cycle = 1, period = 1;
};
/// Of columns of at least `width` on a ring of `rows`.
Turns turns_of(std::uint32_t rows, std::uint32_t width, std::uint32_t budget) {
  if (width >= rows) return {};
  const auto cycle = ceil_div(rows, std::min(budget, width));
  return {cycle, 1 + ceil_div(std::uint64_t{rows - width} * cycle, rows)};
}

/// The least width with which the period is at most k_bound; n when there is none.
std::uint32_t width_for(std::uint32_t rows, std::uint32_t n, std::uint32_t k_bound,
                        std::uint32_t budget) {
  std::uint32_t low = 1, high = n;  // A wider column never takes longer.
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (turns_of(rows, middle, budget).period <= k_bound) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace

SlidePlan::SlidePlan(RingPlan ring, std::uint32_t p, std::uint32_t budget)
    : ring_(std::move(ring)), p_(p), budget_(budget) {
  measure();
}

Result<SlidePlan> SlidePlan::make(std::uint32_t p, std::uint32_t k_bound, std::uint32_t budget,
                                  std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps) {
  SELMCAST_CHECK(budget > 0, "a budget of at least one join");
  auto ring = RingPlan::make(p, tx_kbps, rx_kbps, 0);
  if (!ring) return std::move(ring).error();
  SlidePlan plan(std::move(ring).value(), p, budget);
  // A receiver that has rate but no slot is never served, whatever the period of the others.
  const auto met = [&] {
    const auto slots = plan.ring_.slots();
    bool served = true;
    for (std::size_t j = 0; j < slots.size(); ++j) {
      served = served && (slots[j] > 0 || rx_kbps[j] == 0);
    }
    return served && plan.period_ <= k_bound;
  };
  if (k_bound == 0 || met()) return plan;
  const auto n = plan.ring_.members();
  for (const auto rows : {n - 1, n}) {
    const auto width = width_for(rows, n, k_bound, budget);
    if (width > n - 1) continue;
    plan.ring_.raise_slots(width);
    plan.measure();
    if (met()) return plan;
  }
  return bad_input("no solution: not every pair can meet within k = " + std::to_string(k_bound) +
                   " rounds of " + std::to_string(budget) + " joins; the smallest possible k is " +
                   std::to_string(ceil_div(n, n - 1)));
}

void SlidePlan::measure() {
  const auto slots = ring_.slots();
  rows_ = ring_.members() - (ring_.equal_slots() ? 1 : 0);
  auto least = rows_;
  for (const auto c : slots) least = c > 0 ? std::min(least, c) : least;
  const auto turns = turns_of(rows_, least, budget_);
  cycle_ = turns.cycle;
  period_ = turns.period;
}

std::uint32_t SlidePlan::shift_of(std::uint64_t round) const noexcept {
  return static_cast<std::uint32_t>(round % cycle_ * rows_ / cycle_);
}

void SlidePlan::list_column(std::uint32_t member, std::uint32_t shift, std::uint32_t width,
                            std::vector<std::uint32_t>& out) const {
  const auto n = ring_.members();
  out.clear();
  for (std::uint32_t o = 0; o < width; ++o) {
    const auto sender = ring_.equal_slots() ? (member + 1 + (shift + o) % rows_) % n
                                            : (ring_.first_row(member) + shift + o) % n;
    if (sender != member) out.push_back(sender);
  }
  std::sort(out.begin(), out.end());
}

RingRound SlidePlan::round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const {
  const auto n = ring_.members();
  const auto shift = shift_of(round);
  RingRound out;
  if (!ring_.equal_slots()) {
    out = ring_.round_at(member, shift, work);
  } else {
    const auto slots = ring_.slots()[member];
    list_column(member, shift, slots, work.listed_senders_);
    auto& receivers = work.listed_receivers_;
    receivers.clear();
    for (std::uint32_t o = 0; o < slots; ++o) {
      receivers.push_back((member + n - 1 - (shift + o) % rows_) % n);
    }
    std::sort(receivers.begin(), receivers.end());
    out.receivers = receivers;
    out.senders = work.listed_senders_;
  }
  out.row = member;
  return out;
}

std::vector<std::vector<std::uint32_t>> SlidePlan::edges_of(std::uint64_t round) const {
  const auto shift = shift_of(round);
  if (!ring_.equal_slots()) return ring_.edges_at(shift, false);
  std::vector<std::vector<std::uint32_t>> out(ring_.members());
  std::vector<std::uint32_t> senders;
  for (std::uint32_t j = 0; j < out.size(); ++j) {
    list_column(j, shift, ring_.slots()[j], senders);
    for (const auto i : senders) out[i].push_back(j);
  }
  return out;
}

std::vector<std::uint32_t> SlidePlan::groups_of(std::uint32_t member, std::uint64_t round) const {
  std::vector<std::uint32_t> out;
  list_column(member, shift_of(round), ring_.slots()[member], out);
  return out;
}

SlideJoins SlidePlan::joins(std::uint64_t start) const {
  SlideJoins out;
  const auto n = ring_.members();
  for (std::uint32_t j = 0; j < n; ++j) {
    const auto width = ring_.slots()[j];
    if (width == 0) continue;
    // Rows are counted from where the column begins at shift 0; a column of equal width never
    // meets its own.
    const auto own = (j + n - ring_.first_row(j)) % n;
    const auto others = [&](std::uint32_t from, std::uint32_t count) {
      const bool has_own = !ring_.equal_slots() && (own + rows_ - from % rows_) % rows_ < count;
      return count - (has_own ? 1 : 0);
    };
    const auto at_start = others(shift_of(start), width);
    out.at_start += at_start;
    out.most_at_start = std::max(out.most_at_start, at_start);
    for (std::uint32_t t = 0; t < cycle_; ++t) {
      const auto from = shift_of(t), moved = (shift_of(t + 1) + rows_ - from) % rows_;
      // All the way round the ring the column is met again.
      const auto held = std::min(width + moved, rows_);
      out.most_held = std::max(out.most_held, others(from, held));
      out.most_per_round = std::max(out.most_per_round, others(from + width, held - width));
    }
  }
  return out;
}

bool SlidePlan::may_list() const noexcept {
  const auto slots = ring_.slots();
  const auto pairs = std::accumulate(slots.begin(), slots.end(), std::uint64_t{slots.size()});
  return pairs * cycle_ <= kMostListedPairs;
}

PairAge SlidePlan::pair_age() const {
  std::vector<std::vector<std::vector<std::uint32_t>>> cycle;
  for (std::uint32_t t = 0; t < cycle_; ++t) cycle.push_back(edges_of(t));
  return pair_age_of(cycle);
}

std::uint32_t SlidePlan::senders_below_p() const {
  std::uint32_t out = 0;
  for (std::uint32_t t = 0; t < cycle_; ++t) {
    for (const auto& receivers : edges_of(t)) out += receivers.size() < p_ ? 1 : 0;
  }
  return out;
}

}  // namespace selmcast
