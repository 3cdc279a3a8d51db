// Measurements on devices that fail, and what they leave behind.
#include "tests/unit/verbs/support.h"
#include "tools/perf/engines.h"
#include "tools/perf/rig.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;

class Perf : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    settings.op = perf::Op::multicast;
    settings.device = "fake0";
    settings.size = 1024;
    settings.depth = 16;
    settings.signal_every = 4;
    settings.group = 0xEF010203;
  }
  void TearDown() override { expect_nothing_alive("a measurement"); }
  Result<perf::Rig> rig(bool serves) { return perf::Rig::make(settings, serves); }
  static TimePoint later() { return SteadyClock().now() + std::chrono::seconds(20); }

  perf::Settings settings;
};

TEST_F(Perf, AServerDetachesFromItsGroup) {
  auto made = rig(true);
  ASSERT_TRUE(made) << made.error().message;
  const perf::Rig moved = std::move(made).value();
  EXPECT_EQ(fake::world().alive(fake::Object::membership), 1);
}

TEST_F(Perf, AGroupThatCannotBeAttachedLeavesNothing) {
  fake::world().fail("ibv_attach_mcast", 1, ENOMEM);
  EXPECT_FALSE(rig(true));
}

TEST_F(Perf, AQueueThatCannotBePolledBreaksWhoReceives) {
  auto made = rig(true);
  ASSERT_TRUE(made) << made.error().message;
  perf::Sink sink(*made, settings);
  ASSERT_EQ(sink.post_all(), 0);
  sink.start(1);
  sink.expect(1);
  fake::world().fail("ibv_poll_cq", 1, EIO, 1'000'000);
  EXPECT_EQ(sink.run(later()), perf::Slice::broken);
  EXPECT_THAT(perf::text_of(sink.fault()), HasSubstr("Input/output error"));
}

TEST_F(Perf, AQueueThatCannotBePolledBreaksWhoSends) {
  auto made = rig(false);
  ASSERT_TRUE(made) << made.error().message;
  const auto addressed = made->address_group(settings);
  ASSERT_TRUE(addressed);
  perf::Flood flood(*made, settings, nullptr);
  flood.start(1, 8);
  fake::world().fail("ibv_poll_cq", 1, EIO, 1'000'000);
  EXPECT_EQ(flood.run(later()), perf::Slice::broken);
  EXPECT_THAT(perf::text_of(flood.fault()), HasSubstr("Input/output error"));
}

}  // namespace
}  // namespace selmcast::verbs_test
