// By which group a rank hears each of its senders: what it says against what the senders do.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "sync/program.h"

namespace selmcast {
namespace {

View random_view(SplitMix64& random, std::uint32_t epoch, std::vector<Rank> members) {
  View view;
  view.epoch = epoch;
  view.seed = 42;
  view.members = std::move(members);
  const std::uint32_t spread = random.chance(0.5) ? 2 : 9000;
  for (std::size_t m = 0; m < view.members.size(); ++m) {
    view.tx_kbps.push_back(1000 + 500 * random.below(spread));
    view.rx_kbps.push_back(1000 + random.below(spread));
  }
  return view;
}

bool holds(const std::vector<Rank>& ranks, Rank rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

void check(const std::map<Rank, Program>& programs, std::uint32_t& groups, std::uint32_t& copies) {
  const auto period = programs.begin()->second.cycle.size();
  for (std::size_t t = 0; t < period; ++t) {
    std::set<std::uint32_t> used;
    for (const auto& [rank, program] : programs) {
      const RoundPlan& plan = program.cycle[t];
      if (plan.multicast && !plan.receivers.empty()) {
        ASSERT_TRUE(used.insert(plan.group).second) << "two senders in one group";
      }
      ASSERT_EQ(plan.sender_groups.size(), plan.senders.size());
      for (std::size_t s = 0; s < plan.senders.size(); ++s) {
        const RoundPlan& of_sender = programs.at(plan.senders[s]).cycle[t];
        if (plan.sender_groups[s] == kNoGroup) {
          ASSERT_TRUE(holds(of_sender.patches, rank));
          ++copies;
        } else {
          ASSERT_TRUE(of_sender.multicast && holds(of_sender.receivers, rank));
          ASSERT_EQ(plan.sender_groups[s], of_sender.group);
          ASSERT_TRUE(std::binary_search(program.receive_groups.begin(),
                                         program.receive_groups.end(), of_sender.group));
          ++groups;
        }
      }
    }
  }
}

TEST(SenderGroups, AreTheGroupsThatTheSendersUseAndTheyAreAloneInThem) {
  std::uint32_t groups = 0, copies = 0, views = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SplitMix64 random(seed);
    const char* const texts[] = {"select=selmcast:2", "select=selmcast:1", "select=all",
                                 "select=selmcast:2 groups=sender", "select=random:2"};
    auto policy = parse_policy(texts[seed % 5]);
    ASSERT_TRUE(policy);
    std::vector<Rank> members;
    const auto n = 4 + static_cast<Rank>(random.below(9));
    for (Rank m = 0; m < n; ++m) members.push_back(2 * m);
    std::map<Rank, PlanHistory> histories;
    // One member leaves at a time: row plans are edited.
    for (std::uint32_t epoch = 1; epoch < 4; ++epoch) {
      const View view = random_view(random, epoch, members);
      std::map<Rank, Program> programs;
      for (const Rank rank : members) {
        auto program = compile(view, *policy, rank, histories[rank]);
        if (program) programs.emplace(rank, std::move(*program));
      }
      if (programs.size() == members.size()) {
        ++views;
        check(programs, groups, copies);
        ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " epoch " << epoch;
      }
      members.erase(members.begin() + static_cast<std::ptrdiff_t>(random.below(
                                          static_cast<std::uint32_t>(members.size()))));
    }
  }
  EXPECT_GT(views, 400U);
  EXPECT_GT(groups, 1000U);
  EXPECT_GT(copies, 10U);
}

TEST(SenderGroups, AreNotToldWhereThereAreNone) {
  SplitMix64 random(1);
  const View view = random_view(random, 1, {0, 1, 2, 3, 4});
  const auto program = compile(view, *parse_policy("select=selmcast:2 route=unicast"), 2);
  ASSERT_TRUE(program) << program.error().message;
  for (const auto& plan : program->cycle) EXPECT_TRUE(plan.sender_groups.empty());
}

}  // namespace
}  // namespace selmcast
