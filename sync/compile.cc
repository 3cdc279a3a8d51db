#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "sync/program.h"
#include "sync/schedule.h"
#include "sync/select/pair_age.h"
#include "sync/server_program.h"

namespace selmcast {
namespace {

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

/// Everything but the groups of one member's program.
Program cut_out(const View& view, const Schedule& schedule, std::uint32_t self) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.period_k = schedule.period;
  out.rate = *std::min_element(schedule.rates.begin(), schedule.rates.end());
  out.rate_without_k = schedule.rate_without_k;
  for (std::size_t t = 0; t < schedule.cycle.size(); ++t) {
    const auto& receivers = schedule.cycle[t];
    RoundPlan round;
    round.rate = schedule.rates[t];
    round.receivers = ranks_of(view, receivers[self]);
    round.below_p = receivers[self].size() < schedule.p;
    for (std::uint32_t i = 0; i < receivers.size(); ++i) {
      if (std::binary_search(receivers[i].begin(), receivers[i].end(), self)) {
        round.senders.push_back(view.members[i]);
      }
    }
    out.cycle.push_back(std::move(round));
  }
  return out;
}

/// One group per sender and round of the cycle.
Result<void> add_sender_groups(const View& view, const Schedule& schedule, std::uint32_t self,
                               Program& program, RowChange& change) {
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
    for (std::uint32_t i = 0; i < n; ++i) {
      const bool heard =
          std::binary_search(round.senders.begin(), round.senders.end(), view.members[i]);
      if (heard) round.sender_groups.push_back(base + i);
    }
    if (round.receivers.empty()) continue;
    round.multicast = true;
    round.group = base + self;
    program.send_groups.push_back(round.group);
  }
  program.group_entries_max = *std::max_element(entries.begin(), entries.end());
  // Other groups than in the epoch before, so each entry is a join.
  change = {std::accumulate(entries.begin(), entries.end(), 0U), 0, program.group_entries_max,
            true};
  return {};
}

/// Everything but the group.
RoundPlan round_plan(const View& view, const RingRound& mine, const RateFraction& rate) {
  RoundPlan out;
  out.rate = rate;
  out.receivers = ranks_of(view, mine.receivers);
  out.senders = ranks_of(view, mine.senders);
  out.below_p = mine.below_p;
  if (mine.patch) out.patches.push_back(view.members[*mine.patch]);
  out.multicast = !out.receivers.empty();
  return out;
}

/// One group per row of the ring plan, and a patch is a copy of its own. O(k n).
Program row_program(const View& view, const RowPlan& rows, std::uint32_t self) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.period_k = rows.period();
  out.rate = rows.rate();
  out.rate_without_k = rows.rate_without_bound();
  out.receive_groups = rows.groups_of(self);
  const auto n = rows.members();
  RingWork work(n);
  for (std::uint32_t t = 0; t < rows.period(); ++t) {
    const auto mine = rows.round_of(self, t, work);
    auto round = round_plan(view, mine, rows.rate());
    // In each round the rows are dealt out to the members in ring order, one to each.
    for (const auto sender : mine.senders) {
      const auto group = rows.groups()[(mine.row + sender + n - self) % n];
      const bool member =
          std::binary_search(out.receive_groups.begin(), out.receive_groups.end(), group);
      round.sender_groups.push_back(member ? group : kNoGroup);
    }
    if (round.multicast) {
      round.group = rows.groups()[mine.row];
      out.send_groups.push_back(round.group);
    }
    out.cycle.push_back(std::move(round));
  }
  sort_unique(out.send_groups);
  out.group_entries_max = *std::max_element(rows.slots().begin(), rows.slots().end());
  return out;
}

/// Everybody's group and rates; the rest is decided as rounds begin.
Program online_program(const View& view, const Policy& policy, std::uint32_t self,
                       RowChange& change) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  auto& online = out.online.emplace();
  online.p = std::min(policy.p, n - 1);
  online.k = policy.resolved_k(n);
  online.eta = *policy.eta;
  online.first_group = first_group(view);
  online.tx_kbps = view.tx_kbps;
  online.rx_kbps = view.rx_kbps;
  RoundPlan round;
  for (std::uint32_t m = 0; m < n; ++m) {
    if (m == self) continue;
    if (view.rx_kbps[m] > 0) round.receivers.push_back(view.members[m]);
    if (view.rx_kbps[self] > 0) round.senders.push_back(view.members[m]);
  }
  round.multicast = !round.receivers.empty();
  round.group = online.first_group + self;
  // As if everyone had p receivers at a common rate; the rates of rounds are planned as they begin.
  round.rate = {*std::max_element(view.rx_kbps.begin(), view.rx_kbps.end()), online.p};
  if (static_cast<double>(view.tx_kbps[self]) < value_of(round.rate))
    round.rate = {view.tx_kbps[self], 1};
  if (round.multicast) out.send_groups = {round.group};
  out.rate = out.rate_without_k = round.rate;
  out.period_k = online.k > 0 ? online.k + 1 : 0;
  out.group_entries_max = n - 1;
  out.joins_per_round_max = n - 1;
  out.cycle.push_back(std::move(round));
  change = {};
  return out;
}

