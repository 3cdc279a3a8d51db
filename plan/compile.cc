#include "plan/compile.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/random.h"
#include "plan/schedule.h"
#include "plan/select/pair_age.h"
#include "plan/server_program.h"

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

/// What all programs of a view with a plan begin with.
Program program_of(const View& view, const RateFraction& rate, const RateFraction& without_k,
                   std::uint32_t period) {
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.rate = rate;
  out.rate_without_k = without_k;
  out.period_k = period;
  return out;
}

/// Legs of a round in which everyone sends all it has: to `receivers`, by the group where there is
/// one, to a patch by unicast, and from `senders`.
void add_star(Program& program, std::uint32_t group, std::span<const Rank> receivers,
              std::span<const Rank> patches, std::span<const Rank> senders) {
  if (group == kNoGroup) {
    program.send_each({}, receivers);
  } else {
    program.send({.group = group}, receivers);
  }
  program.send_each({.patch = true}, patches);
  for (const Rank from : senders) program.receive({}, from);
}

/// `grouped`: one group per sender and round of the cycle; otherwise all by unicast.
Program schedule_program(const View& view, const Schedule& schedule, std::uint32_t self,
                         bool grouped) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  auto out = program_of(view, *std::min_element(schedule.rates.begin(), schedule.rates.end()),
                        schedule.rate_without_k, schedule.period);
  for (std::uint32_t t = 0; t < schedule.cycle.size(); ++t) {
    const auto& receivers = schedule.cycle[t];
    const auto base = first_group(view) + t * n;
    std::vector<Rank> senders;
    for (std::uint32_t i = 0; i < n; ++i) {
      if (!std::binary_search(receivers[i].begin(), receivers[i].end(), self)) continue;
      senders.push_back(view.members[i]);
      if (grouped) out.receive_groups.push_back(base + i);
    }
    out.add_round(schedule.rates[t]).below_p = receivers[self].size() < schedule.p;
    const auto to = ranks_of(view, receivers[self]);
    if (grouped && !to.empty()) out.send_groups.push_back(base + self);
    add_star(out, grouped ? base + self : kNoGroup, to, {}, senders);
  }
  return out;
}

/// Whether there are groups enough, how many entries that takes at most, and who joins what.
Result<void> count_sender_groups(const View& view, const Schedule& schedule, Program& program,
                                 RowChange& change) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  if (schedule.cycle.size() * n > kGroupsPerEpoch) {
    return bad_input("no plan: " + std::to_string(n) + " senders times " +
                     std::to_string(schedule.cycle.size()) + " rounds need more than " +
                     std::to_string(kGroupsPerEpoch) +
                     " groups; use groups=rows, a smaller k, or route=unicast");
  }
  std::vector<std::uint32_t> entries(n);
  for (const auto& round : schedule.cycle) {
    for (const auto& receivers : round) {
      for (const auto j : receivers) ++entries[j];
    }
  }
  program.group_entries_max = *std::max_element(entries.begin(), entries.end());
  // Other groups than in the epoch before, so each entry is a join.
  change = {std::accumulate(entries.begin(), entries.end(), 0U), 0, program.group_entries_max,
            true};
  return {};
}

/// One group per row of the ring plan, and a patch is a copy of its own. O(k n).
Program row_program(const View& view, const RowPlan& rows, std::uint32_t self) {
  auto out = program_of(view, rows.rate(), rows.rate_without_bound(), rows.period());
  out.receive_groups = rows.groups_of(self);
  RingWork work(rows.members());
  for (std::uint32_t t = 0; t < rows.period(); ++t) {
    const auto mine = rows.round_of(self, t, work);
    const auto group = rows.groups()[mine.row];
    const auto receivers = ranks_of(view, mine.receivers);
    std::vector<Rank> patches;
    if (mine.patch) patches.push_back(view.members[*mine.patch]);
    out.add_round(rows.rate()).below_p = mine.below_p;
    add_star(out, group, receivers, patches, ranks_of(view, mine.senders));
    if (!receivers.empty()) out.send_groups.push_back(group);
  }
  sort_unique(out.send_groups);
  out.group_entries_max = *std::max_element(rows.slots().begin(), rows.slots().end());
  return out;
}

