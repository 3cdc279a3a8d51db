// groups=sender:b: programs of all members played against each other, with nothing but sets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "sync/program.h"

namespace selmcast::slide_programs {
namespace {

using testing::ElementsAre;

enum class Law { equal, uniform, ten_to_one, zeros };

View view_of(Law law, std::uint32_t n, SplitMix64& random) {
  View view;
  view.epoch = static_cast<std::uint32_t>(random.below(9));
  for (std::uint32_t m = 0; m < n; ++m) {
    view.members.push_back(2 * m + m % 2);  // Some ranks have left.
    Kbps rate = 10'000;
    if (law == Law::uniform || law == Law::zeros) rate = 5'000 + random.below(10'001);
    if (law == Law::ten_to_one && random.chance(0.5)) rate = 1'000;
    view.tx_kbps.push_back(random.chance(0.3) ? 4 * rate : rate);
    view.rx_kbps.push_back(law == Law::zeros && random.chance(0.15) ? 0 : rate);
  }
  return view;
}

Policy policy_of(std::uint32_t p, std::uint32_t b, const std::string& k = "") {
  return parse_policy("select=selmcast:" + std::to_string(p) + k +
                      " groups=sender:" + std::to_string(b))
      .value();
}

/// A job's members, each with the groups it is in.
struct Job {
  const View& view;
  std::uint32_t p, b;
  std::vector<Program> programs;
  std::vector<std::set<std::uint32_t>> in;
  PlanHistory history;
  std::size_t most_in = 0, most_joins = 0, at_start = 0, below = 0;

  std::uint32_t n() const { return static_cast<std::uint32_t>(programs.size()); }
  std::size_t cycle() const { return programs[0].cycle.size(); }
  std::uint32_t slots(std::uint32_t m) const {
    const auto& y = programs[0].rate;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(n() - 1, view.rx_kbps[m] * y.den / y.num));
  }
  bool equal_slots() const {
    for (std::uint32_t m = 1; m < n(); ++m) {
      if (slots(m) != slots(0)) return false;
    }
    return true;
  }
  std::uint32_t least_slots() const {
    auto out = n();
    for (std::uint32_t m = 0; m < n(); ++m) out = slots(m) > 0 ? std::min(out, slots(m)) : out;
    return out;
  }
};

/// Nothing when the view has no plan.
std::optional<Job> compiled(const View& view, const Policy& policy) {
  Job job{view, policy.p, policy.join_budget, {}, {}, {}};
  for (const auto rank : view.members) {
    job.history = {};
    auto program = compile(view, policy, rank, job.history);
    if (!program) return std::nullopt;
    job.programs.push_back(std::move(*program));
  }
  return job;
}

