#include "plan/select/ring_plan.h"

#include <algorithm>
#include <numeric>

#include "plan/select/feasible.h"
#include "plan/select/rate.h"

namespace selmcast {
namespace {

using slot_kernels::kSlotPadding;
using slot_kernels::padded;

constexpr auto kNoPatch = PatchMatching::kNone;

std::vector<Kbps> exact_rates(const double* rates, std::uint32_t n) {
  std::vector<Kbps> out(n);
  std::transform(rates, rates + n, out.begin(), [](double r) { return static_cast<Kbps>(r); });
  return out;
}

/// Lowers the largest slots until their sum is `total`; the smallest go last.
void level_to(std::span<std::uint32_t> slots, std::uint64_t total) {
  const auto capped = [&](std::uint32_t level) {
    std::uint64_t sum = 0;
    for (const auto c : slots) sum += std::min(c, level);
    return sum;
  };
  std::uint32_t low = 0, high = static_cast<std::uint32_t>(slots.size());
  while (low < high) {  // Largest level whose sum does not exceed the total.
    const auto middle = high - (high - low) / 2;
    if (capped(middle) <= total) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  auto spare = total - capped(low);
  for (auto& c : slots) {
    if (c <= low) continue;
    c = low + (spare > 0 ? 1 : 0);
    if (spare > 0) --spare;
  }
}

}  // namespace

RingWork::RingWork(std::uint32_t capacity)
    : self_(padded(capacity) + kSlotPadding),
      row_(capacity),
      first_row_(capacity),
      slots_(capacity),
      may_send_(capacity),
      receivers_(padded(capacity) + kSlotPadding),
      senders_(capacity + 1),
      matching_(capacity) {}

RingPlan::RingPlan(std::uint32_t capacity)
    : capacity_(capacity),
      search_(capacity),
      tx_(padded(capacity)),
      slots_(padded(capacity)),
      first_row_(padded(capacity) + 1) {
  SELMCAST_CHECK(capacity >= 2 && capacity <= kMaxMembers, "2 to 65 535 members");
}

Result<RingPlan> RingPlan::make(std::uint32_t p, std::span<const Kbps> tx_kbps,
                                std::span<const Kbps> rx_kbps, std::uint32_t k_bound,
                                Fanout fanout) {
  const auto capacity = std::clamp<std::size_t>(tx_kbps.size(), 2, kMaxMembers);
  RingPlan plan(static_cast<std::uint32_t>(capacity));
  if (auto planned = plan.replan(p, tx_kbps, rx_kbps, k_bound, fanout); !planned) {
    return planned.error();
  }
  return plan;
}

Result<void> RingPlan::explain(std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps) const {
  SelectionProblem problem;
  problem.p.assign(tx_kbps.size(), p_);
  problem.tx_kbps.assign(tx_kbps.begin(), tx_kbps.end());
  problem.rx_kbps.assign(rx_kbps.begin(), rx_kbps.end());
  if (auto valid = check_problem(problem); !valid) return valid;
  return check_solvable(problem);
}

Result<void> RingPlan::replan(std::uint32_t p, std::span<const Kbps> tx_kbps,
                              std::span<const Kbps> rx_kbps, std::uint32_t k_bound, Fanout fanout) {
  p_ = p;
  k_bound_ = k_bound;
  fanout_ = fanout;
  const auto n = tx_kbps.size();
  if (rx_kbps.size() != n || n < 2 || n > kMaxMembers || p < 1 || p >= n) {
    return explain(tx_kbps, rx_kbps);
  }
  SELMCAST_CHECK(n <= capacity_, "more members than the plan has memory for");
  n_ = static_cast<std::uint32_t>(n);
  const auto senders = slot_kernels::load_rates(tx_kbps.data(), tx_.data(), n_);
  fast_ = search_.load(rx_kbps);
  const auto& receivers = search_.summary();
  const auto limit = static_cast<double>(kRateLimit);
  if (senders.least == 0 || receivers.positive <= p || senders.most >= limit ||
      receivers.most >= limit) {
    return explain(tx_kbps, rx_kbps);
  }
  least_tx_ = senders.least;
  rate_free_ = unbounded_rate();
  return plan_at_free_rate();
}

Result<void> RingPlan::plan_at_free_rate() {
  lay_out(0);
  rate_free_ = rate_;
  // A receiver that has rate but no slot is never served, whatever the period of the others.
  const auto met = [&] {
    const auto least = static_cast<std::uint64_t>(search_.summary().least_positive);
    return k_ <= k_bound_ && compare(least, 1, rate_) >= 0;
  };
  if (k_bound_ == 0 || met()) return {};
  // ceil((n-1)/k) slots suffice when all receivers have equally many, otherwise ceil(n/k).
  for (const auto rows : {n_ - 1, n_}) {
    const auto floor = ceil_div(rows, k_bound_);
    if (floor > n_ - 1) continue;
    lay_out(floor);
    if (met()) return {};
  }
  return bad_input("no solution: not every pair can meet within k = " + std::to_string(k_bound_) +
                   " rounds of a ring plan; the smallest possible k is " +
                   std::to_string(ceil_div(n_, n_ - 1)));
}

RateFraction RingPlan::unbounded_rate() {
  const auto target = std::uint64_t{n_} * p_;
  if (fast_) return search_.best(target, n_ - 1);
  const auto rx = exact_rates(search_.rates(), n_);
  const auto rate = best_rate(rx, n_ - 1, {kRateLimit, 1}, [&](const RateFraction& y) {
    std::uint64_t total = 0;
    for (const auto d : rx) total += selmcast::slots_at(d, y, n_ - 1);
    return total >= target;
  });
  SELMCAST_CHECK(rate.has_value(), "a solvable problem has a rate");
  return *rate;
}

slot_kernels::SlotSummary RingPlan::fill_slots() {
  slot_kernels::SlotSummary out;
  const bool fast = fast_ && rate_.num < RateSearch::kFastRateLimit;
  if (fast) {
    out = search_.slots_at(rate_, n_ - 1, slots_.data());
  } else {
    std::fill(slots_.begin(), slots_.end(), 0U);
    for (std::uint32_t j = 0; j < n_; ++j) {
      slots_[j] = selmcast::slots_at(static_cast<Kbps>(search_.rates()[j]), rate_, n_ - 1);
      out.total += slots_[j];
    }
  }
  // A unicast row has at most `copies` members: each further one would cost its sender rate.
  const auto most = std::uint64_t{n_} * copies_;
  const bool level = fanout_ == Fanout::unicast && out.total > most;
  if (level) level_to({slots_.data(), n_}, most);
  if (!level && fast) return out;
  const auto end = slots_.begin() + n_;
  out.least = *std::min_element(slots_.begin(), end);
  out.most = *std::max_element(slots_.begin(), end);
  out.least_positive = out.most;
  for (auto c = slots_.begin(); c != end; ++c) {
    if (*c > 0) out.least_positive = std::min(out.least_positive, *c);
  }
  return out;
}

void RingPlan::lay_out(std::uint32_t floor) {
  const auto& receivers = search_.summary();
  const auto least = std::max(std::uint64_t{n_} * p_, std::uint64_t{receivers.positive} * floor);
  copies_ = fanout_ == Fanout::unicast ? ceil_div(least, n_) : 1;
  rate_ = std::min(rate_free_, reduced(static_cast<std::uint64_t>(least_tx_), copies_));
  if (floor > 0) {
    const auto slowest = static_cast<std::uint64_t>(receivers.least_positive);
    rate_ = std::min(rate_, reduced(slowest, floor));
  }
  patch_rate_ = fanout_ == Fanout::unicast
                    ? 0.0
                    : static_cast<double>(2 * rate_.num / rate_.den +
                                          (2 * rate_.num % rate_.den != 0 ? 1 : 0));
  const auto slots = fill_slots();
  equal_slots_ = slots.least == slots.most;
  step_ = slots.least_positive;
  k_ = ceil_div(equal_slots_ ? n_ - 1 : n_, step_);
  if (equal_slots_) {
    // Equal widths start right behind the receiver's own row, so nobody is ever in its own row.
    slot_kernels::ring_turn(1, n_, first_row_.data());
    // Behind the last member the vector loops expect numbers below n.
    std::fill_n(first_row_.begin() + n_, padded(n_) - n_, 0U);
  } else {
    slot_kernels::lay_out(slots_.data(), n_, first_row_.data());
  }
}

Bottleneck RingPlan::bottleneck() const {
  const std::vector<std::uint32_t> copies(n_, copies_), slots(slots_.begin(), slots_.begin() + n_);
  return find_bottleneck(exact_rates(tx_.data(), n_), copies, exact_rates(search_.rates(), n_),
                         slots, rate_);
}

std::uint32_t RingPlan::shift_of(std::uint64_t round) const noexcept {
  const std::uint64_t moved = (round % k_) * step_;
  return static_cast<std::uint32_t>(equal_slots_ ? std::min<std::uint64_t>(moved, n_ - 1 - step_)
                                                 : moved % n_);
}

bool RingPlan::in_own_row(std::uint32_t member, std::uint32_t shift) const noexcept {
  return (member + 2 * n_ - shift - first_row_[member]) % n_ < slots_[member];
}

std::uint32_t RingPlan::match_patches(std::uint32_t shift, bool everyone, RingWork& work) const {
  const auto z =
      slot_kernels::self_members(first_row_.data(), slots_.data(), n_, shift, work.self_.data());
  bool all_may = true;
  for (std::uint32_t q = 0; q < z; ++q) {
    const auto h = work.self_[q];
    work.row_[q] = h >= shift ? h - shift : h + n_ - shift;
    work.first_row_[q] = first_row_[h];
    work.slots_[q] = slots_[h];
    const bool may = everyone || can_patch(h);
    work.may_send_[q] = may ? 1 : 0;
    all_may = all_may && may;
  }
  if (z > 0) {
    work.matching_.solve({n_,
                          {work.row_.data(), z},
                          {work.first_row_.data(), z},
                          {work.slots_.data(), z},
                          {work.may_send_.data(), z},
                          all_may});
  }
  return z;
}

RingRound RingPlan::round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const {
  const auto shift = shift_of(round);
  RingRound out;
  out.row = member >= shift ? member - shift : member + n_ - shift;
  auto* const receivers = work.receivers_.data();
  auto* const senders = work.senders_.data();
  auto reached =
      slot_kernels::row_members(first_row_.data(), slots_.data(), n_, out.row, receivers);
  auto heard = slots_[member];
  slot_kernels::ring_interval((first_row_[member] + shift) % n_, heard, n_, senders);
  if (in_own_row(member, shift)) {
    std::remove(receivers, receivers + reached--, member);
    std::remove(senders, senders + heard--, member);
    const auto z = match_patches(shift, false, work);
    const auto self = work.self_.begin();
    const auto q = static_cast<std::uint32_t>(std::lower_bound(self, self + z, member) - self);
    if (const auto g = work.matching_.receiver_of(q); g != kNoPatch) out.patch = work.self_[g];
    if (const auto s = work.matching_.sender_of(q); s != kNoPatch) {
      auto* const at = std::lower_bound(senders, senders + heard, work.self_[s]);
      std::copy_backward(at, senders + heard, senders + heard + 1);
      *at = work.self_[s];
      ++heard;
    }
  }
  out.receivers = {receivers, reached};
  out.senders = {senders, heard};
  out.below_p = reached + (out.patch ? 1U : 0U) < p_;
  return out;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> RingPlan::patches_of(std::uint64_t round,
                                                                          bool everyone) const {
  RingWork work(n_);
  const auto z = match_patches(shift_of(round), everyone, work);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  for (std::uint32_t q = 0; q < z; ++q) {
    const auto g = work.matching_.receiver_of(q);
    if (g != kNoPatch) out.emplace_back(work.self_[q], work.self_[g]);
  }
  return out;
}

std::vector<std::vector<std::uint32_t>> RingPlan::edges_of(std::uint64_t round,
                                                           bool everyone) const {
  const auto shift = shift_of(round);
  std::vector<std::vector<std::uint32_t>> out(n_);
  for (std::uint32_t j = 0; j < n_; ++j) {
    for (std::uint32_t o = 0; o < slots_[j]; ++o) {
      const auto i = static_cast<std::uint32_t>((std::uint64_t{first_row_[j]} + o + shift) % n_);
      if (i != j) out[i].push_back(j);
    }
  }
  for (const auto& [from, to] : patches_of(round, everyone)) {
    out[from].insert(std::lower_bound(out[from].begin(), out[from].end(), to), to);
  }
  return out;
}

std::vector<std::uint32_t> RingPlan::rows_of(std::uint32_t member) const {
  std::vector<std::uint32_t> out(slots_[member]);
  for (std::uint32_t o = 0; o < slots_[member]; ++o) out[o] = (first_row_[member] + o) % n_;
  return out;
}

bool RingPlan::may_list() const noexcept {
  const auto pairs = std::accumulate(slots_.begin(), slots_.begin() + n_, std::uint64_t{n_});
  return pairs * k_ <= kMostListedPairs;
}

PairAge RingPlan::pair_age() const {
  std::vector<std::vector<std::vector<std::uint32_t>>> cycle;
  for (std::uint32_t t = 0; t < k_; ++t) cycle.push_back(edges_of(t));
  return pair_age_of(cycle);
}

std::vector<std::uint32_t> RingPlan::row_sizes() const {
  std::vector<std::uint32_t> out(n_);
  for (std::uint32_t j = 0; j < n_; ++j) {
    for (std::uint32_t o = 0; o < slots_[j]; ++o) ++out[(first_row_[j] + o) % n_];
  }
  return out;
}

std::uint32_t RingPlan::senders_below_p() const {
  const auto members = row_sizes();
  // Each row has one sender in a round.
  const auto short_rows = std::ranges::count_if(members, [this](auto size) { return size < p_; });
  auto out = static_cast<std::uint32_t>(short_rows) * k_;
  RingWork work(n_);
  for (std::uint32_t t = 0; t < k_; ++t) {
    const auto z = match_patches(shift_of(t), false, work);
    for (std::uint32_t q = 0; q < z; ++q) {
      const auto size = members[work.row_[q]];
      const bool patched = work.matching_.receiver_of(q) != kNoPatch;
      if (size >= p_ && !patched && size - 1 < p_) ++out;
    }
  }
  return out;
}

}  // namespace selmcast
