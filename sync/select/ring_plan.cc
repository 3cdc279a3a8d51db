#include "sync/select/ring_plan.h"

#include <algorithm>
#include <numeric>

#include "sync/select/feasible.h"
#include "sync/select/rate.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFU;

std::uint32_t ceil_div(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint32_t>((a + b - 1) / b);
}

std::uint64_t sum_of(const std::vector<std::uint32_t>& v) {
  return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
}

/// Lowers the largest slots until their sum is `total`; the smallest go last.
void level_to(std::vector<std::uint32_t>& slots, std::uint64_t total) {
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

/// The best rate with at least `floor` slots for each receiver with rate, and those slots.
struct Layout {
  RateFraction rate;
  std::vector<std::uint32_t> slots, copies;
};
Layout lay_out(const SelectionProblem& problem, std::uint32_t floor) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  const bool unicast = problem.fanout == Fanout::unicast;
  const auto positive = static_cast<std::uint64_t>(
      std::count_if(problem.rx_kbps.begin(), problem.rx_kbps.end(), [](Kbps d) { return d > 0; }));
  const auto least = std::uint64_t{n} * problem.p[0];
  const auto degree = ceil_div(std::max(least, positive * floor), n);
  const auto copies = unicast ? degree : 1;
  auto upper = reduced(*std::min_element(problem.tx_kbps.begin(), problem.tx_kbps.end()), copies);
  for (const auto d : problem.rx_kbps) {
    if (d == 0 || floor == 0) continue;
    if (const auto bound = reduced(d, floor); bound < upper) upper = bound;
  }
  const auto enough = [&](const RateFraction& y) {
    return sum_of(slots_at(problem.rx_kbps, y, n - 1)) >= least;
  };
  Layout out;
  const auto rate = best_rate(problem.rx_kbps, n - 1, upper, enough);
  SELMCAST_CHECK(rate.has_value(), "a solvable problem has a rate");
  out.rate = *rate;
  out.slots = slots_at(problem.rx_kbps, out.rate, n - 1);
  out.copies.assign(n, copies);
  // A unicast row has at most `degree` members: each further one would cost its sender rate.
  const auto most = std::uint64_t{n} * degree;
  if (unicast && sum_of(out.slots) > most) level_to(out.slots, most);
  return out;
}

}  // namespace

Result<RingPlan> RingPlan::make(std::uint32_t p, const std::vector<Kbps>& tx_kbps,
                                const std::vector<Kbps>& rx_kbps, std::uint32_t k_bound,
                                Fanout fanout) {
  SelectionProblem problem;
  problem.p.assign(tx_kbps.size(), p);
  problem.fanout = fanout;
  problem.tx_kbps = tx_kbps;
  problem.rx_kbps = rx_kbps;
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();

  RingPlan plan;
  plan.n_ = static_cast<std::uint32_t>(tx_kbps.size());
  plan.p_ = p;
  auto layout = lay_out(problem, 0);
  plan.rate_free_ = layout.rate;
  plan.place(layout.slots);
  // A receiver that has rate but no slot is never served, whatever the period of the others.
  const auto met = [&] {
    for (std::uint32_t j = 0; j < plan.n_; ++j) {
      if (rx_kbps[j] > 0 && plan.slots_[j] == 0) return false;
    }
    return plan.k_ <= k_bound;
  };
  // ceil((n-1)/k) slots suffice when all receivers have equally many, otherwise ceil(n/k).
  for (const auto rows : {plan.n_ - 1, plan.n_}) {
    const auto floor = k_bound == 0 ? 0 : ceil_div(rows, k_bound);
    if (k_bound == 0 || met() || floor > plan.n_ - 1) continue;
    layout = lay_out(problem, floor);
    plan.place(layout.slots);
  }
  if (k_bound > 0 && !met()) {
    return bad_input("no solution: not every pair can meet within k = " + std::to_string(k_bound) +
                     " rounds of a ring plan; the smallest possible k is " +
                     std::to_string(ceil_div(plan.n_, plan.n_ - 1)));
  }
  plan.rate_ = layout.rate;
  plan.bottleneck_ = find_bottleneck(tx_kbps, layout.copies, rx_kbps, plan.slots_, plan.rate_);
  plan.can_patch_.resize(plan.n_);
  for (std::uint32_t i = 0; i < plan.n_; ++i) {
    plan.can_patch_[i] = fanout == Fanout::unicast || compare(tx_kbps[i], 2, plan.rate_) >= 0;
  }
  return plan;
}

void RingPlan::place(const std::vector<std::uint32_t>& slots) {
  slots_ = slots;
  equal_slots_ = std::all_of(slots_.begin(), slots_.end(), [&](auto c) { return c == slots_[0]; });
  step_ = n_;
  for (const auto c : slots_) {
    if (c > 0) step_ = std::min(step_, c);
  }
  first_row_.resize(n_);
  std::uint64_t next = 0;
  for (std::uint32_t j = 0; j < n_; ++j) {
    // Equal widths start right behind the receiver's own row, so nobody is ever in its own row.
    first_row_[j] = equal_slots_ ? (j + 1) % n_ : static_cast<std::uint32_t>(next % n_);
    next += slots_[j];
  }
  k_ = ceil_div(equal_slots_ ? n_ - 1 : n_, step_);
}

