#include "plan/select/row_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {

using reference::Ratio;
using reference::ratio;

/// A job whose members come, go and change their rates.
struct Members {
  std::uint32_t p = 1, k = 0;
  std::map<std::uint32_t, std::pair<Kbps, Kbps>> links;  ///< Key -> transmit, receive rate.
  std::uint32_t next_key = 0;

  std::vector<std::uint32_t> keys() const {
    std::vector<std::uint32_t> out;
    for (const auto& [key, rates] : links) out.push_back(key);
    return out;
  }
  std::vector<Kbps> tx() const {
    std::vector<Kbps> out;
    for (const auto& [key, rates] : links) out.push_back(rates.first);
    return out;
  }
  std::vector<Kbps> rx() const {
    std::vector<Kbps> out;
    for (const auto& [key, rates] : links) out.push_back(rates.second);
    return out;
  }
};

Kbps draw_rate(std::uint32_t law, SplitMix64& random) {
  if (law == 0) return 10'000;
  if (law == 1) return 7'500 + random.below(5'001);
  return random.chance(0.5) ? 10'000 : 2'000;
}

Members random_job(SplitMix64& random, std::uint32_t n, std::uint32_t p, std::uint32_t law) {
  Members job;
  job.p = p;
  for (; job.next_key < n; ++job.next_key) {
    const auto rate = draw_rate(law, random);
    // Some senders cannot pay for a patch.
    job.links[job.next_key] = {law == 1 && random.chance(0.3) ? rate / 2 : 2 * rate, rate};
  }
  return job;
}

enum class Event { one_slower, all_drift, dies, joins };

void happen(Event event, std::uint32_t law, Members& job, SplitMix64& random) {
  const auto any = std::next(
      job.links.begin(),
      static_cast<std::ptrdiff_t>(random.below(static_cast<std::uint32_t>(job.links.size()))));
  switch (event) {
    case Event::one_slower:
      any->second.second = std::max<Kbps>(any->second.second * 4 / 5, 100);
      break;
    case Event::all_drift:
      for (auto& [key, rates] : job.links)
        rates.second = rates.second * (98 + random.below(5)) / 100;
      break;
    case Event::dies:
      job.links.erase(any);
      break;
    case Event::joins:
      job.links[job.next_key++] = {20'000, draw_rate(law, random)};
  }
}

using Groups = std::map<std::uint32_t, std::set<std::uint32_t>>;
Groups groups_of(const RowPlan& plan, const std::vector<std::uint32_t>& keys) {
  Groups out;
  for (std::uint32_t m = 0; m < keys.size(); ++m) {
    const auto groups = plan.groups_of(m);
    out[keys[m]].insert(groups.begin(), groups.end());
  }
  return out;
}

/// Joins and leaves of the members of `now`, counted from the sets themselves.
RowChange difference(const Groups& before, const Groups& now) {
  RowChange out;
  for (const auto& [key, groups] : now) {
    const auto at = before.find(key);
    const std::set<std::uint32_t> none;
    const auto& had = at == before.end() ? none : at->second;
    std::uint32_t joins = 0;
    for (const auto g : groups) joins += had.count(g) == 0 ? 1 : 0;
    for (const auto g : had) out.leaves += groups.count(g) == 0 ? 1 : 0;
    out.joins += joins;
    out.most_joins = std::max(out.most_joins, joins);
  }
  return out;
}

struct Walk {
  std::vector<std::uint32_t> load;
  std::vector<std::vector<std::uint32_t>> heard;
  std::vector<std::uint32_t> self_members, rows;
  std::uint32_t patches = 0;
};

/// One member's part of a round against the sets that members joined.
void check_member(const Members& job, const RowPlan& plan, const Groups& joined,
                  const std::vector<std::uint32_t>& keys, std::uint32_t i, const RingRound& round,
                  Walk& walk) {
  const auto group = plan.groups()[round.row];
  const bool self = joined.at(keys[i]).count(group) > 0;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t j = 0; j < keys.size(); ++j) {
    if (j != i && joined.at(keys[j]).count(group) > 0) expected.push_back(j);
  }
  EXPECT_TRUE(std::ranges::equal(round.receivers, expected)) << "receivers are who joined";
  EXPECT_GE(expected.size() + (self ? 1 : 0), job.p);
  EXPECT_EQ(round.below_p, expected.size() + (round.patch ? 1 : 0) < job.p);
  if (self) walk.self_members.push_back(i);
  walk.rows.push_back(round.row);
  if (round.patch) {
    ++walk.patches;
    EXPECT_TRUE(self);
    EXPECT_NE(*round.patch, i);
    EXPECT_FALSE(reference::contains(expected, *round.patch));
    EXPECT_FALSE((Ratio{job.tx()[i], 2} < ratio(plan.rate())));
    expected.push_back(*round.patch);
  }
  for (const auto j : expected) {
    ++walk.load[j];
    walk.heard[j].push_back(i);
  }
}

