#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "plan/compile.h"
#include "tests/unit/plan/planned_rounds.h"

namespace selmcast {
namespace {

View view_of(std::vector<Kbps> tx, std::vector<Kbps> rx, std::uint32_t epoch = 0) {
  View view;
  view.epoch = epoch;
  view.seed = 42;
  // Job ranks with holes: some ranks have left.
  for (std::uint32_t m = 0; m < tx.size(); ++m) view.members.push_back(3 * m + m % 2);
  view.tx_kbps = std::move(tx);
  view.rx_kbps = std::move(rx);
  return view;
}

View random_view(SplitMix64& random, std::uint32_t n, bool zeros) {
  std::vector<Kbps> tx, rx;
  const auto spread = static_cast<std::uint32_t>(random.chance(0.5) ? 3 : 9000);
  for (std::uint32_t m = 0; m < n; ++m) {
    tx.push_back(1000 + random.below(spread) * 500);
    rx.push_back(zeros && random.chance(0.15) ? 0 : 1000 + random.below(spread));
  }
  return view_of(tx, rx, static_cast<std::uint32_t>(random.below(1000)));
}

Policy policy_of(const std::string& text) {
  auto policy = parse_policy(text);
  EXPECT_TRUE(policy.has_value()) << text;
  return *policy;
}

using Programs = std::map<Rank, Program>;

/// Of a view that compiles, by the rank's own history of this view alone.
ScheduleFacts facts_of(const View& view, const Policy& policy) {
  PlanHistory history;
  EXPECT_TRUE(compile(view, policy, view.members.front(), history).has_value());
  const auto facts = schedule_facts(view, policy, history);
  EXPECT_TRUE(facts.has_value());
  return *facts;
}

/// compile() on every member; empty (for all of them alike) when the view has no plan.
Programs compile_all(const View& view, const Policy& policy) {
  Programs out;
  std::size_t errors = 0;
  for (const auto rank : view.members) {
    auto program = compile(view, policy, rank);
    if (program) {
      out.emplace(rank, std::move(*program));
    } else {
      ++errors;
      EXPECT_EQ(program.error().kind, ErrorKind::bad_input);
    }
  }
  EXPECT_TRUE(errors == 0 || errors == view.members.size()) << "ranks disagree on solvability";
  return out;
}

/// transfers * y <= available; all numbers of these tests are small.
bool within(Kbps available, std::uint64_t transfers, const RateFraction& y) {
  return transfers * y.num <= available * y.den;
}

bool has(const std::vector<std::uint32_t>& sorted, std::uint32_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

void check_round(const View& view, const Policy& policy, const Programs& programs, std::size_t t) {
  std::map<Rank, std::vector<Rank>> heard;
  std::set<std::uint32_t> groups;
  for (std::size_t m = 0; m < view.members.size(); ++m) {
    const auto rank = view.members[m];
    const auto& program = programs.at(rank);
    const auto round = planned_round(program, t);
    const auto all = reached(round);
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end(), std::greater_equal<>()), all.end());
    EXPECT_FALSE(has(all, rank));
    for (const auto receiver : all) heard[receiver].push_back(rank);

    const bool unicast = policy.has(Trait::unicast);
    EXPECT_EQ(round.multicast, !unicast && !round.receivers.empty());
    const auto copies = (unicast ? round.receivers.size() : 1) + round.patches.size();
    EXPECT_TRUE(all.empty() || within(view.tx_kbps[m], copies, round.rate));
    EXPECT_FALSE(round.rate < program.rate);
    EXPECT_EQ(round.rate, programs.begin()->second.rounds[t].rate);
    if (!round.multicast) continue;
    EXPECT_TRUE(groups.insert(round.group).second) << "two senders on one group";
    EXPECT_TRUE(has(program.send_groups, round.group));
    for (const auto other : view.members) {
      const bool joined = has(programs.at(other).receive_groups, round.group);
      const bool own_row = policy.has(Trait::row_groups) && other == rank;
      EXPECT_TRUE(joined == has(round.receivers, other) || own_row)
          << "rank " << other << " and group " << round.group;
    }
  }
  for (std::size_t m = 0; m < view.members.size(); ++m) {
    const auto rank = view.members[m];
    EXPECT_EQ(senders_of(programs.at(rank), t), heard[rank]) << "rank " << rank;
    EXPECT_TRUE(within(view.rx_kbps[m], heard[rank].size(), programs.at(rank).rounds[t].rate));
  }
}

void check_programs(const View& view, const Policy& policy, const Programs& programs,
                    const PlanHistory& history) {
  const auto& first = programs.begin()->second;
  std::uint32_t below = 0, entries = 0;
  std::set<std::pair<Rank, Rank>> met;
  for (const auto& [rank, program] : programs) {
    ASSERT_EQ(program.rounds.size(), first.rounds.size());
    EXPECT_EQ(program.epoch, view.epoch);
    EXPECT_EQ(program.members, view.members);
    EXPECT_EQ(program.rate, first.rate);
    EXPECT_EQ(program.period_k, first.period_k);
    EXPECT_EQ(program.group_entries_max, first.group_entries_max);
    EXPECT_TRUE(std::is_sorted(program.send_groups.begin(), program.send_groups.end()));
    EXPECT_TRUE(std::is_sorted(program.receive_groups.begin(), program.receive_groups.end()));
    entries = std::max(entries, static_cast<std::uint32_t>(program.receive_groups.size()));
    for (const auto& round : planned_rounds(program)) {
      below += round.below_p ? 1 : 0;
      EXPECT_EQ(round.below_p,
                policy.select.p > 0 &&
                    reached(round).size() <
                        std::min<std::size_t>(policy.select.p, view.members.size() - 1));
      for (const auto receiver : reached(round)) met.insert({rank, receiver});
    }
  }
  const auto facts = *schedule_facts(view, policy, history);
  EXPECT_EQ(facts.senders_below_p, below);
  EXPECT_EQ(first.group_entries_max, entries);
  for (std::size_t t = 0; t < first.rounds.size(); ++t) check_round(view, policy, programs, t);
  if (first.period_k == 0) return;
  EXPECT_EQ(first.rounds.size(), first.period_k);
  EXPECT_LE(facts.pair_age_worst, first.period_k);
  for (std::size_t m = 0; m < view.members.size(); ++m) {
    for (const auto sender : view.members) {
      if (sender == view.members[m] || view.rx_kbps[m] == 0) continue;
      if (policy.has(Trait::unbounded)) continue;
      EXPECT_TRUE(met.count({sender, view.members[m]}) > 0);
    }
  }
}

class EveryPolicy : public testing::TestWithParam<const char*> {};

TEST_P(EveryPolicy, RanksAgreeAndLoadsStayWithinTheLinks) {
  const auto policy = policy_of(GetParam());
  SplitMix64 random(8);
  int plans = 0;
  for (int instance = 0; instance < 60 && !HasFailure(); ++instance) {
    const auto n = static_cast<std::uint32_t>(1 + random.below(instance % 10 == 0 ? 30 : 12));
    const auto view = random_view(random, n, instance % 3 == 0);
    const auto programs = compile_all(view, policy);
    if (programs.empty()) continue;
    ++plans;
    PlanHistory history;
    ASSERT_TRUE(compile(view, policy, view.members.front(), history).has_value());
    check_programs(view, policy, programs, history);
    if (n == 1 || policy.select.kind == SelectKind::random || policy.has(Trait::gradients))
      continue;
    EXPECT_GT(facts_of(view, policy).pair_age_worst, 0U);
  }
  EXPECT_GT(plans, 30);
}

INSTANTIATE_TEST_SUITE_P(Axes, EveryPolicy,
                         testing::Values("", "mix=sgd", "select=all route=unicast",
                                         "select=selmcast:1", "select=selmcast:3",
                                         "select=selmcast:2,0", "select=selmcast:1,2",
                                         "select=selmcast:2 route=unicast",
                                         "select=selmcast:2 groups=sender",
                                         "select=selmcast:4,3 groups=sender", "select=random:1",
                                         "select=random:3", "select=random:2 route=unicast"));

TEST(Compile, OneMemberHasNobodyToTalkTo) {
  for (const auto* text : {"", "select=selmcast:2", "select=random:2"}) {
    const auto program = compile(view_of({0}, {0}), policy_of(text), 0);
    ASSERT_TRUE(program.has_value());
    ASSERT_EQ(program->rounds.size(), 1U);
    EXPECT_TRUE(program->legs_of(0).empty());
    EXPECT_TRUE(program->receive_groups.empty());
  }
}

TEST(Compile, TwoMembersExchange) {
  for (const auto* text : {"", "select=selmcast:2", "select=selmcast:1", "select=random:1"}) {
    const auto view = view_of({900, 700}, {500, 800});
    const auto programs = compile_all(view, policy_of(text));
    ASSERT_EQ(programs.size(), 2U);
    for (const auto& [rank, program] : programs) {
      EXPECT_EQ(program.rate, (RateFraction{500, 1}));
      for (const auto& round : planned_rounds(program)) {
        EXPECT_EQ(round.receivers, (std::vector<Rank>{rank == 0 ? 4U : 0U}));
        EXPECT_EQ(round.senders, round.receivers);
      }
    }
  }
}

TEST(Compile, AllIsBoundByTheSlowestReceiverOrSender) {
  const auto view = view_of({900, 900, 250, 900}, {900, 600, 900, 900});
  const auto multicast = compile(view, policy_of(""), 0);
  ASSERT_TRUE(multicast.has_value());
  EXPECT_EQ(multicast->rate, (RateFraction{200, 1}));  // 600 shared by three senders.
  const auto unicast = compile(view, policy_of("route=unicast"), 0);
  ASSERT_TRUE(unicast.has_value());
  EXPECT_EQ(unicast->rate, (RateFraction{250, 3}));  // 250 shared by three copies.
  EXPECT_TRUE(unicast->receive_groups.empty());
  EXPECT_EQ(multicast->group_entries_max, 3U);
  EXPECT_EQ(multicast->period_k, 1U);
}

TEST(Compile, SelmcastTakesTheBestRateWithinTheBound) {
  // Ten slots at 100: D'Hondt with 5 * 2 seats; k = 4 asks for ceil(4/4) = 1 slot.
  const auto view = view_of({900, 900, 900, 900, 900}, {300, 200, 200, 200, 100});
  const auto program = compile(view, policy_of("select=selmcast:2,4"), 0);
  ASSERT_TRUE(program.has_value());
  EXPECT_LE(program->period_k, 4U);
  EXPECT_EQ(program->rate, (RateFraction{50, 1}));  // 5 rows in 4 rounds take 2 slots of 100.
  const auto free = compile(view, policy_of("select=selmcast:2,0"), 0);
  ASSERT_TRUE(free.has_value());
  EXPECT_EQ(free->rate, (RateFraction{100, 1}));
  EXPECT_EQ(free->period_k, 5U);
  // Everyone has a slot at that rate, which is all that k = n, the default, asks for.
  const auto usual = compile(view, policy_of("select=selmcast:2"), 0);
  ASSERT_TRUE(usual.has_value());
  EXPECT_EQ(usual->rate, (RateFraction{100, 1}));
  EXPECT_EQ(usual->period_k, 5U);
}

TEST(Compile, TheUsualBoundLetsEveryoneHearSomebodyAndCostsNoMore) {
  // Three slots of 700 / 3 for each of the fast are enough for 4 * 2 deliveries, and the slow one
  // hears nobody. Its one slot is a rate of 50.
  const auto view = view_of({900, 900, 900, 900}, {800, 700, 700, 50});
  const auto unbound = compile(view, policy_of("select=selmcast:2,0"), view.members[3]);
  const auto usual = compile(view, policy_of("select=selmcast:2"), view.members[3]);
  ASSERT_TRUE(unbound.has_value() && usual.has_value());
  EXPECT_EQ(unbound->rate, (RateFraction{700, 3}));
  EXPECT_EQ(usual->rate, (RateFraction{50, 1}));
  for (const auto& round : planned_rounds(*usual)) EXPECT_GE(round.senders.size(), 1U);
}

TEST(Compile, SenderGroupsLeaveNobodyShortWhereAnotherPairCanMove) {
  const auto view = view_of({900, 900, 900, 900}, {200, 300, 500, 400});
  const auto rows = compile(view, policy_of("select=selmcast:2"), 0);
  const auto sender = compile(view, policy_of("select=selmcast:2 groups=sender"), 0);
  ASSERT_TRUE(rows.has_value() && sender.has_value());
  EXPECT_EQ(rows->rate, sender->rate);
  EXPECT_EQ(rows->period_k, sender->period_k);
  EXPECT_EQ(facts_of(view, policy_of("select=selmcast:2")).senders_below_p, 1U);
  EXPECT_EQ(facts_of(view, policy_of("select=selmcast:2 groups=sender")).senders_below_p, 0U);
  // Slots 3, 3, 1, 1: no schedule at all serves every pair with two receivers always.
  const auto tight = view_of({900, 900, 900, 900}, {300, 300, 100, 100});
  const auto never = compile(tight, policy_of("select=selmcast:2,0 groups=sender"), 0);
  ASSERT_TRUE(never.has_value());
  EXPECT_EQ(never->rate, (RateFraction{100, 1}));
  const auto facts = facts_of(tight, policy_of("select=selmcast:2,0 groups=sender"));
  EXPECT_GT(facts.senders_below_p, 0U);
  EXPECT_LE(facts.pair_age_worst, never->period_k);
}

TEST(Compile, ConsecutiveEpochsOfSenderGroupsShareNoGroup) {
  for (const auto* text : {"", "select=selmcast:2 groups=sender", "select=random:2"}) {
    std::set<std::uint32_t> before;
    for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
      const auto n = 6 - epoch;
      const auto view = view_of(std::vector<Kbps>(n, 900), std::vector<Kbps>(n, 700), epoch);
      std::set<std::uint32_t> now;
      for (const auto& [rank, program] : compile_all(view, policy_of(text))) {
        now.insert(program.send_groups.begin(), program.send_groups.end());
        now.insert(program.receive_groups.begin(), program.receive_groups.end());
      }
      EXPECT_FALSE(now.empty());
      for (const auto group : now) EXPECT_EQ(before.count(group), 0U) << text;
      before = now;
    }
  }
}

