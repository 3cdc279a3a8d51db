#include <algorithm>
#include <numeric>

#include "plan/select/explicit.h"
#include "plan/select/fair_degrees.h"
#include "plan/select/feasible.h"
#include "plan/select/pair_flow.h"
#include "plan/select/rate.h"

namespace selmcast {
namespace {

/// A checked, solvable problem with what its searches share.
struct Instance {
  const SelectionProblem& problem;
  std::uint32_t n;
  std::vector<std::vector<Rank>> forced, forbidden;
  std::vector<std::uint32_t> forced_load;  ///< Forced senders per receiver.
  std::vector<std::uint32_t> demand;       ///< max(p, forced receivers) of each sender.
  bool has_pairs, uniform;
};

Instance instance_of(const SelectionProblem& problem) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  Instance out{problem,
               n,
               by_sender(problem.forced, n),
               by_sender(problem.forbidden, n),
               std::vector<std::uint32_t>(n),
               problem.p,
               !problem.forced.empty() || !problem.forbidden.empty(),
               true};
  for (std::uint32_t i = 0; i < n; ++i) {
    out.demand[i] = std::max(out.demand[i], static_cast<std::uint32_t>(out.forced[i].size()));
    out.uniform = out.uniform && out.demand[i] == out.demand[0];
    for (const auto j : out.forced[i]) ++out.forced_load[j];
  }
  return out;
}

/// What senders and the floor on slots allow, whoever is chosen.
RateFraction upper_bound(const Instance& in) {
  const bool unicast = in.problem.fanout == Fanout::unicast;
  auto upper = RateFraction{kRateLimit, 1};
  for (std::uint32_t i = 0; i < in.n; ++i) {
    upper = std::min(upper, reduced(in.problem.tx_kbps[i], unicast ? in.demand[i] : 1));
  }
  if (in.problem.k == 0) return upper;
  const auto floor = (in.n - 2) / in.problem.k + 1;
  for (const auto d : in.problem.rx_kbps) {
    if (d > 0) upper = std::min(upper, reduced(d, floor));
  }
  return upper;
}

/// Whether `slots` admit the demands; exact without forced and forbidden pairs, otherwise
/// necessary.
bool admits(const Instance& in, DegreeTest& test, const std::vector<std::uint32_t>& slots) {
  const auto total = std::accumulate(slots.begin(), slots.end(), std::uint64_t{0});
  if (total < std::accumulate(in.demand.begin(), in.demand.end(), std::uint64_t{0})) return false;
  // With equal demands p <= n-1 the total of the slots decides: the rate is a capped D'Hondt
  // apportionment of n*p seats.
  if (in.uniform) return true;
  test.load(slots);
  return test.admits(in.demand);
}

bool admits_pairs(const Instance& in, const std::vector<std::uint32_t>& slots) {
  for (std::uint32_t j = 0; j < in.n; ++j) {
    if (slots[j] < in.forced_load[j]) return false;
  }
  return PairFlow(slots, in.forced, in.forbidden).fill(in.demand, {});
}

std::optional<RateFraction> rate_of(const Instance& in, DegreeTest& test) {
  const auto slots = [&in](const RateFraction& y) {
    return slots_at(in.problem.rx_kbps, y, in.n - 1);
  };
  // The rate without forced and forbidden pairs bounds the rate with them, and mostly is that rate.
  const auto rate = best_rate(in.problem.rx_kbps, in.n - 1, upper_bound(in),
                              [&](const RateFraction& y) { return admits(in, test, slots(y)); });
  if (!rate || !in.has_pairs) return rate;
  return best_rate(in.problem.rx_kbps, in.n - 1, *rate, [&](const RateFraction& y) {
    const auto at_y = slots(y);
    return admits(in, test, at_y) && admits_pairs(in, at_y);
  });
}

/// Senders by how long their row has waited in total, then by index.
std::vector<std::uint32_t> by_wait(const Instance& in) {
  std::vector<std::uint32_t> order(in.n);
  std::iota(order.begin(), order.end(), 0U);
  if (in.problem.age.empty()) return order;
  std::vector<std::uint64_t> waited(in.n);
  for (std::uint32_t i = 0; i < in.n; ++i) {
    for (std::uint32_t j = 0; j < in.n; ++j) waited[i] += i == j ? 0 : in.problem.age[i][j];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return waited[a] > waited[b]; });
  return order;
}

/// Gives the slots that are left to the senders with the fewest receivers, as evenly as possible,
/// one augmenting path each: for pairs that the conditions on degrees know nothing of.
void share_out(const std::vector<std::uint32_t>& most, const std::vector<std::uint32_t>& order,
               PairFlow& flow) {
  const auto n = static_cast<std::uint32_t>(most.size());
  std::vector<bool> tight(n);
  for (auto left = flow.free_slots(); left > 0;) {
    auto level = n;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (flow.degree(i) >= most[i]) tight[i] = true;
      if (!tight[i]) level = std::min(level, flow.degree(i));
    }
    if (level == n) return;
    for (const auto i : order) {
      if (left > 0 && !tight[i] && flow.degree(i) == level && flow.raise(i, tight)) --left;
    }
  }
}

/// The pairs at rate y, with fair degrees.
PairFlow pairs_at(const Instance& in, const RateFraction& y, DegreeTest& test) {
  const auto slots = slots_at(in.problem.rx_kbps, y, in.n - 1);
  std::vector<std::uint32_t> most(in.n, in.n - 1), degrees(in.n);
  if (in.problem.fanout == Fanout::unicast) most = slots_at(in.problem.tx_kbps, y, in.n - 1);
  const auto order = by_wait(in);
  test.load(slots);
  FairDegrees(in.n).share(test, in.demand, most, order, degrees);
  PairFlow flow(slots, in.forced, in.forbidden);
  // Nothing fairer is possible with forced and forbidden pairs, so if these degrees are, they are
  // the answer.
  if (flow.fill(degrees, in.problem.age)) return flow;
  SELMCAST_CHECK(in.has_pairs, "the conditions on degrees are exact");
  flow = PairFlow(slots, in.forced, in.forbidden);
  SELMCAST_CHECK(flow.fill(in.demand, in.problem.age), "the rate was feasible");
  share_out(most, order, flow);
  return flow;
}

}  // namespace

Result<Selection> select_exact(const SelectionProblem& problem) {
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();
  const auto in = instance_of(problem);
  DegreeTest test(in.n);
  const auto rate = rate_of(in, test);
  SELMCAST_CHECK(rate.has_value(), "a solvable problem has a rate");
  auto flow = pairs_at(in, *rate, test);
  if (!problem.age.empty() && in.n <= kOldestExactMembers) flow.prefer_oldest(problem.age);

  Selection out;
  out.rate = *rate;
  out.receivers = flow.receivers();
  std::vector<std::uint32_t> copies(in.n, 1);
  if (problem.fanout == Fanout::unicast) {
    for (std::uint32_t i = 0; i < in.n; ++i) copies[i] = flow.degree(i);
  }
  out.bottleneck = find_bottleneck(problem.tx_kbps, copies, problem.rx_kbps,
                                   slots_at(problem.rx_kbps, *rate, in.n - 1), *rate);
  return out;
}

}  // namespace selmcast
