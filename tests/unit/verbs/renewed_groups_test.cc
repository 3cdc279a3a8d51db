// Memberships that an InfiniBand network ends: asked for again, and followed to where they lead.
#include <cerrno>

#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint16_t kOtherLids = 0xC100;

class RenewedGroups : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    interfaces_ = be_infiniband();
  }
  void TearDown() override { expect_nothing_alive("renewals"); }

  static int memberships() { return fake::world().alive(fake::Object::membership); }
  /// The subnet manager starts anew: groups are forgotten and get other LIDs.
  static void restart_manager(std::uint16_t first_lid = kOtherLids) {
    fake::world().first_mlid = first_lid;
    fake::end_memberships();
    for (const auto& device : fake::world().devices) {
      fake::raise(device.name, IBV_EVENT_CLIENT_REREGISTER);
    }
  }
  /// Sends until something new has come.
  static bool gets_through(RankOn& from, const Membership& to, RankOn& at) {
    const std::size_t before = at.received.size();
    return pump({&from, &at}, [&] {
      from.send(Destination::to(to), 3, 0);
      return at.received.size() > before;
    });
  }

 private:
  std::unique_ptr<Interfaces> interfaces_;
};

TEST_F(RenewedGroups, FramesFlowAgainUnderTheNewLid) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1), second = b.join(2);
  ASSERT_TRUE(gets_through(a, sender, b));
  const int joins = fake::world().calls["rdma_join_multicast_ex"];
  restart_manager();
  ASSERT_TRUE(
      pump({&a, &b}, [&] { return fake::world().calls["rdma_join_multicast_ex"] >= joins + 3; }));
  EXPECT_TRUE(gets_through(a, sender, b));
  EXPECT_TRUE(pump({&a, &b}, [&] {
    return a.transport->last_error().empty() && b.transport->last_error().empty();
  }));
  EXPECT_EQ(memberships(), 3);
  EXPECT_EQ(fake::world().calls["rdma_join_multicast_ex"], joins + 3);
}

TEST_F(RenewedGroups, AgainAndAgain) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  for (std::uint16_t turn = 1; turn <= 3; ++turn) {
    const int joins = fake::world().calls["rdma_join_multicast_ex"];
    restart_manager(static_cast<std::uint16_t>(0xC000 + 0x100 * turn));
    // At most one attempt a second for each.
    ASSERT_TRUE(
        pump({&a, &b}, [&] { return fake::world().calls["rdma_join_multicast_ex"] == joins + 2; }));
    EXPECT_TRUE(gets_through(a, sender, b)) << turn;
  }
}

TEST_F(RenewedGroups, TheSameLidChangesNothingElse) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  const int ways = fake::world().calls["ibv_create_ah"];
  const int attached = fake::world().calls["ibv_attach_mcast"];
  restart_manager(0xC000);
  ASSERT_TRUE(pump({&a, &b}, [] { return fake::world().calls["rdma_join_multicast_ex"] == 4; }));
  EXPECT_TRUE(gets_through(a, sender, b));
  EXPECT_EQ(fake::world().calls["ibv_create_ah"], ways);
  EXPECT_EQ(fake::world().calls["ibv_attach_mcast"], attached);
}

TEST_F(RenewedGroups, AManagerThatIsAwayIsAskedOnceASecondAndNamed) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  fake::world().fail("rdma_join_multicast_ex", 1, EAGAIN, 3);
  restart_manager();
  ASSERT_TRUE(pump({&b}, [] { return fake::world().calls["rdma_join_multicast_ex"] == 1; }));
  EXPECT_THAT(b.transport->last_error(),
              AllOf(HasSubstr("renewing the membership of group 239."), HasSubstr("fake1 port 1"),
                    HasSubstr("which the network ended")));
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.transport->last_error().empty(); }));
  EXPECT_TRUE(gets_through(a, sender, b));
  EXPECT_LE(fake::world().calls["rdma_join_multicast_ex"], 6);
}

// The manager that takes over does not know memberships for sending only.
TEST_F(RenewedGroups, WhereSendOnlyIsNotKnownAnyMoreSendersJoinInFull) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  fake::world().fail("rdma_join_multicast_ex", 1, EOPNOTSUPP);
  restart_manager();
  ASSERT_TRUE(pump({&a}, [] { return fake::world().calls["rdma_join_multicast_ex"] == 2; }));
  EXPECT_TRUE(gets_through(a, sender, b));
  EXPECT_EQ(memberships(), 2);
  // The same, told by an event.
  fake::world().join_end = fake::JoinEnd::error_event;
  restart_manager(0xC200);
  fake::world().calls.clear();
  ASSERT_TRUE(pump({&a, &b}, [] { return fake::world().calls["rdma_join_multicast_ex"] == 2; }));
  fake::world().join_end = fake::JoinEnd::joined;
  EXPECT_TRUE(gets_through(a, sender, b));
}

// A receiver comes to a group that this rank sends to, while the manager is away.
TEST_F(RenewedGroups, AJoinThatFailsLeavesASenderToBeRenewed) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  fake::world().fail("rdma_join_multicast_ex", 1, EAGAIN, 2);
  EXPECT_FALSE(a.transport->join({1}, JoinAs::receiver));
  EXPECT_THAT(a.transport->last_error(), HasSubstr("renewing the membership"));
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.transport->last_error().empty(); }));
  EXPECT_EQ(memberships(), 2);
  EXPECT_TRUE(gets_through(a, sender, b));
}

