#include <thread>

#include "base/random.h"
#include "tests/unit/transport/shm_support.h"

namespace selmcast::test {
namespace {

/// n ranks of this process, all connected to all; rank 0 sends from registered memory.
class ShmGroup : public testing::Test {
 protected:
  void open(std::uint32_t n) {
    for (Rank rank = 0; rank < n; ++rank) nodes.emplace_back(open_test_shm(rank, n));
    endpoints.resize(n);
    for (Rank from = 0; from < n; ++from) {
      for (Rank to = 0; to < n; ++to) {
        endpoints[from].push_back(
            from == to ? Endpoint()
                       : connect_test(*nodes[from].transport, nodes[to].transport->address()));
      }
    }
    memory.resize(65'536);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i % 253);
    auto registered = nodes[0].transport->register_memory(memory);
    ASSERT_TRUE(registered);
    region = std::move(*registered);
  }
  Membership join(Rank rank, std::uint32_t group, JoinAs as = JoinAs::receiver) {
    auto joined = nodes[rank].transport->join({group}, as);
    EXPECT_TRUE(joined);
    return joined ? std::move(*joined) : Membership();
  }
  LocalSlice slice(std::uint32_t bytes) const { return {memory.data(), bytes, region.id()}; }
  std::vector<std::size_t> arrivals() {
    std::vector<std::size_t> out;
    for (Node& node : nodes) {
      node.poll();
      out.push_back(node.arrived.size());
    }
    return out;
  }

  std::vector<Node> nodes;
  std::vector<std::vector<Endpoint>> endpoints;
  std::vector<std::byte> memory;
  Region region;
};

TEST_F(ShmGroup, ReachesExactlyTheMembersOfTheMoment) {
  open(5);
  const Membership sender = join(0, 3, JoinAs::send_only);
  EXPECT_EQ(nodes[0].send(Destination::to(sender), slice(10)).accepted, 1U) << "nobody is no error";
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, 0, 0, 0, 0}));
  Membership two = join(2, 3);
  const Membership four = join(4, 3);
  const Membership elsewhere = join(1, 4);
  const Membership other_sender = join(3, 3, JoinAs::send_only);
  nodes[0].send(Destination::to(sender), slice(10));
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, 0, 1, 0, 1}));
  two.reset();
  nodes[0].send(Destination::to(sender), slice(10));
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, 0, 1, 0, 2}));
  const Membership again = join(2, 3);
  nodes[0].send(Destination::to(sender), slice(10));
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, 0, 2, 0, 3}));
  EXPECT_EQ(nodes[0].transport->counters().sent_bytes, 40U) << "a multicast post counts once";
}

TEST_F(ShmGroup, FrameOfAGroupThatWasLeftIsNotHandedOut) {
  open(2);
  const Membership sender = join(0, 1, JoinAs::send_only);
  Membership receiver = join(1, 1);
  nodes[0].send(Destination::to(sender), slice(1'000));
  receiver.reset();
  nodes[0].send(Destination::to(endpoints[0][1]), slice(7));
  ASSERT_TRUE(nodes[1].until([&] { return !nodes[1].arrived.empty(); }));
  EXPECT_EQ(nodes[1].arrived[0].bytes.size(), 7U);
  EXPECT_EQ(nodes[1].transport->counters().received_bytes, 7U);
}

TEST_F(ShmGroup, TwoMembershipsOfOneGroupAreLeftOneByOne) {
  open(2);
  const Membership sender = join(0, 1, JoinAs::send_only);
  Membership first = join(1, 1);
  Membership second = join(1, 1);
  first.reset();
  nodes[0].send(Destination::to(sender), slice(5));
  EXPECT_EQ(arrivals()[1], 1U);
  second.reset();
  nodes[0].send(Destination::to(sender), slice(5));
  EXPECT_EQ(arrivals()[1], 1U);
}

TEST_F(ShmGroup, OneFullMemberHoldsTheWholePostBack) {
  open(3);
  const Membership sender = join(0, 9, JoinAs::send_only);
  const Membership one = join(1, 9);
  const Membership two = join(2, 9);
  nodes[1].hold = true;
  std::uint32_t posted = 0;
  while (nodes[0].send(Destination::to(sender), slice(60'000), 8'000).accepted == 1) {
    ++posted;
    nodes[0].poll();
    ASSERT_TRUE(nodes[2].until([&] { return nodes[2].arrived.size() == posted; }));
    nodes[1].poll();
  }
  EXPECT_EQ(posted, 4U);
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, posted, posted}))
      << "nothing of the refused post may have reached the member with room";
  for (const auto token : nodes[1].held) nodes[1].give_back(token);
  EXPECT_EQ(nodes[0].send(Destination::to(sender), slice(60'000), 8'000).accepted, 1U);
  EXPECT_EQ(arrivals(), (std::vector<std::size_t>{0, posted + 1, posted + 1}));
}

TEST_F(ShmGroup, MemberWithoutProgressIsTakenOutByClosingItsEndpoint) {
  open(3);
  const Membership sender = join(0, 9, JoinAs::send_only);
  const Membership one = join(1, 9);
  const Membership two = join(2, 9);
  nodes[1].hold = true;
  while (nodes[0].send(Destination::to(sender), slice(60'000), 8'000).accepted == 1)
    nodes[0].poll();
  endpoints[0][1].reset();
  ASSERT_TRUE(nodes[2].until([&] { return nodes[2].arrived.size() == 4; }));
  EXPECT_EQ(nodes[0].send(Destination::to(sender), slice(60'000), 8'000).accepted, 1U);
}

TEST_F(ShmGroup, MembersComeAndGoWhileAnotherThreadSends) {
  open(3);
  const Membership sender = join(0, 5, JoinAs::send_only);
  const Membership steady = join(1, 5);
  constexpr std::uint32_t kPosts = 5'000;
  std::thread sending([&] {
    for (std::uint32_t i = 0; i < kPosts;) {
      if (nodes[0].send(Destination::to(sender), slice(64 + i % 64)).accepted == 1) {
        ++i;
      } else {
        nodes[0].transport->wait(1ms);
      }
      nodes[0].poll();
      nodes[0].sent.clear();
    }
  });
  std::thread fickle([&] {
    for (int i = 0; i < 300; ++i) {
      Membership member = join(2, 5);
      for (int j = 0; j < 20; ++j) nodes[2].poll();
    }
    nodes[2].poll();
  });
  ASSERT_TRUE(nodes[1].until([&] { return nodes[1].arrived.size() == kPosts; }, 60s));
  sending.join();
  fickle.join();
  for (std::uint32_t i = 0; i < kPosts; ++i) {
    ASSERT_EQ(nodes[1].arrived[i].bytes.size(), 64 + i % 64) << i;
  }
}

TEST_F(ShmGroup, ManyGroupsAtOnceUpToTheLimit) {
  open(2);
  std::vector<Membership> memberships;
  for (std::uint32_t group = 0; group < shm::kGroupSlots; ++group) {
    memberships.push_back(join(1, group * 7));
  }
  EXPECT_FALSE(nodes[1].transport->join({1'000'000}, JoinAs::receiver));
  const Membership last = join(0, (shm::kGroupSlots - 1) * 7, JoinAs::send_only);
  const Membership none = join(0, 3, JoinAs::send_only);
  nodes[0].send(Destination::to(last), slice(1));
  nodes[0].send(Destination::to(none), slice(1));
  EXPECT_EQ(arrivals()[1], 1U);
  EXPECT_FALSE(nodes[0].transport->join({~0U}, JoinAs::receiver));
}

}  // namespace
}  // namespace selmcast::test
