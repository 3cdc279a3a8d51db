#include "plan/select/degree_plan.h"

#include <algorithm>
#include <numeric>

#include "plan/select/rate.h"

namespace selmcast {

Result<DegreePlan> DegreePlan::make(std::vector<std::uint32_t> p, Fanout fanout) {
  SelectionProblem problem;
  problem.tx_kbps.assign(p.size(), 1);
  problem.rx_kbps.assign(p.size(), 1);
  problem.p = std::move(p);
  if (auto valid = check_problem(problem); !valid) return valid.error();
  return DegreePlan(std::move(problem.p), fanout);
}

DegreePlan::DegreePlan(std::vector<std::uint32_t> p, Fanout fanout)
    : fanout_(fanout),
      n_(static_cast<std::uint32_t>(p.size())),
      most_p_(*std::max_element(p.begin(), p.end())),
      total_p_(std::accumulate(p.begin(), p.end(), std::uint64_t{0})),
      p_(std::move(p)),
      most_(n_, n_ - 1),
      slots_(slot_kernels::padded(n_)),
      degrees_(n_),
      rates_(n_),
      test_(n_),
      fair_(n_) {}

Result<void> DegreePlan::check(std::span<const Kbps> tx, std::span<const Kbps> rx) const {
  std::uint32_t with_rate = 0, unusable = 0;
  const bool sized = tx.size() == n_ && rx.size() == n_;
  for (std::size_t r = 0; sized && r < n_; ++r) {
    with_rate += rx[r] > 0 ? 1U : 0U;
    unusable |= tx[r] == 0 || std::max(tx[r], rx[r]) >= kRateLimit ? 1U : 0U;
  }
  const bool usable = sized && unusable == 0;
  // A member that needs more than there are others with rate is looked for only when one could.
  if (usable && with_rate > most_p_) return {};
  SelectionProblem problem;
  problem.p = p_;
  problem.fanout = fanout_;
  problem.tx_kbps.assign(tx.begin(), tx.end());
  problem.rx_kbps.assign(rx.begin(), rx.end());
  if (auto valid = check_problem(problem); !valid) return valid;
  return check_solvable(problem);
}

RateFraction DegreePlan::sender_bound(std::span<const Kbps> tx) const noexcept {
  if (fanout_ == Fanout::multicast) return {*std::min_element(tx.begin(), tx.end()), 1};
  std::uint32_t least = 0;
  auto low = static_cast<double>(tx[0]) / p_[0];
  for (std::uint32_t i = 1; i < n_; ++i) {
    // Doubles are off by less than 2^-50 of the value; what they cannot tell is multiplied out.
    const auto rate = static_cast<double>(tx[i]) / p_[i];
    if (rate > low * (1 + 0x1p-48)) continue;
    if (multiply(tx[least], p_[i]) <= multiply(tx[i], p_[least])) continue;
    least = i;
    low = rate;
  }
  return reduced(tx[least], p_[least]);
}

void DegreePlan::set_slots(std::span<const Kbps> rx, const RateFraction& y) {
  if (fast_ && y.num < RateSearch::kFastRateLimit) {
    rates_.slots_at(y, n_ - 1, slots_.data());
    return;
  }
  for (std::uint32_t j = 0; j < n_; ++j) slots_[j] = selmcast::slots_at(rx[j], y, n_ - 1);
}

bool DegreePlan::admits(std::span<const Kbps> rx, const RateFraction& y) {
  set_slots(rx, y);
  test_.load(slots());
  return test_.total() >= total_p_ && test_.admits(p_);
}

RateFraction DegreePlan::search(std::span<const Kbps> rx, const RateFraction& upper) {
  if (!fast_) {
    const auto best = best_rate({rx.begin(), rx.end()}, n_ - 1, upper,
                                [&](const RateFraction& y) { return admits(rx, y); });
    SELMCAST_CHECK(best.has_value(), "a solvable problem has a rate");
    admits(rx, *best);  // Leaves the slots of the answer.
    return *best;
  }
  // The rate is one of the quotients rx/k unless a sender bounds it, and sum(p) slots are needed:
  // so it is the t-th largest for the least t >= sum(p) whose slots admit p.
  const auto at = [&](std::uint64_t t) { return std::min(upper, rates_.best(t, n_ - 1)); };
  auto rate = at(total_p_);
  if (admits(rx, rate)) return rate;
  const auto last = std::uint64_t{n_ - 1} * rates_.summary().positive;
  auto low = total_p_ + 1, high = low, step = std::uint64_t{1};
  for (; high < last && !admits(rx, at(high)); step *= 2) {
    low = high + 1;
    high = std::min(last, high + step);
  }
  while (low < high) {
    const auto middle = low + (high - low) / 2;
    if (admits(rx, at(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  rate = at(high);
  SELMCAST_CHECK(admits(rx, rate), "a solvable problem has a rate");
  return rate;
}

void DegreePlan::set_most(std::span<const Kbps> tx, const RateFraction& y) {
  if (fanout_ == Fanout::multicast) return;
  for (std::uint32_t i = 0; i < n_; ++i) most_[i] = selmcast::slots_at(tx[i], y, n_ - 1);
}

Result<void> DegreePlan::plan(std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps) {
  if (auto sound = check(tx_kbps, rx_kbps); !sound) return sound;
  fast_ = rates_.load(rx_kbps);
  const auto upper = sender_bound(tx_kbps);
  if (fast_) {
    // No rate above this one has sum(p) slots. If fair degrees fit, then p does as well.
    rate_ = std::min(upper, rates_.best(total_p_, n_ - 1));
    set_slots(rx_kbps, rate_);
    set_most(tx_kbps, rate_);
    test_.load(slots());
    if (fair_.guess(test_, p_, most_, {}, degrees_)) return {};
  }
  rate_ = search(rx_kbps, upper);
  set_most(tx_kbps, rate_);
  fair_.share(test_, p_, most_, {}, degrees_);
  return {};
}

}  // namespace selmcast