/// One round of everybody: joined in time, heard what was sent, within budget and links.
void play_round(Job& job, std::size_t round) {
  const auto t = round % job.cycle();
  std::map<Rank, std::vector<Rank>> heard;
  for (std::uint32_t m = 0; m < job.n(); ++m) {
    const auto rank = job.view.members[m];
    const auto& plan = job.programs[m].cycle[t];
    const auto reaches = plan.receivers.size() + plan.patches.size();
    EXPECT_GE(reaches + 1, job.p);
    EXPECT_EQ(plan.below_p, reaches < job.p);
    EXPECT_LE(plan.patches.size(), 1U);
    if (job.equal_slots()) {
      EXPECT_EQ(plan.receivers.size(), job.slots(0));
    }
    const auto copies = (plan.multicast ? 1 : 0) + plan.patches.size();
    EXPECT_LE(copies * plan.rate.num, job.view.tx_kbps[m] * plan.rate.den);
    job.below += plan.below_p ? 1 : 0;
    for (const auto to : plan.receivers) heard[to].push_back(rank);
    for (const auto to : plan.patches) heard[to].push_back(rank);
    EXPECT_THAT(job.programs[m].send_groups, ElementsAre(plan.group));
    for (std::uint32_t other = 0; other < job.n(); ++other) {
      const auto to = job.view.members[other];
      const bool hears = std::binary_search(plan.receivers.begin(), plan.receivers.end(), to);
      // Before this round began.
      if (hears) {
        EXPECT_EQ(job.in[other].count(plan.group), 1U) << rank << " to " << to;
      }
      EXPECT_FALSE(other == m && job.in[other].count(plan.group) > 0);
    }
  }
  for (std::uint32_t m = 0; m < job.n(); ++m) {
    auto& in = job.in[m];
    const auto& plan = job.programs[m].cycle[t];
    EXPECT_EQ(plan.senders, heard[job.view.members[m]]);
    EXPECT_LE(plan.senders.size(), job.slots(m));
    EXPECT_LE(in.size(), job.slots(m));  // The streams that its link carries.
    EXPECT_EQ(plan.in_groups_of.size(), in.size());
    for (std::uint32_t other = 0; other < job.n(); ++other) {
      const auto rank = job.view.members[other];
      EXPECT_EQ(std::binary_search(plan.in_groups_of.begin(), plan.in_groups_of.end(), rank),
                in.count(job.programs[other].send_groups[0]) > 0);
    }
    for (const auto group : plan.joins) EXPECT_TRUE(in.insert(group).second);
    EXPECT_LE(plan.joins.size(), job.b);
    job.most_joins = std::max(job.most_joins, plan.joins.size());
    job.most_in = std::max(job.most_in, in.size());
    EXPECT_LE(in.size(), job.slots(m) == 0 ? 0 : job.slots(m) + job.b);
    for (const auto group : plan.leaves) EXPECT_EQ(in.erase(group), 1U);
    EXPECT_LE(plan.leaves.size(), job.b);
  }
}

/// The longest that a pair whose receiver has slots waits, from the programs alone.
std::size_t longest_wait(const Job& job) {
  std::size_t worst = 0;
  for (std::uint32_t m = 0; m < job.n(); ++m) {
    std::map<Rank, std::size_t> last;
    for (std::size_t round = 0; round < 2 * job.cycle(); ++round) {
      for (const auto from : job.programs[m].cycle[round % job.cycle()].senders) {
        if (const auto at = last.find(from); at != last.end()) {
          worst = std::max(worst, round - at->second);
        }
        last[from] = round;
      }
    }
    if (job.slots(m) > 0) {
      EXPECT_EQ(last.size(), job.n() - 1) << "a pair never meets";
    }
  }
  return worst;
}

/// Whether a larger budget would change nothing.
bool check(const View& view, const Policy& policy) {
  auto job = compiled(view, policy);
  if (!job) return false;
  for (const auto& program : job->programs) {
    job->in.emplace_back(program.receive_groups.begin(), program.receive_groups.end());
    job->at_start += program.receive_groups.size();
  }
  const auto rounds = 2 * job->cycle() + 1;
  for (std::size_t round = 0; round < rounds; ++round) {
    if (round == job->cycle()) {
      const auto facts = schedule_facts(view, policy, job->history);
      EXPECT_EQ(facts->senders_below_p, job->below);
    }
    play_round(*job, round);
  }
  const auto& any = job->programs[0];
  EXPECT_EQ(any.group_entries_max, job->most_in);
  EXPECT_EQ(any.joins_per_round_max, job->most_joins);
  EXPECT_EQ(job->history.change.joins, job->at_start);
  // The closed forms of the header.
  const auto rows = job->n() - (job->equal_slots() ? 1 : 0), c = job->least_slots();
  const auto step = std::min(job->b, c);
  const auto cycle = c >= rows ? 1 : (rows + step - 1) / step;
  EXPECT_EQ(job->cycle(), cycle);
  const auto k = c >= rows ? 1 : 1 + ((rows - c) * cycle + rows - 1) / rows;
  EXPECT_EQ(any.period_k, k);
  const auto wait = longest_wait(*job);
  EXPECT_LE(wait, k);
  if (job->equal_slots()) {
    EXPECT_EQ(wait, k);
  }
  const auto bound = policy.resolved_k(job->n());
  if (bound > 0) {
    EXPECT_LE(k, bound);
  }
  return job->b > c;
}

class EveryLaw : public testing::TestWithParam<Law> {};

