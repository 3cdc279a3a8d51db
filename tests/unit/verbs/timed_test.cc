// Completions stamped by the device: its counter as time, and queues that carry it.
#include <cerrno>

#include "tests/unit/verbs/support.h"
#include "transport/verbs/completions.h"

namespace selmcast::verbs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DeviceClock, TicksBecomeNanoseconds) {
  verbs::DeviceClock clock(0xFFFF'FFFF, 156'250);  // 6.4 ns a tick
  const std::uint64_t zero = clock.nanoseconds(1000);
  EXPECT_EQ(clock.nanoseconds(1005) - zero, 32U);
  EXPECT_EQ(clock.nanoseconds(1000 + 156'250) - zero, 1'000'000U);
  EXPECT_GT(zero, 0U);
}

TEST(DeviceClock, ACounterThatWrapsGoesOn) {
  verbs::DeviceClock clock(0xFFFF, 1'000'000);  // 16 bits of 1 ns
  const std::uint64_t zero = clock.nanoseconds(0xFFF0);
  EXPECT_EQ(clock.nanoseconds(0x0010) - zero, 0x20U);
  for (std::uint64_t turn = 1; turn < 20; ++turn) {
    EXPECT_EQ(clock.nanoseconds((0x10 + turn * 0x7000) & 0xFFFF) - zero, 0x20 + turn * 0x7000);
  }
}

TEST(DeviceClock, ACompletionThatWasOvertakenIsEarlier) {
  verbs::DeviceClock clock(~std::uint64_t{0}, 1'000'000);
  const std::uint64_t zero = clock.nanoseconds(5);
  EXPECT_EQ(zero - clock.nanoseconds(1), 4U);  // before the counter's own zero would be passed
  EXPECT_EQ(clock.nanoseconds(25) - zero, 20U);
  EXPECT_EQ(clock.nanoseconds(~std::uint64_t{0}) - zero, std::uint64_t{0} - 6);
}

class Timed : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    for (auto& device : fake::world().devices) {
      device.clock_mask = 0xFFF'FFFF;
      device.clock_khz = 500'000;  // 2 ns a tick
    }
  }
  void TearDown() override { expect_nothing_alive("stamps"); }

  static std::unique_ptr<Transport> timed(const std::string& devices) {
    TransportConfig config = config_on(devices);
    config.timestamps = true;
    return open(config);
  }
  /// `rank` with a transport that stamps; what it had registered goes with the old one.
  static void stamp(RankOn& rank, const std::string& devices) {
    rank.region = {};
    rank.transport = timed(devices);
    auto made = rank.transport->register_memory(rank.memory);
    ASSERT_TRUE(made);
    rank.region = std::move(made).value();
  }
  static std::vector<std::uint64_t> stamps(Transport& transport) {
    std::array<Completion, 64> out;
    std::vector<std::uint64_t> found;
    const std::size_t count = transport.poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      if (out[i].kind != Completion::Kind::receive) continue;
      found.push_back(transport.abilities().timestamps->arrival_ns(out[i]));
      const ReceiveRequest back{out[i].token};
      transport.post_receives({&back, 1});
    }
    return found;
  }
};

