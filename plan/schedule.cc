#include "plan/schedule.h"

#include <algorithm>
#include <span>

#include "base/random.h"
#include "plan/compile.h"
#include "plan/select/explicit.h"
#include "plan/select/ring_plan.h"

namespace selmcast {
namespace {

using Cycle = std::vector<std::vector<std::vector<std::uint32_t>>>;

/// One round of a cycle while pairs move between senders.
struct Rearrangement {
  std::vector<std::vector<std::uint32_t>>& round;
  std::vector<std::uint32_t> load;    ///< Senders that each receiver hears in this round.
  std::vector<std::uint16_t>& times;  ///< Services of each pair in the whole cycle.

  bool has(std::uint32_t i, std::uint32_t j) const {
    return std::binary_search(round[i].begin(), round[i].end(), j);
  }
  std::uint16_t& times_of(std::uint32_t i, std::uint32_t j) { return times[i * load.size() + j]; }
  void add(std::uint32_t i, std::uint32_t j) {
    round[i].insert(std::lower_bound(round[i].begin(), round[i].end(), j), j);
    ++times_of(i, j);
  }
  void remove(std::uint32_t i, std::uint32_t j) {
    round[i].erase(std::lower_bound(round[i].begin(), round[i].end(), j));
    --times_of(i, j);
  }
};

/// One more receiver for sender `start`: it takes one over from a sender that takes one over from
/// the next, until one has a slot free. Only pairs that the cycle serves more than once are given
/// up.
bool take_over(Rearrangement& r, std::span<const std::uint32_t> slots, std::uint32_t start) {
  constexpr std::uint32_t kNobody = 0xFFFFFFFFU;
  const auto n = static_cast<std::uint32_t>(slots.size());
  std::vector<std::uint32_t> taker(n, kNobody), given_up(n, kNobody), queue{start};
  auto end = kNobody;
  for (std::size_t q = 0; q < queue.size() && end == kNobody; ++q) {
    for (std::uint32_t j = 0; j < n && end == kNobody; ++j) {
      if (j == queue[q] || slots[j] == 0 || taker[j] != kNobody || r.has(queue[q], j)) continue;
      taker[j] = queue[q];
      if (r.load[j] < slots[j]) end = j;
      for (std::uint32_t i = 0; i < n && end == kNobody; ++i) {
        if (i == start || given_up[i] != kNobody || !r.has(i, j) || r.times_of(i, j) < 2) continue;
        given_up[i] = j;
        queue.push_back(i);
      }
    }
  }
  if (end == kNobody) return false;
  ++r.load[end];
  while (end != kNobody) {
    const auto i = taker[end];
    r.add(i, end);
    end = i == start ? kNobody : given_up[i];
    if (end != kNobody) r.remove(i, end);
  }
  return true;
}

/// The ring plan as explicit pairs for sender groups.
Cycle explicit_cycle(const RingPlan& ring, std::uint32_t p) {
  const auto n = ring.members();
  Cycle cycle;
  std::vector<std::uint16_t> times(std::size_t{n} * n);
  for (std::uint32_t t = 0; t < ring.period(); ++t) {
    cycle.push_back(ring.edges_of(t, true));
    for (std::uint32_t i = 0; i < n; ++i) {
      for (const auto j : cycle[t][i]) ++times[std::size_t{i} * n + j];
    }
  }
  for (std::uint32_t t = 0; t < ring.period(); ++t) {
    Rearrangement rearranged{cycle[t], std::vector<std::uint32_t>(n), times};
    for (const auto& receivers : cycle[t]) {
      for (const auto j : receivers) ++rearranged.load[j];
    }
    for (std::uint32_t h = 0; h < n; ++h) {
      if (cycle[t][h].size() < p) take_over(rearranged, ring.slots(), h);
    }
  }
  return cycle;
}

SelectionProblem problem_of(const View& view, std::uint32_t p, Fanout fanout) {
  SelectionProblem problem;
  problem.p.assign(view.members.size(), p);
  problem.fanout = fanout;
  problem.tx_kbps = view.tx_kbps;
  problem.rx_kbps = view.rx_kbps;
  return problem;
}

Result<Schedule> random_schedule(const View& view, std::uint32_t p, Fanout fanout) {
  auto problem = problem_of(view, p, fanout);
  Schedule out;
  out.p = p;
  for (std::uint32_t t = 0; t < kRandomCycle; ++t) {
    problem.seed = random_round_seed(view.seed, view.epoch, t);
    auto selection = select_random(problem);
    if (!selection) return selection.error();
    out.rates.push_back(selection->rate);
    out.cycle.push_back(std::move(selection->receivers));
  }
  out.rate_without_k = *std::min_element(out.rates.begin(), out.rates.end());
  return out;
}

/// Everyone to everyone with receive rate, in one round.
Schedule full_schedule(const View& view, Fanout fanout) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  const auto problem = problem_of(view, n - 1, fanout);
  Selection everyone;
  for (std::uint32_t i = 0; i < n; ++i) {
    everyone.receivers.push_back(open_receivers(problem, i, {}, {}));
  }
  const auto rate = rate_of(problem, everyone);
  SELMCAST_CHECK(rate.has_value(), "a checked view: everyone sends, and only to those with rate");
  Schedule out;
  out.period = 1;
  out.cycle.push_back(std::move(everyone.receivers));
  out.rates.assign(1, *rate);
  out.rate_without_k = *rate;
  return out;
}

/// The ring plan pair by pair.
Result<Schedule> ring_schedule(const View& view, std::uint32_t p, std::uint32_t k, Fanout fanout) {
  const auto ring = RingPlan::make(p, view.tx_kbps, view.rx_kbps, k, fanout);
  if (!ring) return ring.error();
  Schedule out;
  out.p = p;
  out.period = ring->period();
  out.rates.assign(ring->period(), ring->rate());
  out.rate_without_k = ring->rate_without_bound();
  out.cycle = explicit_cycle(*ring, p);
  return out;
}

}  // namespace

Fanout fanout_of(const Policy& policy) {
  return policy.has(Trait::unicast) ? Fanout::unicast : Fanout::multicast;
}

std::uint64_t random_round_seed(std::uint64_t seed, std::uint32_t epoch, std::uint32_t t) noexcept {
  return mix_seed(seed) ^ mix_seed(std::uint64_t{epoch} * kRandomCycle + t);
}

Result<Schedule> make_schedule(const View& view, const Policy& policy) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  const auto p = std::min(policy.select.p, n - 1);
  const auto fanout = fanout_of(policy);
  switch (policy.select.kind) {
    case SelectKind::all:
      return full_schedule(view, fanout);
    case SelectKind::random:
      return random_schedule(view, p, fanout);
    case SelectKind::selmcast:
      break;
  }
  return ring_schedule(view, p, policy.resolved_k(n), fanout);
}

}  // namespace selmcast
