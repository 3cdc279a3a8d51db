#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/random.h"
#include "sync/program.h"
#include "sync/select/pair_age.h"
#include "sync/select/ring_plan.h"

namespace selmcast {
namespace {

/// receivers[t][i], in member indices: who hears whom in each round of the cycle.
using Cycle = std::vector<std::vector<std::vector<std::uint32_t>>>;

/// A schedule of the whole job, before one member's part is cut out of it.
struct Schedule {
  Cycle cycle;
  std::vector<RateFraction> rates;  ///< Per round of the cycle.
  std::uint32_t p = 0, period = 0;
};

std::vector<Rank> ranks_of(const View& view, std::span<const std::uint32_t> members) {
  std::vector<Rank> out;
  out.reserve(members.size());
  for (const auto m : members) out.push_back(view.members[m]);
  return out;
}

void sort_unique(std::vector<std::uint32_t>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

std::uint32_t first_group(const View& view) noexcept {
  return view.epoch % 2 == 0 ? 0 : kGroupsPerEpoch;
}

/// Everything but the groups of one member's program.
Program cut_out(const View& view, const Schedule& schedule, std::uint32_t self) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.period_k = schedule.period;
  out.rate = *std::min_element(schedule.rates.begin(), schedule.rates.end());
  for (std::size_t t = 0; t < schedule.cycle.size(); ++t) {
    const auto& receivers = schedule.cycle[t];
    RoundPlan round;
    round.rate = schedule.rates[t];
    round.receivers = ranks_of(view, receivers[self]);
    round.below_p = receivers[self].size() < schedule.p;
    for (std::uint32_t i = 0; i < receivers.size(); ++i) {
      out.senders_below_p += receivers[i].size() < schedule.p ? 1 : 0;
      if (std::binary_search(receivers[i].begin(), receivers[i].end(), self)) {
        round.senders.push_back(view.members[i]);
      }
    }
    out.cycle.push_back(std::move(round));
  }
  const auto age = pair_age_of(schedule.cycle);
  out.pair_age_worst = age.worst;
  out.pair_age_mean = age.mean;
  return out;
}

/// One group per sender and round of the cycle.
Result<void> add_sender_groups(const View& view, const Schedule& schedule, std::uint32_t self,
                               Program& program) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  if (schedule.cycle.size() * n > kGroupsPerEpoch) {
    return bad_input("no plan: " + std::to_string(n) + " senders times " +
                     std::to_string(schedule.cycle.size()) + " rounds need more than " +
                     std::to_string(kGroupsPerEpoch) +
                     " groups; use groups=rows, a smaller k, or route=unicast");
  }
  std::vector<std::uint32_t> entries(n);
  for (std::uint32_t t = 0; t < schedule.cycle.size(); ++t) {
    const auto base = first_group(view) + t * n;
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto& receivers = schedule.cycle[t][i];
      for (const auto j : receivers) ++entries[j];
      if (std::binary_search(receivers.begin(), receivers.end(), self)) {
        program.receive_groups.push_back(base + i);
      }
    }
    auto& round = program.cycle[t];
    if (round.receivers.empty()) continue;
    round.multicast = true;
    round.group = base + self;
    program.send_groups.push_back(round.group);
  }
  program.group_entries_max = *std::max_element(entries.begin(), entries.end());
  return {};
}

/// One group per row of the ring plan; a patch leaves the group and becomes a copy of its own.
void add_row_groups(const View& view, const RingPlan& ring, std::uint32_t self, Program& program) {
  const auto base = first_group(view);
  RingWork work(ring.members());
  for (std::uint32_t t = 0; t < program.cycle.size(); ++t) {
    const auto mine = ring.round_of(self, t, work);
    auto& round = program.cycle[t];
    round.receivers = ranks_of(view, mine.receivers);
    if (mine.patch) round.patches.push_back(view.members[*mine.patch]);
    if (round.receivers.empty()) continue;
    round.multicast = true;
    round.group = base + mine.row;
    program.send_groups.push_back(round.group);
  }
  for (const auto row : ring.rows_of(self)) program.receive_groups.push_back(base + row);
  sort_unique(program.send_groups);
  sort_unique(program.receive_groups);
  program.group_entries_max = *std::max_element(ring.slots().begin(), ring.slots().end());
}

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
  constexpr std::uint32_t kNone = 0xFFFFFFFFU;
  const auto n = static_cast<std::uint32_t>(slots.size());
  std::vector<std::uint32_t> taker(n, kNone), given_up(n, kNone), queue{start};
  auto end = kNone;
  for (std::size_t q = 0; q < queue.size() && end == kNone; ++q) {
    for (std::uint32_t j = 0; j < n && end == kNone; ++j) {
      if (j == queue[q] || slots[j] == 0 || taker[j] != kNone || r.has(queue[q], j)) continue;
      taker[j] = queue[q];
      if (r.load[j] < slots[j]) end = j;
      for (std::uint32_t i = 0; i < n && end == kNone; ++i) {
        if (i == start || given_up[i] != kNone || !r.has(i, j) || r.times_of(i, j) < 2) continue;
        given_up[i] = j;
        queue.push_back(i);
      }
    }
  }
  if (end == kNone) return false;
  ++r.load[end];
  while (end != kNone) {
    const auto i = taker[end];
    r.add(i, end);
    end = i == start ? kNone : given_up[i];
    if (end != kNone) r.remove(i, end);
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
    problem.seed = mix_seed(view.seed) ^ mix_seed(std::uint64_t{view.epoch} * kRandomCycle + t);
    auto selection = select_random(problem);
    if (!selection) return selection.error();
    out.rates.push_back(selection->rate);
    out.cycle.push_back(std::move(selection->receivers));
  }
  return out;
}