TEST_F(Timed, FramesTellWhenTheyCameHoweverLateTheyAreSeen) {
  RankOn a("fake0"), b("fake1");
  stamp(b, "fake1");
  EXPECT_NE(b.transport->abilities().timestamps, nullptr);
  EXPECT_EQ(a.transport->abilities().timestamps, nullptr);
  EXPECT_THAT(b.transport->notices(), IsEmpty());
  const auto to_b = a.to(b);
  std::vector<std::uint64_t> want;
  fake::world().ticks = 0xFFF'FF00;  // The counter wraps on the way.
  for (std::uint64_t i = 0; i < 10; ++i) {
    fake::world().ticks += 100 * i;
    want.push_back(2 * (fake::world().ticks - 0xFFF'FF00));
    a.send(Destination::to(to_b), 1, i);
  }
  auto got = stamps(*b.transport);
  ASSERT_EQ(got.size(), 10U);
  const std::uint64_t zero = got.front();
  EXPECT_GT(zero, 0U);
  for (std::uint64_t& one : got) one -= zero;
  EXPECT_EQ(got, want);
}

TEST_F(Timed, WhatWaitFoundKeepsItsTime) {
  RankOn a("fake0"), b("fake1");
  stamp(b, "fake1");
  const auto to_b = a.to(b);
  a.send(Destination::to(to_b), 1, 0);
  fake::world().ticks += 7;
  a.send(Destination::to(to_b), 1, 1);
  b.transport->wait(milliseconds(0));
  fake::world().ticks += 1'000'000;
  const auto got = stamps(*b.transport);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[1] - got[0], 14U);
}

TEST_F(Timed, FailedSendsAreNotReadBeyondTheirStatus) {
  RankOn a("fake0"), b("fake1");
  stamp(a, "fake0");
  const auto to_b = a.to(b);
  bool once = true;
  fake::world().send_status = [&](const ibv_qp&, const ibv_send_wr&) {
    return std::exchange(once, false) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
  };
  a.send(Destination::to(to_b), 1, 0);
  ASSERT_TRUE(pump({&a, &b}, [&] { return !a.done.empty(); }));
  EXPECT_EQ(a.done.front().status, Status::failed);
  ASSERT_TRUE(pump({&a, &b}, [&] {
    a.send(Destination::to(to_b), 2, 1);
    return !b.received.empty();
  }));
  EXPECT_THAT(fake::world().violations, IsEmpty());
}

TEST_F(Timed, AFullBatchIsTakenUpWhereItEnded) {
  RankOn a("fake0"), b("fake1");
  stamp(b, "fake1");
  const auto to_b = a.to(b);
  std::size_t got = 0;
  for (std::uint64_t i = 0; i < 48; ++i) a.send(Destination::to(to_b), 1, i);
  while (got < 48) {
    std::array<Completion, 5> out;
    const std::size_t count = b.transport->poll(out);
    ASSERT_GT(count, 0U);
    ASSERT_LE(count, out.size());
    for (std::size_t i = 0; i < count; ++i) {
      const ReceiveRequest back{out[i].token};
      b.transport->post_receives({&back, 1});
    }
    got += count;
  }
  EXPECT_EQ(got, 48U);
}

TEST_F(Timed, ADeviceWithoutACounterIsNamed) {
  fake::world().devices[0].clock_mask = 0;
  const auto transport = timed("fake0");
  ASSERT_NE(transport, nullptr);
  EXPECT_EQ(transport->abilities().timestamps, nullptr);
  EXPECT_THAT(transport->notices(),
              ElementsAre(HasSubstr("fake0 port 1 GID 1 (::ffff:10.0.0.1) does not stamp")));
  EXPECT_EQ(fake::world().calls["ibv_create_cq_ex"], 0);
}

TEST_F(Timed, ARefusedQueueBecomesAPlainOne) {
  fake::world().fail("ibv_create_cq_ex", 1, EOPNOTSUPP);
  const auto transport = timed("fake0");
  ASSERT_NE(transport, nullptr);
  EXPECT_EQ(transport->abilities().timestamps, nullptr);
  EXPECT_THAT(transport->notices(), ElementsAre(HasSubstr("does not stamp completions")));
}

TEST_F(Timed, SeveralDevicesHaveNoClockInCommon) {
  const auto transport = timed("fake0+fake1");
  ASSERT_NE(transport, nullptr);
  EXPECT_EQ(transport->abilities().timestamps, nullptr);
  EXPECT_THAT(transport->notices(), ElementsAre(HasSubstr("no clock in common")));
}

TEST_F(Timed, AQueueThatFailsIsADeviceThatIsGone) {
  const auto transport = timed("fake0");
  fake::world().fail("ibv_start_poll", 1, EIO);
  std::array<Completion, 4> out;
  EXPECT_EQ(transport->poll(out), 0U);
  EXPECT_THAT(transport->last_error(), HasSubstr("the device is broken or was removed"));
}

TEST_F(Timed, WhatCameBeforeAFailureIsNotLost) {
  RankOn a("fake0"), b("fake1");
  stamp(b, "fake1");
  const auto to_b = a.to(b);
  for (std::uint64_t i = 0; i < 5; ++i) a.send(Destination::to(to_b), 1, i);
  fake::world().fail("ibv_next_poll", 3, EIO);
  EXPECT_EQ(stamps(*b.transport).size(), 3U);
  EXPECT_EQ(b.transport->last_error(), "");
  EXPECT_EQ(stamps(*b.transport).size(), 0U);
  EXPECT_THAT(b.transport->last_error(), HasSubstr("the device is broken or was removed"));
}

}  // namespace
}  // namespace selmcast::verbs_test