/// Everybody's group and rates; the rest is decided as rounds begin.
Program online_program(const View& view, const Policy& policy, std::uint32_t self) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  const auto p = std::min(policy.select.p, n - 1);
  const auto k = policy.resolved_k(n);
  // As if everyone had p receivers at a common rate; the rates of rounds are planned as they begin.
  RateFraction rate{*std::max_element(view.rx_kbps.begin(), view.rx_kbps.end()), p};
  if (static_cast<double>(view.tx_kbps[self]) < value_of(rate)) rate = {view.tx_kbps[self], 1};
  auto out = program_of(view, rate, rate, k > 0 ? k + 1 : 0);
  out.online = OnlineProgram{p, k, *policy.pace.eta, first_group(view), view.tx_kbps, view.rx_kbps};
  std::vector<Rank> receivers, senders;
  for (std::uint32_t m = 0; m < n; ++m) {
    if (m == self) continue;
    if (view.rx_kbps[m] > 0) receivers.push_back(view.members[m]);
    if (view.rx_kbps[self] > 0) senders.push_back(view.members[m]);
  }
  out.add_round(rate);
  add_star(out, out.online->first_group + self, receivers, {}, senders);
  if (!receivers.empty()) out.send_groups = {out.online->first_group + self};
  out.group_entries_max = n - 1;
  out.joins_per_round_max = n - 1;
  return out;
}

/// The row plan of the next view: the one before, followed, or a first one.
Result<void> follow_rows(const View& view, const Policy& policy, PlanHistory& history) {
  const auto n = static_cast<std::uint32_t>(view.members.size());
  const auto p = std::min(policy.select.p, n - 1);
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
  const auto p = policy.has(Trait::partial) ? std::min<std::size_t>(policy.select.p, n - 1) : 1;
  const bool may_be_deaf = policy.has(Trait::deaf_allowed);
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
    if (view.rx_kbps[m] == 0 && !may_be_deaf) {
      return bad_input("no plan: rank " + rank +
                       " has no available receive rate, and with mix=sgd, compensate or stale "
                       "every rank must hear all others; use mix=average or age");
    }
  }
  return static_cast<std::uint32_t>(at - view.members.begin());
}

Program alone(const View& view) {
  const RateFraction rate{view.tx_kbps.front(), 1};
  auto out = program_of(view, rate, rate, 1);
  out.add_round(rate);
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
  if (policy.follows_rows()) {
    if (auto followed = follow_rows(view, policy, history); !followed) return followed.error();
    return row_program(view, *history.rows, *self);
  }
  if (policy.has(Trait::servers)) {
    auto program = server_program(view, policy.route.servers, *self);
    if (!program) return program;
    // Other groups than in the epoch before: of every server, each other member joins its group.
    const auto n = static_cast<std::uint32_t>(view.members.size());
    const auto entries = program->group_entries_max;
    history.change = {std::min(policy.route.servers, n) * (n - 1), 0, entries, true};
    return program;
  }
  if (policy.has(Trait::online)) {
    history.change = {};
    return online_program(view, policy, *self);
  }
  const auto schedule = make_schedule(view, policy);
  if (!schedule) return schedule.error();
  const bool grouped = !policy.has(Trait::unicast);
  auto program = schedule_program(view, *schedule, *self, grouped);
  if (!grouped) {
    history.change = {};
    return program;
  }
  auto counted = count_sender_groups(view, *schedule, program, history.change);
  if (!counted) return std::move(counted).error();
  return program;
}

Result<Program> compile(const View& view, const Policy& policy, Rank self) {
  PlanHistory history;
  return compile(view, policy, self, history);
}

Result<ScheduleFacts> schedule_facts(const View& view, const Policy& policy,
                                     const PlanHistory& history) {
  ScheduleFacts out;
  if (view.members.size() < 2 || policy.has(Trait::online)) return out;
  Schedule schedule;
  if (policy.follows_rows()) {
    SELMCAST_CHECK(history.rows.has_value(), "the view was compiled before");
    schedule.p = std::min(policy.select.p, history.rows->members() - 1);
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
