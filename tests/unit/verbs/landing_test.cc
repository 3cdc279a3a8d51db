// Landing queues on fake devices: where frames go, and what errors leave behind.
#include <cerrno>
#include <cstring>

#include "tests/unit/verbs/support.h"
#include "transport/verbs/verbs_backend.h"

namespace selmcast::verbs_test {
namespace {

/// Receives that a queue holds; 0: there are no placed receives.
std::uint32_t depth_of(const Transport& transport) {
  const PlacedReceives* const receives = transport.abilities().placed_receives;
  return receives == nullptr ? 0 : receives->placed_depth();
}

using testing::HasSubstr;
constexpr std::size_t kElsewhere = 32 + 2048;  ///< Posted for messages and to the shared queue.
constexpr std::uint32_t kDepth = 256, kQueues = 16, kHeader = 40;
/// Completions of a landing queue, whose receives may be taken back and posted anew before those
/// are polled, and of all else.
constexpr std::uint32_t kEach = 2 * kDepth;
constexpr std::uint32_t kOther =
    verbs::kRequestDepth * verbs::kRequestFrames + verbs::kBuffers + verbs::ReadLinks::kCompletions;

std::unique_ptr<Transport> open_landing(const std::string& devices) {
  TransportConfig config = config_on(devices);
  config.placed_receives = true;
  config.world = kQueues / 2 + 1;
  return open(config);
}

class Landing : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    a = std::make_unique<RankOn>("fake0");
    b = open_landing("fake1");
    region = b->abilities().placed_receives->register_places(memory).value();
    to_group = a->join(1, JoinAs::send_only);
    auto joined = b->abilities().placed_receives->join_placed({1});
    ASSERT_TRUE(joined) << joined.error().message;
    group = std::move(joined).value();
  }
  void TearDown() override {
    to_group.reset();
    group.reset();
    region.reset();
    b.reset();
    a.reset();
    expect_nothing_alive("landing");
  }
  /// A receive for a place of `bytes` at `at`; without bytes, for none.
  std::uint32_t post(std::uint64_t user, std::size_t at = 0, std::uint32_t bytes = 0) {
    LandingRequest one{.header_bytes = kHeader};
    one.user = user;
    one.bytes = bytes;
    one.region = region.id();
    if (bytes > 0) one.place = memory.data() + at;
    return b->abilities().placed_receives->post_placed(group.id(), {&one, 1}).accepted;
  }
  std::uint32_t post_many(std::uint32_t count) {
    std::uint32_t taken = 0;
    for (std::uint32_t i = 0; i < count; ++i) taken += post(100 + i, std::size_t{i} * 64, 60);
    return taken;
  }
  void send(std::uint8_t mark) {
    a->send(Destination::to(to_group), mark, 0);
    ASSERT_TRUE(pump({a.get()}, [&] { return !std::exchange(a->done, {}).empty(); }));
  }
  std::vector<Completion> poll() {
    std::vector<Completion> out(64);
    out.resize(b->poll(out));
    return out;
  }
  void give_back(const std::vector<Completion>& all) {
    for (const auto& one : all) {
      const ReceiveRequest back{one.token};
      b->post_receives({&back, 1});
    }
  }
  bool mended() {
    const auto before = b->abilities().placed_receives->drops(group.id());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (b->abilities().placed_receives->drops(group.id()) == before) {
      give_back(poll());
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }
  static std::size_t posted() { return fake::receives_posted("fake1") - kElsewhere; }
  /// No buffer was lost: as many receives as ever can be posted.
  void expect_all_buffers() {
    ASSERT_TRUE(b->abilities().placed_receives->take_back(group.id()));
    EXPECT_EQ(post_many(kDepth + 3), kDepth);
    EXPECT_EQ(posted(), kDepth);
    EXPECT_FALSE(fake::posted_twice());
  }

  std::vector<std::byte> memory = std::vector<std::byte>(64 * 1024);
  std::unique_ptr<RankOn> a;
  std::unique_ptr<Transport> b;
  Region region;
  Membership to_group, group;
};

TEST_F(Landing, FramesGoWhereTheirReceivesSayInTheOrderPosted) {
  EXPECT_EQ(depth_of(*b), kDepth);
  ASSERT_EQ(post(11, 0, 60), 1U);     // just the payload
  ASSERT_EQ(post(12), 1U);            // no place
  ASSERT_EQ(post(13, 1000, 20), 1U);  // less than the payload
  ASSERT_EQ(post(14, 2000, 80), 1U);  // more
  for (std::uint8_t mark = 1; mark <= 4; ++mark) send(mark);
  const auto got = poll();
  ASSERT_EQ(got.size(), 4U);
  const std::size_t at[] = {0, 0, 1000, 2000}, landed[] = {60, 0, 20, 60};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto mark = std::byte(i + 1);
    EXPECT_EQ(got[i].user, 11 + i);
    EXPECT_EQ(got[i].bytes, 100U);
    ASSERT_EQ(got[i].landed_bytes, landed[i]);
    for (std::uint32_t byte = 0; byte < kHeader; ++byte) EXPECT_EQ(got[i].data[byte], mark);
    // What follows what landed.
    for (std::size_t byte = kHeader + landed[i]; byte < 100; ++byte) {
      EXPECT_EQ(got[i].data[byte], mark);
    }
    if (landed[i] == 0) continue;
    EXPECT_EQ(got[i].landed, memory.data() + at[i]);
    EXPECT_EQ(got[i].room, got[i].data + kHeader);
    EXPECT_NE(got[i].data[kHeader], mark) << "it came twice";
    for (std::size_t byte = 0; byte < landed[i]; ++byte) EXPECT_EQ(got[i].landed[byte], mark);
    EXPECT_EQ(got[i].landed[landed[i]], std::byte{0});
  }
  give_back(got);
  expect_all_buffers();
}