TEST(Compile, RowGroupsOutliveTheViewAndRanksStillAgree) {
  const auto policy = policy_of("select=selmcast:3");
  SplitMix64 random(9);
  auto view = random_view(random, 16, false);
  std::map<Rank, PlanHistory> histories;
  std::map<Rank, std::vector<std::uint32_t>> joined;
  for (std::uint32_t epoch = 0; epoch < 8; ++epoch) {
    view.epoch = epoch;
    if (epoch == 2 || epoch == 5) {  // A rank dies.
      view.members.erase(view.members.begin() + 3);
      view.tx_kbps.erase(view.tx_kbps.begin() + 3);
      view.rx_kbps.erase(view.rx_kbps.begin() + 3);
    } else if (epoch != 1) {  // Epoch 1 repeats epoch 0.
      view.rx_kbps[epoch] = view.rx_kbps[epoch] * 9 / 10;
    }
    Programs programs;
    for (const auto rank : view.members) {
      auto program = compile(view, policy, rank, histories[rank]);
      ASSERT_TRUE(program.has_value());
      programs.emplace(rank, std::move(*program));
    }
    check_programs(view, policy, programs, histories.at(view.members.front()));
    std::uint32_t joins = 0, entries = 0;
    for (const auto& [rank, program] : programs) {
      std::vector<std::uint32_t> gained;
      std::set_difference(program.receive_groups.begin(), program.receive_groups.end(),
                          joined[rank].begin(), joined[rank].end(), std::back_inserter(gained));
      joins += static_cast<std::uint32_t>(gained.size());
      entries += static_cast<std::uint32_t>(program.receive_groups.size());
      joined[rank] = program.receive_groups;
    }
    EXPECT_EQ(histories.at(view.members.front()).change.joins, joins);
    const auto most = epoch == 0 ? entries + 1 : epoch == 1 ? 1 : entries / 2;
    EXPECT_LT(joins, most) << "epoch " << epoch << "; epoch 1 has the same view again";
  }
}

