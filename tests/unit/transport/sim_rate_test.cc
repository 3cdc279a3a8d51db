// Times on the simulated network against closed forms.
#include <gtest/gtest.h>

#include "tests/unit/transport/sim_rig.h"

namespace selmcast::test {
namespace {

TimePoint at(Duration since_start) {
  return TimePoint(since_start);
}

TEST(SimRate, TransmitSideSerialisesFrameByFrame) {
  // 958 + 42 = 1000 wire bytes at 8 Mbit/s: 1 ms each, whether 1 request of 10 or 10 of 1.
  SimRig rig(even_links(2, {.tx_kbps = 8'000, .delay = 250us}));
  ASSERT_TRUE(rig.send(0, 1, 9'580, 958));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(rig.send(0, 1, 958));
  rig.run();
  ASSERT_EQ(rig.arrivals[1].size(), 20U);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(rig.arrivals[1][static_cast<std::size_t>(i)].at, at((i + 1) * 1ms + 250us)) << i;
  EXPECT_EQ(rig.net.wire_bytes_sent(0), 20'000U);
  EXPECT_EQ(rig.net.wire_bytes_received(1), 20'000U);
  EXPECT_EQ(rig.net.wire_bytes_received(0), 0U);
}

TEST(SimRate, SendCompletesWhenTheLastFrameHasLeft) {
  SimRig rig(even_links(2, {.tx_kbps = 8'000, .delay = 1s}));
  ASSERT_TRUE(rig.send(0, 1, 9'580, 958, 77));
  rig.run(at(10ms - 1ns));
  EXPECT_TRUE(rig.sends[0].empty());
  rig.run(at(10ms));
  ASSERT_EQ(rig.sends[0].size(), 1U);
  EXPECT_EQ(rig.sends[0][0].user, 77U);
  EXPECT_TRUE(rig.arrivals[1].empty());
}

TEST(SimRate, ReceiveSideSerialisesBehindAnInfinitelyFastSender) {
  SimRig rig(even_links(2, {.rx_kbps = 8'000, .delay = 10us}));
  ASSERT_TRUE(rig.send(0, 1, 9'580, 958));
  rig.run();
  ASSERT_EQ(rig.arrivals[1].size(), 10U);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(rig.arrivals[1][static_cast<std::size_t>(i)].at, at((i + 1) * 1ms + 10us)) << i;
}

TEST(SimRate, SlowerSideRulesAndStoreAndForwardAddsOneFrame) {
  // tx 1 ms and rx 4 ms a frame: the last of n arrives at 1 ms + n * 4 ms; swapped: n * 4 + 1 ms.
  for (const bool slow_receiver : {true, false}) {
    SimConfig config = even_links(2, {.delay = 0us});
    config.links[0].tx_kbps = slow_receiver ? 8'000 : 2'000;
    config.links[1].rx_kbps = slow_receiver ? 2'000 : 8'000;
    SimRig rig(config);
    ASSERT_TRUE(rig.send(0, 1, 958 * 12, 958));
    rig.run();
    ASSERT_EQ(rig.arrivals[1].size(), 12U);
    EXPECT_EQ(rig.arrivals[1].back().at, at(49ms));
  }
}

TEST(SimRate, RoundsEachFrameUpToANanosecond) {
  // 100 + 42 bytes at 3 Gbit/s: 378.67 ns.
  SimRig rig(even_links(2, {.tx_kbps = 3'000'000, .delay = 0us}));
  ASSERT_TRUE(rig.send(0, 1, 1'000, 100));
  rig.run();
  EXPECT_EQ(rig.elapsed(), 10 * transmission_time(142, 3'000'000));
  EXPECT_EQ(rig.elapsed(), 3'790ns);
}

TEST(SimRate, SendersShareAReceiversPort) {
  // Three senders of 5 frames each, all at once: the port needs 15 frame times whoever goes first.
  SimRig rig(even_links(4, {.rx_kbps = 8'000, .delay = 0us}));
  for (std::size_t from = 1; from < 4; ++from) ASSERT_TRUE(rig.send(from, 0, 958 * 5, 958));
  rig.run();
  EXPECT_EQ(rig.arrivals[0].size(), 15U);
  EXPECT_EQ(rig.elapsed(), 15ms);
}

TEST(SimRate, MulticastCostsTheSenderOneCopy) {
  SimRig rig(even_links(9, {.tx_kbps = 8'000, .delay = 5us}));
  std::vector<Membership> members;
  for (std::size_t r = 1; r < 9; ++r)
    members.push_back(std::move(rig.ranks[r]->join({4}, JoinAs::receiver)).value());
  const auto sender = std::move(rig.ranks[0]->join({4}, JoinAs::send_only)).value();
  ASSERT_TRUE(rig.send(0, Destination::to(sender), 9'580, 958));
  rig.run();
  EXPECT_EQ(rig.elapsed(), 10ms + 5us);
  EXPECT_EQ(rig.net.wire_bytes_sent(0), 10'000U);
  for (std::size_t r = 1; r < 9; ++r) {
    EXPECT_EQ(rig.arrivals[r].size(), 10U);
    EXPECT_EQ(rig.net.wire_bytes_received(static_cast<Rank>(r)), 10'000U);
  }
}

TEST(SimRate, OverheadCountsOnTheWireOnly) {
  SimConfig config = even_links(2, {.tx_kbps = 8, .delay = 0us});
  config.wire_overhead_bytes = 0;
  SimRig rig(config);
  ASSERT_TRUE(rig.send(0, 1, 3));
  rig.run();
  EXPECT_EQ(rig.elapsed(), 3ms);
  EXPECT_EQ(rig.ranks[0]->counters().sent_bytes, 3U);
}

TEST(SimRate, TailDropKeepsWhatFitsTheQueue) {
  // 20 frames of 1000 wire bytes arrive at once before a port that holds 7 (the frame being
  // serialised counts until its last bit has left).
  SimRig rig(even_links(2, {.rx_kbps = 8'000, .delay = 0us, .queue_bytes = 7'999}));
  ASSERT_TRUE(rig.send(0, 1, 958 * 20, 958));
  rig.run();
  EXPECT_EQ(rig.arrivals[1].size(), 7U);
  EXPECT_EQ(rig.net.tail_dropped_frames(1), 13U);
  EXPECT_EQ(rig.net.wire_bytes_received(1), 7'000U);
  for (std::size_t i = 0; i < 7; ++i)  // The first ones, not any.
    EXPECT_EQ(rig.arrivals[1][i].bytes[0], rig.memory[i * 958]);
  // With the queue drained there is room again.
  ASSERT_TRUE(rig.send(0, 1, 958 * 3, 958));
  rig.run();
  EXPECT_EQ(rig.arrivals[1].size(), 10U);
}

TEST(SimRate, TailDropUnderOverloadPassesThePortsRate) {
  // Offered twice the port's rate for 40 frame times: 20 leave in time, the queue of 4 is full.
  SimRig rig(
      even_links(2, {.tx_kbps = 16'000, .rx_kbps = 8'000, .delay = 0us, .queue_bytes = 4'000}));
  ASSERT_TRUE(rig.send(0, 1, 958 * 40, 958));
  rig.run();
  // Frame i reaches the port at (i + 1) * 0.5 ms. The port is busy from 0.5 ms on, ends a frame
  // each 1 ms after, and at the last arrival (20 ms) has ended 19; 4 places are taken.
  EXPECT_EQ(rig.arrivals[1].size(), 23U);
  EXPECT_EQ(rig.net.tail_dropped_frames(1), 17U);
}

TEST(SimRate, ChangedRateHoldsForFramesThatComeAfterwards) {
  SimRig rig(even_links(2, {.tx_kbps = 8'000, .delay = 0us}));
  ASSERT_TRUE(rig.send(0, 1, 958 * 4, 958));
  rig.run(at(1'500us));  // The second frame is on its way at the old rate.
  rig.net.set_link(0, {.tx_kbps = 4'000, .delay = 0us});
  rig.run();
  ASSERT_EQ(rig.arrivals[1].size(), 4U);
  EXPECT_EQ(rig.arrivals[1][1].at, at(2ms));
  EXPECT_EQ(rig.arrivals[1][2].at, at(4ms));
  EXPECT_EQ(rig.arrivals[1][3].at, at(6ms));
}

TEST(SimRate, ShorterDelayDoesNotOvertake) {
  SimRig rig(even_links(2, {.delay = 1ms}));
  ASSERT_TRUE(rig.send(0, 1, 8));
  rig.run(at(10us));
  rig.net.set_link(1, {.delay = 0us});
  ASSERT_TRUE(rig.send(0, Destination::to(rig.endpoints[0][1]), 9));
  rig.run();
  ASSERT_EQ(rig.arrivals[1].size(), 2U);
  EXPECT_EQ(rig.arrivals[1][0].bytes.size(), 8U);
  EXPECT_EQ(rig.arrivals[1][1].bytes.size(), 9U);
}

TEST(SimRate, JoinTakesEffectAfterTheSettlingTime) {
  SimConfig config = even_links(2, {.delay = 0us});
  config.join_settle = 3ms;
  SimRig rig(config);
  const auto member = std::move(rig.ranks[1]->join({1}, JoinAs::receiver)).value();
  const auto sender = std::move(rig.ranks[0]->join({1}, JoinAs::send_only)).value();
  EXPECT_EQ(rig.ranks[0]->capabilities().join_settle, 3ms);
  ASSERT_TRUE(rig.send(0, Destination::to(sender), 8));
  rig.run(at(3ms));
  EXPECT_TRUE(rig.arrivals[1].empty());
  ASSERT_TRUE(rig.send(0, Destination::to(sender), 8));
  rig.run();
  EXPECT_EQ(rig.arrivals[1].size(), 1U);
}

}  // namespace
}  // namespace selmcast::test