TEST_P(EveryLaw, NobodyExceedsTheBudgetAndEveryPairMeets) {
  SplitMix64 random(77);
  for (std::uint32_t n = 2; n <= 40 && !HasFailure(); ++n) {
    const auto view = view_of(GetParam(), n, random);
    bool enough = false;
    for (std::uint32_t b = 1; b <= n && !enough && !HasFailure(); ++b) {
      const auto p = static_cast<std::uint32_t>(1 + random.below(n < 12 ? n - 1 : 8));
      const std::string k = random.chance(0.3)   ? ",0"
                            : random.chance(0.3) ? "," + std::to_string(2 + random.below(n))
                                                 : "";
      SCOPED_TRACE("n=" + std::to_string(n) + " p=" + std::to_string(p) + k +
                   " b=" + std::to_string(b));
      enough = check(view, policy_of(p, b, k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Laws, EveryLaw,
                         testing::Values(Law::equal, Law::uniform, Law::ten_to_one, Law::zeros));

TEST(SlideProgram, FiveEqualMembersSlideByOne) {
  SplitMix64 random(1);
  auto view = view_of(Law::equal, 5, random);
  view.members = {0, 1, 2, 3, 4};
  view.epoch = 0;
  const auto program = compile(view, policy_of(2, 1), 0);
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->rate, (RateFraction{5'000, 1}));
  EXPECT_EQ(program->period_k, 3U);  // Two senders of four now, one more each round.
  ASSERT_EQ(program->cycle.size(), 4U);
  std::set<std::vector<Rank>> heard, in;
  for (const auto& round : program->cycle) {
    heard.insert(round.senders);
    in.insert(round.in_groups_of);
    EXPECT_EQ(round.joins.size(), 1U);
    EXPECT_EQ(round.leaves.size(), 1U);
  }
  EXPECT_THAT(heard, ElementsAre(ElementsAre(1, 2), ElementsAre(1, 4), ElementsAre(2, 3),
                                 ElementsAre(3, 4)));
  EXPECT_EQ(in, heard);
}

TEST(SlideProgram, TheRateIsThatOfRowsUnlessKAsksForMore) {
  SplitMix64 random(3);
  const auto view = view_of(Law::uniform, 20, random);
  const auto rows = compile(view, parse_policy("select=selmcast:3,0").value(), 0);
  const auto slow = compile(view, policy_of(3, 1, ",0"), 0);
  const auto quick = compile(view, policy_of(3, 1, ",6"), 0);
  ASSERT_TRUE(rows && slow && quick);
  EXPECT_EQ(rows->rate, slow->rate);
  EXPECT_GT(slow->period_k, 6U);
  EXPECT_LE(quick->period_k, 6U);
  EXPECT_LT(quick->rate, slow->rate);
  EXPECT_EQ(quick->rate_without_k, slow->rate);
  auto deaf = view;  // One member that hears nobody: the others' columns cannot all be equal.
  deaf.rx_kbps[7] = 0;
  const auto never = compile(deaf, policy_of(3, 1, ",1"), 0);
  ASSERT_FALSE(never.has_value());
  EXPECT_NE(never.error().message.find("the smallest possible k is 2"), std::string::npos);
}

TEST(SlideProgram, ConsecutiveEpochsShareNoGroupAndBeginElsewhere) {
  SplitMix64 random(5);
  auto view = view_of(Law::equal, 30, random);
  std::set<std::vector<Rank>> first_heard;
  std::set<std::uint32_t> before;
  for (view.epoch = 0; view.epoch < 10; ++view.epoch) {
    const auto program = compile(view, policy_of(3, 1), 0);
    ASSERT_TRUE(program.has_value());
    std::set<std::uint32_t> now(program->receive_groups.begin(), program->receive_groups.end());
    for (const auto& round : program->cycle) {
      now.insert(round.group);
      now.insert(round.joins.begin(), round.joins.end());
    }
    EXPECT_EQ(now.size(), 30U);  // One per sender.
    for (const auto group : now) EXPECT_EQ(before.count(group), 0U);
    before = std::move(now);
    first_heard.insert(program->cycle[0].senders);
  }
  EXPECT_GT(first_heard.size(), 5U);
}

}  // namespace
}  // namespace selmcast::slide_programs