TEST(Compile, RandomCyclesDependOnSeedAndEpoch) {
  auto view = view_of(std::vector<Kbps>(9, 900), std::vector<Kbps>(9, 700));
  const auto receivers = [&view] {
    std::vector<std::vector<Rank>> out;
    const auto program = compile(view, policy_of("select=random:3"), 0);
    EXPECT_EQ(program->rounds.size(), kRandomCycle);
    for (const auto& round : planned_rounds(*program)) {
      EXPECT_EQ(round.receivers.size(), 3U);
      out.push_back(round.receivers);
    }
    return out;
  };
  const auto first = receivers();
  EXPECT_EQ(receivers(), first);
  EXPECT_GT(std::set(first.begin(), first.end()).size(), 8U) << "the rounds of a cycle differ";
  view.epoch = 2;
  EXPECT_NE(receivers(), first);
  view.epoch = 0;
  view.seed = 43;
  EXPECT_NE(receivers(), first);
}

TEST(Compile, LostMembersLowerP) {
  const auto view = view_of({900, 900, 900}, {700, 700, 700});
  for (const auto* text : {"select=selmcast:5", "select=random:5"}) {
    const auto program = compile(view, policy_of(text), 4);
    ASSERT_TRUE(program.has_value());
    EXPECT_EQ(receivers_of(*program, 0), (std::vector<Rank>{0, 6}));
    EXPECT_EQ(facts_of(view, policy_of(text)).senders_below_p, 0U);
  }
}

