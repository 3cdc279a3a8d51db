// Memberships: what the connection manager says, and what is held for how long.
#include <cstring>

#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;

class Groups : public testing::Test {
 protected:
  void SetUp() override { fake::reset(2); }
  void TearDown() override { expect_nothing_alive("joining"); }
  static int memberships() { return fake::world().alive(fake::Object::membership); }
};

TEST_F(Groups, EachRefusalIsExplainedAndLeavesNothing) {
  RankOn a;
  const std::vector<std::pair<fake::JoinEnd, std::vector<std::string>>> ends{
      {fake::JoinEnd::error_event, {"joining group 239.", "fake0 port 1", "no route"}},
      {fake::JoinEnd::device_removal, {"joining group 239.", "fake0 port 1", "dmesg"}},
      {fake::JoinEnd::other_key, {"exists with another Q_Key", "fake0 port 1", "subnet manager"}}};
  for (const auto& [end, texts] : ends) {
    fake::world().join_end = end;
    const auto got = a.transport->join({1}, JoinAs::receiver);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().kind, ErrorKind::failed);
    for (const std::string& text : texts) EXPECT_THAT(got.error().message, HasSubstr(text));
    EXPECT_EQ(memberships(), 0);
  }
  fake::world().join_end = fake::JoinEnd::joined;
  EXPECT_TRUE(a.transport->join({1}, JoinAs::receiver));
}

TEST_F(Groups, SilenceIsATimeout) {
  RankOn a;
  fake::world().join_end = fake::JoinEnd::silence;
  const auto start = std::chrono::steady_clock::now();
  const auto got = a.transport->join({1}, JoinAs::receiver);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("does not answer"));
  EXPECT_EQ(memberships(), 0);
}

TEST_F(Groups, SendersOnEthernetJoinNothing) {
  RankOn a;
  const auto sender = a.join(1, JoinAs::send_only);
  EXPECT_EQ(memberships(), 0);
  {
    const auto first = a.join(1), second = a.join(1);
    EXPECT_EQ(memberships(), 1);
  }
  EXPECT_EQ(memberships(), 0);
}

TEST_F(Groups, OnInfinibandAllShareOneMembershipUntilTheLastLeaves) {
  const auto interfaces = be_infiniband();
  RankOn a("fake0"), b("fake1");
  auto first = a.join(1, JoinAs::send_only), second = a.join(1, JoinAs::send_only);
  EXPECT_EQ(memberships(), 1);
  first.reset();
  EXPECT_EQ(memberships(), 1);
  auto receiver = a.join(1);
  EXPECT_EQ(memberships(), 1);
  second.reset();
  EXPECT_EQ(memberships(), 1);
  receiver.reset();
  EXPECT_EQ(memberships(), 0);
  receiver = a.join(1);
  first = a.join(1, JoinAs::send_only);
  receiver.reset();
  EXPECT_EQ(memberships(), 1);
  const auto at_b = b.join(1);
  a.send(Destination::to(first), 4, 0);
  EXPECT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 1; }));
  first.reset();
  EXPECT_EQ(memberships(), 1);
}

TEST_F(Groups, WhereSendOnlyIsRefusedSendersJoinInFull) {
  const auto interfaces = be_infiniband();
  RankOn a;
  fake::world().fail("rdma_join_multicast_ex", 1, ENOSYS);
  auto sender = a.join(1, JoinAs::send_only);
  EXPECT_EQ(memberships(), 1);
  auto receiver = a.join(1);
  EXPECT_EQ(memberships(), 1);
  EXPECT_EQ(fake::world().calls["rdma_join_multicast_ex"], 2);
  sender.reset();
  receiver.reset();
  EXPECT_EQ(memberships(), 0);
}

TEST_F(Groups, AReceiverThatIsRefusedLeavesTheSenderItsMembership) {
  const auto interfaces = be_infiniband();
  RankOn a;
  auto sender = a.join(1, JoinAs::send_only);
  fake::world().fail("rdma_join_multicast_ex", 1, ENOMEM);
  EXPECT_FALSE(a.transport->join({1}, JoinAs::receiver));
  EXPECT_EQ(memberships(), 1);
  sender.reset();
  EXPECT_EQ(memberships(), 0);
}

TEST_F(Groups, WithIpv6GidsASocketJoins) {
  fake::world().devices[0].ports[0].gids = {fake::ipv6_gid(0, 0xFE, 0x80)};
  RankOn a;
  // The interface that the GID names does not exist.
  fake::world().devices[0].ports[0].gids[0].interface_index = 0;
  // The watch for the device's removal has a channel of its own.
  const int before = fake::world().calls["rdma_join_multicast_ex"];
  const auto got = a.transport->join({1}, JoinAs::receiver);
  if (!got) {
    EXPECT_THAT(got.error().message, HasSubstr("joining group ff15::"));
  }
  EXPECT_EQ(fake::world().calls["rdma_join_multicast_ex"], before);
}

TEST_F(Groups, OnTwoDevicesARefusalOfTheSecondUndoesTheFirst) {
  RankOn a("fake0+fake1");
  fake::world().fail("ibv_attach_mcast", 2, EINVAL);
  const auto got = a.transport->join({1}, JoinAs::receiver);
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("fake1"));
  EXPECT_EQ(memberships(), 0);
  const auto joined = a.join(1);
  EXPECT_EQ(memberships(), 2);
}

TEST_F(Groups, AnIndexBeyondTheJobsIsRefused) {
  RankOn a;
  const auto got = a.transport->join({1U << 18U}, JoinAs::send_only);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
}

}  // namespace
}  // namespace selmcast::verbs_test
