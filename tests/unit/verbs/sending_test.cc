// Sending over fake devices: errors of every kind, recovery, rails that come and go.
#include <cerrno>

#include "tests/unit/verbs/support.h"
#include "transport/verbs/send_queue.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;

std::size_t failures(const RankOn& rank) {
  return static_cast<std::size_t>(
      std::count_if(rank.done.begin(), rank.done.end(),
                    [](const Completion& c) { return c.status == Status::failed; }));
}

/// Users of the completions in order, each exactly once.
void expect_each_once(const RankOn& rank, std::uint64_t count) {
  ASSERT_EQ(rank.done.size(), count);
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ(rank.done[i].user, i);
}

class Sending : public testing::Test {
 protected:
  void SetUp() override { fake::reset(2); }
  void TearDown() override { expect_nothing_alive("sending"); }
};

TEST_F(Sending, UnicastAndGroupsArriveOnce) {
  RankOn a("fake0"), b("fake1"), c("fake0");
  const auto to_b = a.to(b);
  const auto send_only = a.join(5, JoinAs::send_only);
  const auto at_b = b.join(5), at_c = c.join(5), other = c.join(6);
  a.send(Destination::to(to_b), 1, 0);
  a.send(Destination::to(send_only), 2, 1, 1024);
  ASSERT_TRUE(pump({&a, &b, &c}, [&] {
    return b.received.size() == 2 && c.received.size() == 1 && a.done.size() == 2;
  }));
  EXPECT_EQ(b.received[0], std::vector<std::byte>(100, std::byte{1}));
  EXPECT_EQ(b.received[1], std::vector<std::byte>(1024, std::byte{2}));
  EXPECT_EQ(c.received[0], b.received[1]);
}

TEST_F(Sending, EachErrorStatusFailsItsRequestAndTheQueueWorksAgain) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; ++status) {
    const auto value = static_cast<ibv_wc_status>(status);
    SCOPED_TRACE(ibv_wc_status_str(value));
    RankOn a("fake0"), b("fake1");
    const auto to_b = a.to(b);
    // The third of five frames goes wrong; what follows is flushed.
    int number = 0;
    fake::world().send_status = [&](const ibv_qp& qp, const ibv_send_wr&) {
      return qp.qp_type == IBV_QPT_UD && ++number == 3 ? value : IBV_WC_SUCCESS;
    };
    fake::world().hold = true;
    for (std::uint64_t i = 0; i < 5; ++i) {
      ASSERT_EQ(a.send(Destination::to(to_b), 1, i).state, PostState::accepted);
    }
    fake::world().hold = false;
    fake::deliver();
    ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 5; }));
    fake::world().send_status = nullptr;
    expect_each_once(a, 5);
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(a.done[i].status, i < 2 ? Status::ok : Status::failed) << i;
    }
    EXPECT_THAT(a.transport->last_error(), HasSubstr("a send failed: "));
    EXPECT_THAT(a.transport->last_error(), HasSubstr(ibv_wc_status_str(value)));
    EXPECT_THAT(a.transport->last_error(), HasSubstr("fake0 port 1 GID 1"));
    ASSERT_TRUE(pump({&a, &b}, [&] {
      return a.send(Destination::to(to_b), 3, 5).state == PostState::accepted;
    }));
    ASSERT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 3; }));
    EXPECT_EQ(a.done.back().status, Status::ok);
  }
}

TEST_F(Sending, ARefusedPostFailsWhatItHeldOnceAndNothingBefore) {
  for (const int takes : {0, 1, 3}) {
    SCOPED_TRACE(takes);
    RankOn a("fake0"), b("fake1");
    const auto to_b = a.to(b);
    ASSERT_EQ(a.send(Destination::to(to_b), 1, 0).state, PostState::accepted);
    ASSERT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 1; }));
    fake::world().fail("ibv_post_send", 1, ENOMEM);
    fake::world().takes_of_chain = takes;
    std::vector<SendRequest> requests;
    const LocalSlice slice{.data = a.memory.data(), .bytes = 100, .region = a.region.id()};
    for (std::uint64_t i = 1; i <= 5; ++i) {
      requests.push_back({.destination = Destination::to(to_b),
                          .slices = {&slice, 1},
                          .frame_bytes = 0,
                          .user = i});
    }
    EXPECT_EQ(a.transport->post_sends(requests).accepted, 5U);
    ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 6; }));
    expect_each_once(a, 6);
    EXPECT_EQ(a.done[0].status, Status::ok);
    EXPECT_EQ(failures(a), 5U);
    EXPECT_EQ(b.received.size(), 1U + static_cast<std::size_t>(takes));
    EXPECT_THAT(a.transport->last_error(), HasSubstr("posting to a queue pair on fake0"));
    EXPECT_THAT(a.transport->last_error(), HasSubstr("ulimit -l"));
    ASSERT_EQ(a.send(Destination::to(to_b), 1, 6).state, PostState::accepted);
    ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 7; }));
    EXPECT_EQ(a.done.back().status, Status::ok);
    fake::world().takes_of_chain = -1;
  }
}