TEST_F(Landing, WhereNothingIsPostedFramesAreLost) {
  send(1);
  EXPECT_TRUE(poll().empty());
  ASSERT_EQ(post(5, 0, 60), 1U);
  send(2);
  const auto got = poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(*got[0].landed, std::byte{2});
  give_back(got);
}

TEST_F(Landing, TakingBackDropsWhatWasPostedAndWhatWasNotPolled) {
  ASSERT_EQ(post_many(10), 10U);
  for (std::uint8_t mark = 1; mark <= 3; ++mark) send(mark);
  EXPECT_EQ(posted(), 7U);
  ASSERT_TRUE(b->abilities().placed_receives->take_back(group.id()));
  EXPECT_EQ(b->abilities().placed_receives->drops(group.id()), 1U);
  EXPECT_EQ(posted(), 0U);
  EXPECT_TRUE(poll().empty());
  memory.assign(memory.size(), std::byte{0});
  send(4);
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size())) << "written after it was taken back";
  ASSERT_EQ(post(7, 0, 60), 1U);
  send(5);
  const auto got = poll();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].user, 7U);
  give_back(got);
  expect_all_buffers();
}

TEST_F(Landing, LentBuffersSurviveATakingBack) {
  ASSERT_EQ(post_many(4), 4U);
  for (std::uint8_t mark = 1; mark <= 4; ++mark) send(mark);
  const auto got = poll();
  ASSERT_EQ(got.size(), 4U);
  ASSERT_TRUE(b->abilities().placed_receives->take_back(group.id()));
  EXPECT_EQ(post_many(kDepth), kDepth);
  EXPECT_FALSE(fake::posted_twice());
  give_back(got);
  expect_all_buffers();
}

TEST_F(Landing, ADeviceThatRefusesIsToldAndMendedLater) {
  ASSERT_EQ(post_many(10), 10U);
  fake::world().fail("ibv_modify_qp", 1, EINVAL, 1);
  EXPECT_FALSE(b->abilities().placed_receives->take_back(group.id()));
  EXPECT_THAT(b->last_error(), HasSubstr("bringing a queue pair back on fake1"));
  EXPECT_EQ(post(1, 0, 60), 0U);
  ASSERT_TRUE(mended());
  expect_all_buffers();
}

TEST_F(Landing, RefusedReceivesAreAPrefixAndNoBufferIsLost) {
  fake::world().fail("ibv_post_recv", 1, ENOMEM, 2);
  EXPECT_EQ(post(1, 0, 60), 0U);
  EXPECT_EQ(post(1, 0, 60), 0U);
  expect_all_buffers();
  std::vector<LandingRequest> more(3);
  for (auto& one : more) one = {.header_bytes = kHeader, .user = 9};
  EXPECT_EQ(b->abilities().placed_receives->post_placed(group.id(), more).accepted, 0U);
  EXPECT_EQ(b->abilities().placed_receives->post_placed(group.id(), more).state,
            PostState::backpressure);
}

TEST_F(Landing, AfterAnErrorOfTheQueuePairEverythingPostedIsDropped) {
  ASSERT_EQ(post_many(10), 10U);
  bool once = true;
  fake::world().receive_status = [&](const ibv_qp& qp) {
    const bool here = std::string(qp.context->device->name) == "fake1";
    return here && std::exchange(once, false) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
  };
  send(1);
  ASSERT_TRUE(mended());
  EXPECT_EQ(posted(), 0U);
  expect_all_buffers();
}

TEST_F(Landing, MembershipsOfAGroupShareItsQueue) {
  ASSERT_EQ(post_many(3), 3U);
  auto second = b->abilities().placed_receives->join_placed({1});
  ASSERT_TRUE(second) << second.error().message;
  group = std::move(second).value();
  EXPECT_EQ(posted(), 3U);
  EXPECT_EQ(b->abilities().placed_receives->drops(group.id()), 0U);
  send(1);
  give_back(poll());
  EXPECT_EQ(posted(), 2U);
}