void check_plan(const Members& job, const RowPlan& plan) {
  const auto keys = job.keys();
  const auto n = static_cast<std::uint32_t>(keys.size());
  const auto joined = groups_of(plan, keys);
  const auto most = reference::slots(job.rx(), ratio(plan.rate()));
  RingWork work(n);
  std::set<std::pair<std::uint32_t, std::uint32_t>> met;
  for (std::uint32_t j = 0; j < n; ++j) {
    EXPECT_EQ(joined.at(keys[j]).size(), most[j]) << "every slot is used, and no more";
  }
  for (std::uint32_t t = 0; t < plan.period(); ++t) {
    Walk walk{std::vector<std::uint32_t>(n), std::vector<std::vector<std::uint32_t>>(n), {}, {}, 0};
    std::vector<std::vector<std::uint32_t>> senders(n);
    for (std::uint32_t i = 0; i < n; ++i) {
      const auto round = plan.round_of(i, t, work);
      senders[i].assign(round.senders.begin(), round.senders.end());
      check_member(job, plan, joined, keys, i, round, walk);
    }
    EXPECT_EQ(std::set<std::uint32_t>(walk.rows.begin(), walk.rows.end()).size(), n);
    for (std::uint32_t j = 0; j < n; ++j) {
      EXPECT_LE(walk.load[j], most[j]);
      EXPECT_EQ(walk.heard[j], senders[j]);
      for (const auto i : senders[j]) met.insert({i, j});
    }
    const auto& self = walk.self_members;
    const auto may = [&](std::size_t q, std::size_t g) {
      const bool pays = !(Ratio{job.tx()[self[q]], 2} < ratio(plan.rate()));
      return pays && joined.at(keys[self[g]]).count(plan.groups()[walk.rows[self[q]]]) == 0;
    };
    EXPECT_EQ(walk.patches, reference::largest_matching(self.size(), may));
    const auto edges = plan.edges_of(t);
    for (std::uint32_t i = 0; i < n; ++i) {
      for (const auto j : edges[i]) EXPECT_TRUE(reference::contains(senders[j], i));
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 0; j < n; ++j) {
      EXPECT_TRUE(i == j || most[j] == 0 || met.count({i, j}) > 0) << i << " never reaches " << j;
    }
  }
}

/// Follows one event; checks the plan, its rate and the counted change.
RowChange follow(const Members& job, const Groups& before, RowPlan& plan) {
  const auto keys = job.keys();
  const auto change = plan.follow(job.p, job.k, keys, job.tx(), job.rx());
  const auto fresh = RingPlan::make(job.p, job.tx(), job.rx(), job.k);
  EXPECT_EQ(change.has_value(), fresh.has_value());
  if (!change) return {};
  EXPECT_EQ(plan.rate(), fresh->rate()) << "staying costs no rate";
  EXPECT_LE(plan.period(), job.k > 0 ? job.k : fresh->period() + fresh->period() / 4);
  EXPECT_LE(std::uint64_t{plan.senders_below_p()} * fresh->period(),
            std::uint64_t{fresh->senders_below_p()} * plan.period())
      << "staying costs no sender a receiver";
  const auto counted = difference(before, groups_of(plan, keys));
  EXPECT_EQ(change->joins, counted.joins);
  EXPECT_EQ(change->leaves, counted.leaves);
  EXPECT_EQ(change->most_joins, counted.most_joins);
  check_plan(job, plan);
  return *change;
}

TEST(RowPlan, KeepsItsPromisesThroughSequencesOfEvents) {
  SplitMix64 random(21);
  std::uint32_t edited = 0, rebuilt = 0;
  for (std::uint32_t sequence = 0; sequence < 60 && !HasFailure(); ++sequence) {
    const auto law = static_cast<std::uint32_t>(random.below(3));
    const auto n = static_cast<std::uint32_t>(3 + random.below(28));
    const auto p = static_cast<std::uint32_t>(1 + random.below(std::max(1U, n / 2)));
    auto job = random_job(random, n, p, law);
    if (random.chance(0.5)) job.k = std::max(4U, (n + p - 1) / p + 1);
    auto plan = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
    if (!plan) continue;
    check_plan(job, *plan);
    for (std::uint32_t step = 0; step < 25 && !HasFailure(); ++step) {
      const auto before = groups_of(*plan, job.keys());
      auto event = static_cast<Event>(random.below(4));
      if (job.links.size() < 4 && event == Event::dies) event = Event::joins;
      happen(event, law, job, random);
      job.p = std::min(job.p, static_cast<std::uint32_t>(job.links.size() - 1));
      const auto change = follow(job, before, *plan);
      // Equal slots are always laid out anew, which keeps most groups as well.
      const auto slots = plan->slots();
      if (std::ranges::adjacent_find(slots, std::not_equal_to<>()) == slots.end()) continue;
      ++(change.rebuilt ? rebuilt : edited);
    }
  }
  std::printf("%u views followed by edits, %u laid out anew\n", edited, rebuilt);
  EXPECT_GT(edited, 4 * rebuilt) << "staying is the rule";
}