TEST_F(Sending, RestartsThatFailAreTriedAtGrowingIntervals) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  fake::world().send_status = [](const ibv_qp&, const ibv_send_wr&) { return IBV_WC_FATAL_ERR; };
  a.send(Destination::to(to_b), 1, 0);
  fake::world().send_status = nullptr;
  constexpr int kFail = 7;
  fake::world().fail("ibv_modify_qp", 1, ETIMEDOUT, kFail);
  const auto start = std::chrono::steady_clock::now();
  while (fake::world().calls["ibv_modify_qp"] <= kFail) {
    a.poll();
    EXPECT_EQ(a.send(Destination::to(to_b), 1, 1).state == PostState::accepted,
              fake::world().calls["ibv_modify_qp"] > kFail);
  }
  // Pauses of 1, 2, 4, ... ms lie between the attempts.
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds((1 << kFail) - 1));
  EXPECT_THAT(a.transport->last_error(), HasSubstr("bringing a queue pair back on fake0"));
  ASSERT_TRUE(pump({&a, &b}, [&] { return !b.received.empty(); }));
}

TEST_F(Sending, SelectiveSignallingLeavesRoomForEver) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  std::uint64_t sent = 0;
  // Many times the depth of the queue.
  ASSERT_TRUE(pump({&a, &b}, [&] {
    while (sent < 5000 && a.send(Destination::to(to_b), 1, sent).accepted == 1) ++sent;
    return a.done.size() == 5000;
  }));
  expect_each_once(a, 5000);
  EXPECT_EQ(failures(a), 0U);
  EXPECT_EQ(b.received.size(), 5000U);
}

TEST_F(Sending, APortThatGoesDownIsLeftAndTakenAgain) {
  RankOn a("fake0+fake1"), b("fake0+fake1");
  const auto to_b = a.to(b);
  const auto spread = [&](std::uint64_t from) {
    std::map<std::uint32_t, int> by_queue;
    fake::world().send_status = [&](const ibv_qp& qp, const ibv_send_wr&) {
      ++by_queue[qp.qp_num];
      return IBV_WC_SUCCESS;
    };
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(a.send(Destination::to(to_b), 1, from + i).accepted, 1U);
    }
    EXPECT_TRUE(pump({&a, &b}, [&] { return a.done.size() == from + 8; }));
    fake::world().send_status = nullptr;
    return by_queue.size();
  };
  EXPECT_EQ(spread(0), 2U);
  fake::raise("fake0", IBV_EVENT_PORT_ERR);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(spread(8), 1U);
  fake::raise("fake1", IBV_EVENT_PORT_ERR, 2);  // another port of the device
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(spread(16), 1U);
  fake::raise("fake1", IBV_EVENT_PORT_ERR);
  ASSERT_TRUE(pump({&a, &b}, [&] {
    return a.send(Destination::to(to_b), 1, 99).state == PostState::backpressure ||
           (a.done.clear(), false);
  }));
  a.poll();
  a.done.clear();
  b.received.clear();
  fake::raise("fake0", IBV_EVENT_PORT_ACTIVE);
  fake::raise("fake1", IBV_EVENT_PORT_ACTIVE);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(spread(0), 2U);
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 8; }));
}

TEST_F(Sending, AQueueInErrorBehindAPortThatIsDownHoldsNobodyUp) {
  RankOn a("fake0+fake1"), b("fake0+fake1");
  const auto to_b = a.to(b);
  // A refused post leaves frames that the device never completes.
  fake::world().fail("ibv_post_send", 1, EINVAL);
  a.send(Destination::to(to_b), 1, 0);
  fake::raise("fake0", IBV_EVENT_PORT_ERR);
  std::this_thread::sleep_for(milliseconds(50));
  for (std::uint64_t i = 1; i < 4; ++i) a.send(Destination::to(to_b), 1, i);
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 4; }));
  expect_each_once(a, 4);
  EXPECT_EQ(failures(a), 1U);
}

TEST_F(Sending, ADeviceThatBreaksFailsWhatItHeldAndTheOtherGoesOn) {
  RankOn a("fake0+fake1"), b("fake0+fake1");
  const auto to_b = a.to(b);
  fake::world().hold = true;
  for (std::uint64_t i = 0; i < 4; ++i) a.send(Destination::to(to_b), 1, i);
  fake::raise("fake0", IBV_EVENT_DEVICE_FATAL);
  std::this_thread::sleep_for(milliseconds(50));
  ASSERT_TRUE(pump({&a}, [&] { return a.done.size() >= 1; }));
  EXPECT_EQ(a.done[0].status, Status::failed);
  EXPECT_THAT(a.transport->last_error(), HasSubstr("fake0 port 1 GID 1"));
  EXPECT_THAT(a.transport->last_error(), HasSubstr("broken or was removed"));
  fake::world().hold = false;
  fake::deliver();
  for (std::uint64_t i = 4; i < 8; ++i) {
    EXPECT_EQ(a.send(Destination::to(to_b), 1, i).state, PostState::accepted);
  }
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 8; }));
  expect_each_once(a, 8);
  EXPECT_EQ(failures(a), 2U);
}