/// Everyone to everyone with receive rate, in one round.
Schedule full_schedule(const View& view, Fanout fanout) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  Schedule out;
  out.period = 1;
  out.cycle.assign(1, {});
  std::uint32_t receivers = 0;
  std::optional<RateFraction> rate;
  const auto bound = [&rate](Kbps available, std::uint32_t transfers) {
    if (transfers == 0) return;
    const auto limit = reduced(available, transfers);
    if (!rate || limit < *rate) rate = limit;
  };
  for (std::uint32_t m = 0; m < n; ++m) {
    if (view.rx_kbps[m] == 0) continue;
    bound(view.rx_kbps[m], n - 1);
    ++receivers;
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t j = 0; j < n; ++j) {
      if (j != i && view.rx_kbps[j] > 0) others.push_back(j);
    }
    const auto copies = static_cast<std::uint32_t>(others.size());
    bound(view.tx_kbps[i], fanout == Fanout::unicast ? copies : 1);
    out.cycle[0].push_back(std::move(others));
  }
  out.rates.assign(1, *rate);
  return out;
}

/// What every selection needs of a view.
Result<std::uint32_t> check_view(const View& view, const Policy& policy, Rank self) {
  const auto n = view.members.size();
  if (n == 0 || view.tx_kbps.size() != n || view.rx_kbps.size() != n) {
    return bad_input("view: " + std::to_string(n) + " members with " +
                     std::to_string(view.tx_kbps.size()) + " transmit and " +
                     std::to_string(view.rx_kbps.size()) + " receive rates");
  }
  const auto at = std::lower_bound(view.members.begin(), view.members.end(), self);
  if (at == view.members.end() || *at != self) {
    return bad_input("view: rank " + std::to_string(self) + " is not a member of epoch " +
                     std::to_string(view.epoch));
  }
  const auto p = policy.select == SelectKind::all ? 1 : std::min<std::size_t>(policy.p, n - 1);
  const auto with_rate = static_cast<std::size_t>(
      std::count_if(view.rx_kbps.begin(), view.rx_kbps.end(), [](Kbps d) { return d > 0; }));
  for (std::size_t m = 0; n > 1 && m < n; ++m) {
    const auto rank = std::to_string(view.members[m]);
    const auto others = with_rate - (view.rx_kbps[m] > 0 ? 1 : 0);
    if (others < p) {
      return bad_input("no plan: rank " + rank + " needs " + std::to_string(p) +
                       " receivers, but only " + std::to_string(others) +
                       " other ranks have available receive rate");
    }
    if (view.tx_kbps[m] == 0) {
      return bad_input("no plan: rank " + rank + " has no available transmit rate");
    }
    if (view.rx_kbps[m] == 0 && policy.mix == MixKind::sgd) {
      return bad_input("no plan: rank " + rank +
                       " has no available receive rate, and with mix=sgd every rank must hear all "
                       "others; use mix=average");
    }
  }
  return static_cast<std::uint32_t>(at - view.members.begin());
}

Program alone(const View& view) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.rate = {view.tx_kbps.front(), 1};
  out.period_k = 1;
  out.cycle.resize(1);
  out.cycle.front().rate = out.rate;
  return out;
}

}  // namespace

Result<Program> compile(const View& view, const Policy& policy, Rank self_rank) {
  const auto self = check_view(view, policy, self_rank);
  if (!self) return self.error();
  const auto n = static_cast<std::uint32_t>(view.members.size());
  if (n == 1) return alone(view);
  const auto p = std::min(policy.p, n - 1);
  const auto fanout = policy.route == RouteKind::unicast ? Fanout::unicast : Fanout::multicast;

  Schedule schedule;
  std::optional<RingPlan> rows;
  if (policy.select == SelectKind::selmcast) {
    auto ring = RingPlan::make(p, view.tx_kbps, view.rx_kbps, policy.resolved_k(n), fanout);
    if (!ring) return ring.error();
    schedule.p = p;
    schedule.period = ring->period();
    schedule.rates.assign(ring->period(), ring->rate());
    if (policy.groups == GroupKind::sender || fanout == Fanout::unicast) {
      schedule.cycle = explicit_cycle(*ring, p);
    } else {
      for (std::uint32_t t = 0; t < ring->period(); ++t) {
        schedule.cycle.push_back(ring->edges_of(t));
      }
      rows = std::move(*ring);
    }
  } else if (policy.select == SelectKind::all) {
    schedule = full_schedule(view, fanout);
  } else {
    auto drawn = random_schedule(view, p, fanout);
    if (!drawn) return drawn.error();
    schedule = std::move(*drawn);
  }

  auto program = cut_out(view, schedule, *self);
  if (fanout == Fanout::unicast) return program;
  if (rows) {
    add_row_groups(view, *rows, *self, program);
  } else if (auto added = add_sender_groups(view, schedule, *self, program); !added) {
    return added.error();
  }
  return program;
}

}  // namespace selmcast
