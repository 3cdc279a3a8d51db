// Ports that lose the address by which peers know them.
#include <cerrno>

#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

class Renamed : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(3);
    for (auto& device : fake::world().devices) device.ports[0].lid = 4;
  }
  void TearDown() override { expect_nothing_alive("a change of address"); }

  static std::vector<fake::Gid>& gids(std::size_t device = 0) {
    return fake::world().devices[device].ports[0].gids;
  }
  /// Raises the event and polls until the rank has looked.
  static void tell(RankOn& rank, ibv_event_type event = IBV_EVENT_GID_CHANGE) {
    fake::world().calls.clear();
    fake::raise("fake0", event);
    ASSERT_TRUE(pump({&rank}, [] { return fake::world().calls["ibv_query_port"] > 0; }));
  }
  static bool takes(RankOn& rank, const Endpoint& to) {
    const auto outcome = rank.send(Destination::to(to), 1, 0);
    return outcome.accepted == 1;
  }
};

TEST_F(Renamed, TheSameGidChangesNothing) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids().push_back(fake::ipv4_gid(2, 77));  // another address of the interface
  tell(a);
  EXPECT_EQ(a.transport->last_error(), "");
  EXPECT_TRUE(takes(a, to_b));
}

TEST_F(Renamed, AGidThatIsGoneIsNamedAndSendsNothing) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids().clear();
  tell(a);
  EXPECT_THAT(a.transport->last_error(),
              AllOf(HasSubstr("fake0 port 1: GID index 1 was ::ffff:10.0.0.1"),
                    HasSubstr("is empty now"), HasSubstr("give its interface the address back")));
  EXPECT_EQ(a.send(Destination::to(to_b), 1, 0).state, PostState::backpressure);
  // It came back.
  gids() = {fake::ipv4_gid(1, 1)};
  tell(a);
  EXPECT_EQ(a.transport->last_error(), "");
  EXPECT_TRUE(takes(a, to_b));
}

TEST_F(Renamed, ADeviceThatDoesNotAnswerIsAskedAgain) {
  for (const char* call : {"ibv_query_port", "ibv_query_gid_ex"}) {
    RankOn a("fake0");
    gids().clear();
    fake::world().fail(call, 1, EIO, 2);
    fake::raise("fake0", IBV_EVENT_GID_CHANGE);
    ASSERT_TRUE(pump({&a}, [&] { return !a.transport->last_error().empty(); })) << call;
    EXPECT_THAT(a.transport->last_error(), HasSubstr("is empty now"));
    EXPECT_GE(fake::world().calls[call], 3);
    EXPECT_LE(fake::world().calls["ibv_query_port"], 6) << "not at every poll";
    gids() = {fake::ipv4_gid(1, 1)};
  }
}

TEST_F(Renamed, AnotherGidInItsPlaceIsNamed) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids() = {fake::ipv4_gid(1, 99)};
  tell(a);
  EXPECT_THAT(a.transport->last_error(),
              AllOf(HasSubstr("was ::ffff:10.0.0.1"), HasSubstr("is ::ffff:10.0.0.99 now")));
  EXPECT_FALSE(takes(a, to_b));
  // RoCE v1 of the same address is another way to look on the wire.
  gids() = {fake::ipv4_gid(1, 1, IBV_GID_TYPE_ROCE_V1)};
  tell(a);
  EXPECT_NE(a.transport->last_error(), "");
}

TEST_F(Renamed, AGidThatMovedIsToldAndTheRankGoesOn) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids() = {fake::ipv4_gid(6, 1)};
  tell(a);
  EXPECT_THAT(a.transport->last_error(), AllOf(HasSubstr("is empty now"), HasSubstr("at index 6"),
                                               HasSubstr("restart the job")));
  EXPECT_TRUE(takes(a, to_b));
}

TEST_F(Renamed, WhatIsMadeLaterIsMadeFromWhereTheGidIsNow) {
  RankOn a("fake0"), b("fake1");
  const auto to_a = b.to(a);
  for (const std::uint32_t index : {6U, 1U}) {
    gids() = {fake::ipv4_gid(index, 1)};
    tell(a);
    auto to_b = a.to(b);
    const auto sender = a.join(1, JoinAs::send_only);
    EXPECT_TRUE(pump({&a, &b}, [&] {
      const bool there = a.transport->abilities().reads->can_read(to_b.id());
      return b.transport->abilities().reads->can_read(to_a.id()) && there;
    })) << index;
    EXPECT_TRUE(takes(a, to_b));
  }
}

TEST_F(Renamed, WithoutAnotherPortTheRankSaysSoAfterAWhile) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids().clear();
  tell(a);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(pump(
      {&a}, [&] { return a.send(Destination::to(to_b), 1, 0).state == PostState::broken; },
      milliseconds(20'000)));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(9000));
}

TEST_F(Renamed, OtherRailsCarryOn) {
  RankOn a("fake0+fake2"), b("fake1+fake2");
  const auto to_b = a.to(b);
  gids().clear();
  tell(a);
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(takes(a, to_b));
  EXPECT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 6 && a.done.size() == 6; }));
  EXPECT_THAT(a.transport->last_error(), HasSubstr("fake0 port 1: GID index 1"));
}

TEST_F(Renamed, ADeviceThatDoesNotAnswerChangesNothing) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  gids().clear();
  for (const char* call : {"ibv_query_port", "ibv_query_gid_ex"}) {
    fake::world().fail(call, 1, EIO, 1000);
    fake::raise("fake0", IBV_EVENT_GID_CHANGE);
    ASSERT_TRUE(pump({&a}, [&] { return fake::world().calls[call] > 0; }));
    EXPECT_EQ(a.transport->last_error(), "") << call;
    EXPECT_TRUE(takes(a, to_b));
  }
}

TEST_F(Renamed, EventsOfAnotherPortAreNotOurs) {
  RankOn a("fake0");
  gids().clear();
  fake::world().calls.clear();
  fake::raise("fake0", IBV_EVENT_GID_CHANGE, 2);
  pump(
      {&a}, [] { return false; }, milliseconds(100));
  EXPECT_EQ(fake::world().calls["ibv_query_port"], 0);
}

TEST_F(Renamed, ALidOnInfinibandOnly) {
  const auto relabel = [](RankOn& rank) {
    fake::world().devices[0].ports[0].lid = 9;
    tell(rank, IBV_EVENT_LID_CHANGE);
    return rank.transport->last_error();
  };
  {
    RankOn ethernet("fake0");
    EXPECT_EQ(relabel(ethernet), "");
  }
  const auto interfaces = be_infiniband();
  fake::world().devices[0].ports[0].lid = 4;
  RankOn infiniband("fake0");
  EXPECT_THAT(relabel(infiniband), AllOf(HasSubstr("LID 4 has become 9"), HasSubstr("fake0")));
}

}  // namespace
}  // namespace selmcast::verbs_test