/// The row plan of the next view: the one before, followed, or a first one.
Result<void> follow_rows(const View& view, const Policy& policy, PlanHistory& history) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  const auto p = std::min(policy.p, n - 1);
  const auto k = policy.resolved_k(n);
  if (history.rows) {
    const auto change = history.rows->follow(p, k, view.members, view.tx_kbps, view.rx_kbps);
    if (!change) return change.error();
    history.change = *change;
    return {};
  }
  auto rows = RowPlan::make(p, k, view.members, view.tx_kbps, view.rx_kbps);
  if (!rows) return std::move(rows).error();
  history.rows = std::move(rows).value();
  const auto slots = history.rows->slots();
  history.change = {std::accumulate(slots.begin(), slots.end(), 0U), 0,
                    *std::max_element(slots.begin(), slots.end()), true};
  return {};
}

bool uses_rows(const Policy& policy) noexcept {
  return policy.select == SelectKind::selmcast && policy.groups == GroupKind::rows &&
         policy.route == RouteKind::star;
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
    if (view.rx_kbps[m] == 0 && policy.mix != MixKind::average && policy.mix != MixKind::age) {
      return bad_input("no plan: rank " + rank +
                       " has no available receive rate, and with mix=sgd, compensate or stale "
                       "every rank must hear all others; use mix=average or age");
    }
  }
  return static_cast<std::uint32_t>(at - view.members.begin());
}

Program alone(const View& view) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.rate = out.rate_without_k = {view.tx_kbps.front(), 1};
  out.period_k = 1;
  out.cycle.resize(1);
  out.cycle.front().rate = out.rate;
  return out;
}

}  // namespace

Result<Program> compile(const View& view, const Policy& policy, Rank self_rank,
                        PlanHistory& history) {
  const auto self = check_view(view, policy, self_rank);
  if (!self) return self.error();
  if (view.members.size() == 1) {
    history.change = {};
    return alone(view);
  }
  if (uses_rows(policy)) {
    if (auto followed = follow_rows(view, policy, history); !followed) return followed.error();
    return row_program(view, *history.rows, *self);
  }
  if (policy.route == RouteKind::servers) {
    auto program = server_program(view, policy, *self);
    if (!program) return program;
    // Other groups than in the epoch before: of every server, each other member joins its group.
    const auto n = static_cast<std::uint32_t>(view.members.size());
    const auto entries = program->group_entries_max;
    history.change = {std::min(policy.servers, n) * (n - 1), 0, entries, true};
    return program;
  }
  if (policy.eta) return online_program(view, policy, *self, history.change);
  const auto schedule = make_schedule(view, policy);
  if (!schedule) return schedule.error();
  auto program = cut_out(view, *schedule, *self);
  if (policy.route == RouteKind::unicast) {
    history.change = {};
    return program;
  }
  if (auto added = add_sender_groups(view, *schedule, *self, program, history.change); !added) {
    return added.error();
  }
  return program;
}

Result<Program> compile(const View& view, const Policy& policy, Rank self) {
  PlanHistory history;
  return compile(view, policy, self, history);
}

Result<ScheduleFacts> schedule_facts(const View& view, const Policy& policy,
                                     const PlanHistory& history) {
  ScheduleFacts out;
  if (view.members.size() < 2 || policy.eta) return out;
  Schedule schedule;
  if (uses_rows(policy)) {
    SELMCAST_CHECK(history.rows.has_value(), "the view was compiled before");
    schedule.p = std::min(policy.p, history.rows->members() - 1);
    for (std::uint32_t t = 0; t < history.rows->period(); ++t) {
      schedule.cycle.push_back(history.rows->edges_of(t));
    }
  } else {
    auto made = make_schedule(view, policy);
    if (!made) return std::move(made).error();
    schedule = std::move(made).value();
  }
  for (const auto& round : schedule.cycle) {
    for (const auto& receivers : round)
      out.senders_below_p += receivers.size() < schedule.p ? 1 : 0;
  }
  const auto age = pair_age_of(schedule.cycle);
  out.pair_age_worst = age.worst;
  out.pair_age_mean = age.mean;
  return out;
}

}  // namespace selmcast