// And the manager has another LID for it by then, for the full membership or the one that is left.
TEST_F(RenewedGroups, AJoinUnderAnotherLidTakesTheSenderAlong) {
  for (const int refused : {0, 1}) {
    RankOn a("fake0"), b("fake1");
    fake::world().first_mlid = 0xC000;
    const auto sender = a.join(1, JoinAs::send_only);
    fake::world().first_mlid = kOtherLids;
    const auto at_b = b.join(1);
    fake::world().fail("rdma_join_multicast_ex", 1, EAGAIN, refused);
    const auto own = a.transport->join({1}, JoinAs::receiver);
    EXPECT_EQ(own.has_value(), refused == 0);
    EXPECT_TRUE(gets_through(a, sender, b)) << refused;  // without an event of the device
  }
}

TEST_F(RenewedGroups, AManagerThatIsSilentIsAwaitedOnce) {
  constexpr auto kOnce = std::chrono::seconds(8);  // a deadline of five
  RankOn a("fake0"), b("fake1");
  const auto at_b = b.join(1);
  const auto lasts = [](const auto& what) {
    const auto begun = std::chrono::steady_clock::now();
    what();
    return std::chrono::steady_clock::now() - begun;
  };
  fake::world().join_end = fake::JoinEnd::silence;
  EXPECT_LT(lasts([&] { EXPECT_FALSE(a.transport->join({1}, JoinAs::send_only)); }), kOnce);
  fake::world().join_end = fake::JoinEnd::joined;
  const auto sender = a.join(1, JoinAs::send_only);
  fake::world().join_end = fake::JoinEnd::silence;
  EXPECT_LT(lasts([&] { EXPECT_FALSE(a.transport->join({1}, JoinAs::receiver)); }), kOnce);
  fake::world().join_end = fake::JoinEnd::joined;
  fake::world().first_mlid = kOtherLids;
  const auto again = b.join(2);
  restart_manager();
  EXPECT_TRUE(gets_through(a, sender, b));
  EXPECT_EQ(memberships(), 3);
}

TEST_F(RenewedGroups, OneThatCannotBeFollowedDoesNotHoldUpTheOthers) {
  RankOn a("fake0"), b("fake1");
  const auto one = a.join(1, JoinAs::send_only), other = a.join(2, JoinAs::send_only);
  const auto one_b = b.join(1), other_b = b.join(2);
  fake::world().fail("ibv_create_ah", 1, ENOMEM, 1);
  restart_manager();
  // One of both at once, the other at the next look.
  ASSERT_TRUE(pump({&a, &b}, [] { return fake::world().calls["ibv_create_ah"] >= 2; }));
  EXPECT_TRUE(gets_through(a, one, b));
  EXPECT_TRUE(gets_through(a, other, b));
  EXPECT_EQ(a.transport->last_error(), "");
}

TEST_F(RenewedGroups, AnotherKeyIsNamed) {
  RankOn b("fake1");
  const auto at_b = b.join(1);
  fake::world().join_end = fake::JoinEnd::other_key;
  restart_manager();
  ASSERT_TRUE(pump(
      {&b}, [&] { return b.transport->last_error().find("another Q_Key") != std::string::npos; }));
}

TEST_F(RenewedGroups, RefusedSteps) {
  for (const char* call : {"ibv_attach_mcast", "ibv_create_ah"}) {
    RankOn a("fake0"), b("fake1");
    const auto sender = a.join(1, JoinAs::send_only);
    const auto at_b = b.join(1);
    fake::world().fail(call, 1, ENOMEM, 2);
    restart_manager();
    ASSERT_TRUE(pump({&a, &b}, [&] { return fake::world().calls[call] > 2; })) << call;
    EXPECT_TRUE(gets_through(a, sender, b)) << call;
    fake::world().first_mlid = 0xC000;
  }
}

TEST_F(RenewedGroups, LeavingWhileItHasEndedLeavesNothing) {
  RankOn b("fake1");
  auto at_b = b.join(1);
  fake::world().fail("rdma_join_multicast_ex", 1, EAGAIN, 1000);
  restart_manager();
  ASSERT_TRUE(pump({&b}, [] { return fake::world().calls["rdma_join_multicast_ex"] == 1; }));
  at_b.reset();
  EXPECT_EQ(memberships(), 0);
  EXPECT_EQ(b.transport->last_error(), "");
  fake::world().fail("", 0, 0);
  at_b = b.join(1);
  EXPECT_EQ(memberships(), 1);
}

// An end that is heard while another group is being joined is not lost.
TEST_F(RenewedGroups, AnEndHeardDuringAnotherJoin) {
  RankOn a("fake0"), b("fake1");
  const auto sender = a.join(1, JoinAs::send_only);
  const auto at_b = b.join(1);
  fake::world().first_mlid = kOtherLids;
  fake::end_memberships();
  const auto other = b.join(2), other_sender = a.join(2, JoinAs::send_only);
  fake::raise("fake0", IBV_EVENT_PORT_ACTIVE);
  fake::raise("fake1", IBV_EVENT_PORT_ACTIVE);
  EXPECT_TRUE(gets_through(a, other_sender, b));
  ASSERT_TRUE(pump({&a, &b}, [] { return fake::world().calls["rdma_join_multicast_ex"] >= 6; }));
  EXPECT_TRUE(gets_through(a, sender, b));
}

}  // namespace
}  // namespace selmcast::verbs_test
