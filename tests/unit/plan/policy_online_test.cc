// Words and programs of pace=ssp:s,eta: receivers selected as rounds begin.
#include <gtest/gtest.h>

#include "plan/axes/policy.h"
#include "plan/compile.h"

namespace selmcast {
namespace {

TEST(PolicyOnline, TheNameIsWhatItExpandsTo) {
  const auto policy = parse_policy("selmcast-ssp");
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(to_string(*policy),
            "share=even select=selmcast:2 route=star pace=ssp:4,0.75 mix=average codec=identity "
            "order=fifo groups=sender");
  EXPECT_EQ(policy->pace, (Pace{.kind = PaceKind::ssp, .slack = 4, .eta = 0.75}));
  EXPECT_TRUE(policy->free());
  EXPECT_EQ(to_string(*parse_policy(to_string(*policy))), to_string(*policy));
  EXPECT_EQ(parse_policy("selmcast-ssp pace=ssp:2").value().pace.eta, std::nullopt);
  EXPECT_EQ(parse_policy("select=selmcast:3,5 pace=ssp:0,0").value().pace.eta, 0.0);
  EXPECT_EQ(parse_policy("select=selmcast:3 pace=ssp:0,1").value().pace.eta, 1.0);
}

TEST(PolicyOnline, SaysWhatToChange) {
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"select=selmcast:2 pace=ssp:4,", "needs a share eta from 0 to 1, found '4,'"},
      {"select=selmcast:2 pace=ssp:4,1.1", "found '4,1.1'; write for example pace=ssp:4,0.75"},
      {"select=selmcast:2 pace=ssp:4,-0.1", "needs a share eta"},
      {"select=selmcast:2 pace=ssp:4,nan", "needs a share eta"},
      {"select=selmcast:2 pace=ssp:4,0.5,0.5", "needs a share eta"},
      {"select=selmcast:2 pace=ssp:,0.5", "needs a number of steps s"},
      {"select=all pace=ssp:4,0.75", "use select=selmcast:p and route=star with it, or drop eta"},
      {"select=random:2 pace=ssp:4,0.75", "selects the receivers of multicasts online"},
      {"selmcast-ssp route=unicast", "selects the receivers of multicasts online"},
      {"selmcast-ssp route=ps:2", "pace=ssp has rounds of one sender each"},
      {"selmcast-ssp mix=age", "pace=ssp merges whatever has arrived"},
      {"selmcast-ssp groups=rows", "pace=ssp needs groups of one sender each"},
      {"selmcast-ssp codec=cast:bf16", "pace=ssp merges float32 as it is"},
      {"selmcast-ssp order=priority", "order=priority exchanges the gradients"},
  };
  for (const auto& entry : cases) {
    const auto policy = parse_policy(entry.text);
    ASSERT_FALSE(policy) << entry.text;
    EXPECT_NE(policy.error().message.find(entry.expected), std::string::npos)
        << policy.error().message;
    EXPECT_EQ(policy.error().message.find('\n'), std::string::npos);
  }
  EXPECT_TRUE(check_policy(*parse_policy("selmcast-ssp"), kOnlineWorkersMax));
  const auto many = check_policy(*parse_policy("selmcast-ssp"), kOnlineWorkersMax + 1);
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find("at most 512 workers, but the job has 513"),
            std::string::npos);
}

View five_members() {
  View view;
  view.epoch = 3;
  view.members = {1, 2, 4, 7, 8};
  view.tx_kbps = {100, 200, 300, 400, 500};
  view.rx_kbps = {60, 0, 90, 120, 150};
  return view;
}

TEST(PolicyOnline, AProgramNamesAllThatMayTakePart) {
  const auto policy = parse_policy("select=selmcast:2,6 pace=ssp:1,0.5").value();
  const auto program = compile(five_members(), policy, 4);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(program->online);
  EXPECT_EQ(program->online->p, 2U);
  EXPECT_EQ(program->online->k, 6U);
  EXPECT_EQ(program->online->eta, 0.5);
  EXPECT_EQ(program->online->tx_kbps, five_members().tx_kbps);
  EXPECT_EQ(program->online->rx_kbps, five_members().rx_kbps);
  ASSERT_EQ(program->rounds.size(), 1U);
  EXPECT_EQ(receivers_of(*program, 0), (std::vector<Rank>{1, 7, 8}));  // 2 cannot receive.
  EXPECT_EQ(senders_of(*program, 0), (std::vector<Rank>{1, 2, 7, 8}));
  // The own group only; those of others are joined for single rounds.
  EXPECT_EQ(program->send_groups, (std::vector<std::uint32_t>{kGroupsPerEpoch + 2}));
  EXPECT_TRUE(program->receive_groups.empty());
  const auto planned = parse_policy("select=selmcast:2 pace=ssp:1").value();
  EXPECT_FALSE(compile(five_members(), planned, 4).value().online);
}

TEST(PolicyOnline, GroupsOfConsecutiveEpochsDiffer) {
  auto view = five_members();
  const auto policy = parse_policy("selmcast-ssp").value();
  const auto odd = compile(view, policy, 1);
  ++view.epoch;
  const auto even = compile(view, policy, 1);
  EXPECT_EQ(odd->send_groups[0], kGroupsPerEpoch);
  EXPECT_EQ(even->send_groups[0], 0U);
}

TEST(PolicyOnline, FewMembersAreFewReceivers) {
  const auto policy = parse_policy("select=selmcast:3 pace=ssp:1,0.5").value();
  View view;
  view.epoch = 1;
  view.members = {2, 5};
  view.tx_kbps = view.rx_kbps = {10, 10};
  EXPECT_EQ(compile(view, policy, 2).value().online->p, 1U);
  view.members = {5};
  view.tx_kbps = view.rx_kbps = {10};
  EXPECT_FALSE(compile(view, policy, 5).value().online);
}

}  // namespace
}  // namespace selmcast