TEST_F(Landing, QueuesRunOutAndComeBack) {
  std::vector<Membership> more;
  for (std::uint32_t g = 2; g <= kQueues; ++g) {
    auto joined = b->abilities().placed_receives->join_placed({g});
    ASSERT_TRUE(joined) << joined.error().message;
    more.push_back(std::move(joined).value());
  }
  const auto beyond = b->abilities().placed_receives->join_placed({100});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().kind, ErrorKind::unavailable);
  more.pop_back();
  EXPECT_TRUE(b->abilities().placed_receives->join_placed({100}));
}

TEST_F(Landing, GroupsThatWereJoinedWithoutStayWithout) {
  auto plain = b->join({9}, JoinAs::receiver);
  ASSERT_TRUE(plain);
  const auto lands = b->abilities().placed_receives->join_placed({9});
  ASSERT_FALSE(lands);
  EXPECT_THAT(lands.error().message, HasSubstr("group 9"));
  EXPECT_EQ(b->abilities().placed_receives->post_placed(plain->id(), {}).accepted, 0U);
  EXPECT_FALSE(b->abilities().placed_receives->take_back(plain->id()));
}

TEST(LandingSetUp, RailsAndDevicesThatCannotHaveNone) {
  fake::reset(2);
  EXPECT_EQ(depth_of(*open_landing("fake0+fake1")), 0U);
  EXPECT_EQ(depth_of(*open("fake0")), 0U) << "not asked for";
  fake::world().devices[0].max_qp_wr = 200;
  EXPECT_EQ(depth_of(*open_landing("fake0")), 0U);
}

TEST(LandingSetUp, ADeviceWithoutRoomForThemDoesTheRestAndSaysSo) {
  fake::reset(1);
  fake::world().devices[0].max_cqe = static_cast<int>(kOther + kEach - 1);
  const auto transport = open_landing("fake0");
  ASSERT_NE(transport, nullptr);
  EXPECT_EQ(depth_of(*transport), 0U);
  EXPECT_THAT(transport->notices(),
              testing::ElementsAre(testing::AllOf(
                  HasSubstr("fake0 port 1"),
                  HasSubstr("completion queues of " + std::to_string(kOther + kEach - 1)),
                  HasSubstr("frames are copied"))));
  EXPECT_TRUE(transport->join({1}, JoinAs::receiver));
}

TEST(LandingSetUp, ADeviceWithRoomForAFewHasThose) {
  fake::reset(1);
  fake::world().devices[0].max_cqe = static_cast<int>(kOther + 5 * kEach - 1);
  const auto transport = open_landing("fake0");
  ASSERT_NE(transport, nullptr);
  EXPECT_GT(depth_of(*transport), 0U);
  std::vector<Membership> joined;
  for (std::uint32_t group = 1; group <= 5; ++group) {
    auto one = transport->abilities().placed_receives->join_placed({group});
    EXPECT_EQ(one.has_value(), group <= 4) << group;
    if (one) joined.push_back(std::move(one).value());
  }
}

TEST(LandingSetUp, WhatTheDeviceRefusesForThemIsToldAndTheRestGoesOn) {
  // Memory is registered for frames first, completion queues only once.
  for (const auto& [call, at] : {std::pair{"ibv_reg_mr", 2}, std::pair{"ibv_create_cq", 1}}) {
    fake::reset(1);
    fake::world().fail(call, at, ENOMEM);
    const auto transport = open_landing("fake0");
    ASSERT_NE(transport, nullptr) << call;
    EXPECT_EQ(depth_of(*transport), 0U) << call;
    EXPECT_THAT(transport->notices(), testing::ElementsAre(testing::AllOf(
                                          HasSubstr("frames are copied"), HasSubstr("fake0 port 1"),
                                          HasSubstr("ulimit -l"))));
    EXPECT_TRUE(transport->join({1}, JoinAs::receiver)) << call;
  }
}

/// Whether all that sets up a landing queue works; everything is undone again.
bool sets_up() {
  TransportConfig config;
  config.placed_receives = true;
  config.world = kQueues / 2 + 1;
  auto transport = open_verbs(config);
  if (!transport) return false;
  std::vector<std::byte> memory(4096);
  PlacedReceives* const receives = (*transport)->abilities().placed_receives;
  if (receives == nullptr) return false;  // The device refused them, and does the rest.
  const auto region = receives->register_places(memory);
  const auto joined = receives->join_placed({1});
  return region && joined;
}

TEST(LandingSetUp, EachCallFailingLeavesNothingBehind) {
  for (const char* call : {"ibv_reg_mr", "ibv_create_qp", "ibv_modify_qp", "ibv_attach_mcast",
                           "ibv_create_cq", "rdma_join_multicast_ex", "ibv_create_ah"}) {
    int failures = 0;
    for (;; ++failures) {
      fake::reset(1);
      fake::world().fail(call, failures + 1, ENOMEM);
      const bool works = sets_up();
      expect_nothing_alive(std::string(call) + " " + std::to_string(failures + 1));
      if (works) break;
    }
    EXPECT_GT(failures, 0) << call;
  }
}

}  // namespace
}  // namespace selmcast::verbs_test
