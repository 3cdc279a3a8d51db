#include "sync/server_program.h"

#include <gtest/gtest.h>

namespace selmcast {
namespace {

View view_of(std::vector<Kbps> tx, std::vector<Kbps> rx) {
  View view;
  view.epoch = 1;
  for (std::uint32_t m = 0; m < tx.size(); ++m) view.members.push_back(2 * m + 1);
  view.tx_kbps = std::move(tx);
  view.rx_kbps = std::move(rx);
  return view;
}

Policy servers(std::uint32_t count) {
  return parse_policy("route=ps:" + std::to_string(count)).value();
}

TEST(ServerPlan, OneServerSharesItsLinkAmongAll) {
  // The second has the best slower direction. It hears four others, and the worst of the rest
  // hears it at 300.
  const auto plan = plan_servers(view_of({900, 800, 700, 600, 500}, {300, 880, 700, 600, 500}), 1);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->servers, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(plan->gather, (RateFraction{220, 1}));
  EXPECT_EQ(plan->hand_out, (RateFraction{300, 1}));
}

TEST(ServerPlan, SeveralServersSplitTheSendersLink) {
  // Servers are members 0 and 3. Member 1 sends to both: 150 each. Server 3 hears three: 200 each.
  const auto plan = plan_servers(view_of({700, 300, 550, 650}, {700, 600, 600, 600}), 2);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->servers, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(plan->gather, (RateFraction{150, 1}));
  // Members 1 and 2 hear both servers with 600.
  EXPECT_EQ(plan->hand_out, (RateFraction{300, 1}));
}

TEST(ServerPlan, TiesGoToTheLowerAndThereAreNoMoreThanMembers) {
  const auto plan = plan_servers(view_of({5, 5, 5}, {5, 5, 5}), 7);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->servers, (std::vector<std::uint32_t>{0, 1, 2}));
  const auto two = plan_servers(view_of({5, 5, 5}, {5, 5, 5}), 2);
  EXPECT_EQ(two->servers, (std::vector<std::uint32_t>{0, 1}));
}

TEST(ServerProgram, EverySideNamesTheSameTransfers) {
  const auto view = view_of({9, 5, 8, 7, 6, 9}, {9, 6, 8, 7, 6, 3});
  for (const std::uint32_t count : {1U, 2U, 3U, 6U}) {
    // By (sender, receiver): the shard as the sender and as the receiver has it.
    std::vector<std::vector<std::vector<Shard>>> sent(13), heard(13);
    for (auto& row : sent) row.resize(13);
    for (auto& row : heard) row.resize(13);
    for (std::uint32_t self = 0; self < view.members.size(); ++self) {
      const auto program = compile(view, servers(count), view.members[self]);
      ASSERT_TRUE(program);
      ASSERT_EQ(program->cycle.size(), kServerRounds);
      EXPECT_FALSE(program->cycle[0].replaces);
      EXPECT_TRUE(program->cycle[1].replaces);
      const Rank me = view.members[self];
      for (const auto& round : program->cycle) {
        ASSERT_EQ(round.senders.size(), round.sender_shards.size());
        for (std::size_t s = 0; s < round.senders.size(); ++s) {
          heard[round.senders[s]][me].push_back(round.sender_shards[s]);
        }
        for (std::size_t s = 0; s < round.receivers.size(); ++s) {
          sent[me][round.receivers[s]].push_back(round.shards[round.multicast ? 0 : s]);
        }
        if (!round.multicast) continue;
        EXPECT_EQ(program->send_groups, std::vector<std::uint32_t>{round.group});
        for (std::uint32_t other = 0; other < view.members.size(); ++other) {
          const auto theirs = compile(view, servers(count), view.members[other]);
          const auto& groups = theirs->receive_groups;
          const bool in = std::find(groups.begin(), groups.end(), round.group) != groups.end();
          EXPECT_EQ(in, other != self);
        }
      }
    }
    EXPECT_EQ(sent, heard);
  }
}

TEST(ServerProgram, NamesTheRankThatCannotHear) {
  const auto program = compile(view_of({5, 5, 5}, {5, 0, 5}), servers(1), 1);
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message.find("rank 3 has no available receive rate, and with route=ps"),
            std::string::npos)
      << program.error().message;
}

}  // namespace
}  // namespace selmcast