TEST_F(Sending, WithNoDeviceLeftTheTransportIsBrokenAndSaysSo) {
  for (const bool removed : {false, true}) {
    RankOn a("fake0"), b("fake1");
    const auto to_b = a.to(b);
    fake::world().hold = true;
    a.send(Destination::to(to_b), 1, 0);
    if (removed) {
      fake::remove_device("fake0");
    } else {
      fake::raise("fake0", IBV_EVENT_DEVICE_FATAL);
    }
    ASSERT_TRUE(pump({&a}, [&] { return a.done.size() == 1; }));
    EXPECT_EQ(a.done[0].status, Status::failed);
    EXPECT_EQ(a.send(Destination::to(to_b), 1, 1).state, PostState::broken);
    EXPECT_THAT(a.transport->last_error(), HasSubstr("fake0"));
    // Sleeping goes on as asked, not at once back.
    const auto start = std::chrono::steady_clock::now();
    a.transport->wait(milliseconds(1));  // takes the wake-up of the event
    a.transport->wait(milliseconds(30));
    EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(30));
    fake::world().hold = false;
    fake::deliver();
  }
}

TEST_F(Sending, ACompletionQueueThatCannotBePolledBreaksItsDevice) {
  RankOn a("fake0");
  fake::world().fail("ibv_poll_cq", 1, EIO);
  a.poll();
  a.poll();
  EXPECT_EQ(a.transport->post_receives({}).state, PostState::broken);
}

TEST_F(Sending, WaitWakesForWhatArrivesAndSleepsOtherwise) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  b.transport->wait(milliseconds(1));
  a.send(Destination::to(to_b), 1, 0);
  const auto start = std::chrono::steady_clock::now();
  b.transport->wait(std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  b.poll();
  EXPECT_EQ(b.received.size(), 1U);
  // A device that cannot be armed is looked at again soon instead.
  fake::world().fail("ibv_req_notify_cq", 1, EIO, 1000);
  b.transport->wait(std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(Sending, AClosedEndpointStaysUntilItsFramesAreSent) {
  RankOn a("fake0"), b("fake1");
  auto to_b = a.to(b);
  fake::world().hold = true;
  a.send(Destination::to(to_b), 1, 0);
  const int ways = fake::world().alive(fake::Object::way);
  to_b.reset();
  a.poll();
  EXPECT_EQ(fake::world().alive(fake::Object::way), ways);
  fake::world().hold = false;
  fake::deliver();
  ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 1; }));
  a.poll();
  EXPECT_EQ(fake::world().alive(fake::Object::way), ways - 1);
  EXPECT_EQ(b.received.size(), 1U);
}

TEST_F(Sending, CompletionsFromBeforeARestartAreNotMistaken) {
  // Straight at the queue: the device gave nothing back until the queue was reset regardless.
  auto opened = verbs::open_port({.device = "fake0"});
  ASSERT_TRUE(opened);
  verbs::ProtectionDomain pd(ibv_alloc_pd(opened->context.get()));
  verbs::CompletionChannel channel(ibv_create_comp_channel(opened->context.get()));
  verbs::CompletionQueue cq(ibv_create_cq(opened->context.get(), 64, nullptr, channel.get(), 0));
  auto queue = verbs::SendQueue::make(pd.get(), cq.get(), opened->port, 16, 1);
  ASSERT_TRUE(queue);
  verbs::SendQueue& sends = **queue;
  EXPECT_FALSE(sends.has_room(17));
  ASSERT_TRUE(sends.has_room(16));
  fake::world().hold = true;
  ibv_ah_attr attributes{};
  verbs::AddressHandle way(ibv_create_ah(pd.get(), &attributes));
  sends.begin_frame(way.get(), 5);
  sends.begin_frame(way.get(), 5);
  EXPECT_EQ(sends.ring(), 0);
  sends.completed(1, false);
  const TimePoint start(std::chrono::seconds(9));
  EXPECT_FALSE(sends.has_room(1));
  EXPECT_FALSE(sends.revive(start));
  EXPECT_FALSE(sends.revive(start + milliseconds(99)));
  EXPECT_TRUE(sends.revive(start + milliseconds(100)));
  EXPECT_EQ(sends.completed(), 2U);
  EXPECT_TRUE(sends.has_room(16));
}

}  // namespace
}  // namespace selmcast::verbs_test
