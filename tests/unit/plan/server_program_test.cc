#include "plan/server_program.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "plan/compile.h"

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
  // The second has the best slower direction. It hears four others: 880 / 4; the worst of the rest
  // could hear it at 300.
  const auto plan = plan_servers(view_of({900, 800, 700, 600, 500}, {300, 880, 700, 600, 500}), 1);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->servers, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(plan->rate, (RateFraction{220, 1}));
}

TEST(ServerPlan, SeveralServersSplitTheSendersLink) {
  // Servers are members 0 and 3. Member 1 sends to both: 300 / 2. Server 3 hears three shares of
  // its own and one of the other's mean: 600 / 4.
  const auto plan = plan_servers(view_of({700, 300, 550, 650}, {700, 600, 600, 600}), 2);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->servers, (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(plan->rate, (RateFraction{150, 1}));
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
    // By (phase, sender, receiver): the part as the sender and as the receiver has it.
    std::map<std::tuple<std::uint16_t, Rank, Rank>, Shard> sent, heard;
    for (std::uint32_t self = 0; self < view.members.size(); ++self) {
      const auto program = compile(view, servers(count), view.members[self]);
      ASSERT_TRUE(program);
      ASSERT_EQ(program->rounds.size(), 1U);
      const Rank me = view.members[self];
      for (const Leg& leg : program->legs_of(0)) {
        for (const Rank peer : program->peers_of(leg)) {
          const bool sends = leg.kind == Leg::Kind::send;
          auto& side = sends ? sent : heard;
          const auto key = std::tuple(leg.phase, sends ? me : peer, sends ? peer : me);
          EXPECT_TRUE(side.emplace(key, leg.part).second) << "twice";
        }
        if (leg.kind == Leg::Kind::receive) {
          EXPECT_EQ(leg.combine, leg.phase == 0 ? Leg::Combine::add : Leg::Combine::replace);
        } else if (leg.phase == 1) {
          EXPECT_EQ(leg.source, Leg::Source::mean);
          EXPECT_EQ(leg.expects, view.members.size() - 1);
          EXPECT_EQ(program->send_groups, std::vector<std::uint32_t>{leg.group});
          for (std::uint32_t other = 0; other < view.members.size(); ++other) {
            const auto theirs = compile(view, servers(count), view.members[other]);
            const auto& groups = theirs->receive_groups;
            const bool in = std::find(groups.begin(), groups.end(), leg.group) != groups.end();
            EXPECT_EQ(in, other != self);
          }
        }
      }
    }
    EXPECT_EQ(sent, heard);
    EXPECT_EQ(sent.size(), 2 * count * (view.members.size() - 1));
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