TEST(Compile, SaysWhyThereIsNoPlan) {
  const struct {
    const char* policy;
    View view;
    Rank self;
    const char* expected;
  } cases[] = {
      {"", view_of({900, 900, 900}, {700, 700, 700}), 1, "rank 1 is not a member of epoch 0"},
      {"", view_of({900, 0, 900}, {700, 700, 700}), 0, "rank 4 has no available transmit rate"},
      {"mix=sgd", view_of({900, 900, 900}, {700, 700, 0}), 0,
       "rank 6 has no available receive rate"},
      {"", view_of({900, 900}, {700, 0}), 0, "rank 0 needs 1 receivers, but only 0"},
      {"select=selmcast:2", view_of({9, 9, 9}, {7, 7, 0}), 0,
       "rank 0 needs 2 receivers, but only 1"},
      {"select=random:2", view_of({9, 9, 9}, {7, 7, 0}), 0, "rank 0 needs 2 receivers, but only 1"},
      {"", view_of({900, 900}, {700}), 0, "2 members with 2 transmit and 1 receive rates"},
      {"select=selmcast:1,1", view_of({9, 9, 9, 9}, {7, 7, 0, 7}), 0, "smallest possible k is 2"},
  };
  for (const auto& entry : cases) {
    const auto program = compile(entry.view, policy_of(entry.policy), entry.self);
    ASSERT_FALSE(program.has_value()) << entry.expected;
    EXPECT_EQ(program.error().kind, ErrorKind::bad_input);
    EXPECT_NE(program.error().message.find(entry.expected), std::string::npos)
        << program.error().message;
  }
}

}  // namespace
}  // namespace selmcast