std::uint32_t RingPlan::shift_of(std::uint64_t round) const noexcept {
  const std::uint64_t moved = (round % k_) * step_;
  return static_cast<std::uint32_t>(equal_slots_ ? std::min<std::uint64_t>(moved, n_ - 1 - step_)
                                                 : moved % n_);
}

std::uint32_t RingPlan::row_in(std::uint32_t member, std::uint64_t round) const noexcept {
  return (member + n_ - shift_of(round)) % n_;
}

bool RingPlan::in_row(std::uint32_t receiver, std::uint32_t row) const noexcept {
  return (row + n_ - first_row_[receiver]) % n_ < slots_[receiver];
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> RingPlan::patches_of(std::uint64_t round,
                                                                          bool everyone) const {
  std::vector<std::uint32_t>
      own;  // Members in their own row: each misses one and has one slot free.
  if (!equal_slots_) {
    for (std::uint32_t h = 0; h < n_; ++h) {
      if (in_row(h, row_in(h, round))) own.push_back(h);
    }
  }
  const auto z = static_cast<std::uint32_t>(own.size());
  const auto fits = [&](std::uint32_t q, std::uint32_t g) {
    return q != g && !in_row(own[g], row_in(own[q], round));
  };
  std::vector<std::uint32_t> receiver_of(z, kNone), sender_of(z, kNone);
  const auto may_send = [&](std::uint32_t q) { return everyone || can_patch_[own[q]]; };
  for (std::uint32_t q = 0; q < z; ++q) {
    // Half the ring away the rows of two members rarely overlap: the first try mostly succeeds.
    for (std::uint32_t tried = 0; may_send(q) && receiver_of[q] == kNone && tried < z; ++tried) {
      const auto g = (q + z / 2 + tried) % z;
      if (sender_of[g] != kNone || !fits(q, g)) continue;
      receiver_of[q] = g;
      sender_of[g] = q;
    }
  }
  // The rest by augmenting paths (bipartite matching), breadth first.
  for (std::uint32_t q = 0; q < z; ++q) {
    if (!may_send(q) || receiver_of[q] != kNone) continue;
    std::vector<std::uint32_t> reached_from(z, kNone), queue{q};
    auto free_slot = kNone;
    for (std::size_t at = 0; at < queue.size() && free_slot == kNone; ++at) {
      for (std::uint32_t g = 0; g < z && free_slot == kNone; ++g) {
        if (reached_from[g] != kNone || !fits(queue[at], g)) continue;
        reached_from[g] = queue[at];
        if (sender_of[g] == kNone)
          free_slot = g;
        else
          queue.push_back(sender_of[g]);
      }
    }
    while (free_slot != kNone) {
      const auto sender = reached_from[free_slot];
      sender_of[free_slot] = sender;
      std::swap(receiver_of[sender], free_slot);
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  for (std::uint32_t q = 0; q < z; ++q) {
    if (receiver_of[q] != kNone) out.emplace_back(own[q], own[receiver_of[q]]);
  }
  return out;
}

RingRound RingPlan::round_of(std::uint32_t member, std::uint64_t round) const {
  RingRound out;
  out.row = row_in(member, round);
  for (std::uint32_t j = 0; j < n_; ++j) {
    if (j == member) continue;
    if (in_row(j, out.row)) out.receivers.push_back(j);
    if (in_row(member, row_in(j, round))) out.senders.push_back(j);
  }
  for (const auto& [from, to] : patches_of(round)) {
    if (from == member) out.patch = to;
    if (to != member) continue;
    out.senders.insert(std::lower_bound(out.senders.begin(), out.senders.end(), from), from);
  }
  out.below_p = out.receivers.size() + (out.patch ? 1 : 0) < p_;
  return out;
}

std::vector<std::vector<std::uint32_t>> RingPlan::edges_of(std::uint64_t round,
                                                           bool everyone) const {
  std::vector<std::vector<std::uint32_t>> out(n_);
  const auto shift = shift_of(round);
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

PairAge RingPlan::pair_age() const {
  std::vector<std::vector<std::vector<std::uint32_t>>> cycle;
  for (std::uint32_t t = 0; t < k_; ++t) cycle.push_back(edges_of(t));
  return pair_age_of(cycle);
}

std::uint32_t RingPlan::senders_below_p() const {
  std::uint32_t out = 0;
  for (std::uint32_t t = 0; t < k_; ++t) {
    for (const auto& receivers : edges_of(t)) out += receivers.size() < p_ ? 1 : 0;
  }
  return out;
}

}  // namespace selmcast