/// Mean edits over many jobs of 64 members with 6 receivers each.
struct Cost {
  double edits = 0.0, anew = 0.0, least = 0.0, rebuilt = 0.0;
};
Cost cost_of(Event event) {
  constexpr std::uint32_t kJobs = 30;
  SplitMix64 random(22);
  Cost out;
  for (std::uint32_t repeat = 0; repeat < kJobs; ++repeat) {
    auto job = random_job(random, 64, 6, 1);
    auto plan = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
    const auto keys = job.keys();
    const auto before = groups_of(*plan, keys);
    happen(event, 1, job, random);
    const auto change = follow(job, before, *plan);
    out.edits += (change.joins + change.leaves) / static_cast<double>(kJobs);
    out.rebuilt += (change.rebuilt ? 1.0 : 0.0) / kJobs;
    const auto fresh = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
    const auto other = difference(before, groups_of(*fresh, job.keys()));
    out.anew += (other.joins + other.leaves) / static_cast<double>(kJobs);
    // Each slot that a member gains or loses is an edit in any layout.
    const auto now = groups_of(*plan, job.keys());
    for (const auto& [key, groups] : now) {
      const auto at = before.find(key);
      const auto had = at == before.end() ? 0.0 : static_cast<double>(at->second.size());
      out.least += std::abs(static_cast<double>(groups.size()) - had) / kJobs;
    }
  }
  return out;
}

TEST(RowPlan, ChangesLittleWhenLittleChanges) {
  for (const auto& [event, name] : {std::pair{Event::one_slower, "one rank 20 % slower"},
                                    {Event::all_drift, "all +-2 %"},
                                    {Event::dies, "a rank dies"},
                                    {Event::joins, "a rank joins"}}) {
    const auto cost = cost_of(event);
    std::printf("%-22s edits %.1f (at least %.1f), laid out anew %.1f; rebuilt %.0f %%\n", name,
                cost.edits, cost.least, cost.anew, 100 * cost.rebuilt);
    EXPECT_LT(5 * cost.edits, cost.anew);
    // A death takes one of 64 rows with its 6 members and the dead member's 6 slots: both must be
    // made good, and as many rows of others may have to move.
    EXPECT_LE(cost.edits, 2 * cost.least + 4 * 6);
  }
}

TEST(RowPlan, EqualRanksKeepPReceiversWhenOneDies) {
  // Nobody can pay for a patch, so a member in its own row would stay short.
  Members job;
  job.p = 3;
  for (; job.next_key < 10; ++job.next_key) job.links[job.next_key] = {150, 300};
  auto plan = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
  ASSERT_TRUE(plan.has_value());
  for (const std::uint32_t key : {9U, 0U, 4U, 5U}) {
    const auto before = groups_of(*plan, job.keys());
    job.links.erase(key);
    const auto change = follow(job, before, *plan);
    EXPECT_EQ(plan->senders_below_p(), 0U);
    // A new ring of equal columns moves only those around the gap.
    EXPECT_LT(change.joins, job.links.size() * 3) << "fewer than all memberships";
  }
}

TEST(RowPlan, ANewLayoutSharesNoGroupWithTheOneBefore) {
  SplitMix64 random(24);
  std::uint32_t anew = 0;
  for (std::uint32_t repeat = 0; repeat < 60; ++repeat) {
    auto job = random_job(random, 9, 4, 1);
    auto plan = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
    ASSERT_TRUE(plan.has_value());
    const std::set<std::uint32_t> before(plan->groups().begin(), plan->groups().end());
    for (auto& [key, rates] : job.links) rates.second = draw_rate(1, random);
    const auto change = follow(job, groups_of(*plan, job.keys()), *plan);
    const auto equal =
        std::ranges::adjacent_find(plan->slots(), std::not_equal_to<>()) == plan->slots().end();
    if (!change.rebuilt || equal) continue;
    ++anew;
    for (const auto group : plan->groups()) EXPECT_EQ(before.count(group), 0U);
  }
  EXPECT_GT(anew, 0U);
}

TEST(RowPlan, AFailedChangeLeavesThePlan) {
  SplitMix64 random(23);
  auto job = random_job(random, 8, 3, 1);
  auto plan = RowPlan::make(job.p, job.k, job.keys(), job.tx(), job.rx());
  ASSERT_TRUE(plan.has_value());
  const auto before = groups_of(*plan, job.keys());
  auto broken = job;
  for (auto& [key, rates] : broken.links) rates.second = 0;
  EXPECT_FALSE(plan->follow(3, 0, broken.keys(), broken.tx(), broken.rx()).has_value());
  EXPECT_EQ(groups_of(*plan, job.keys()), before);
  check_plan(job, *plan);
}

}  // namespace
}  // namespace selmcast
