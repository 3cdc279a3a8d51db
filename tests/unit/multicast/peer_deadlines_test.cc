// When a peer is overdue: on the numbers alone, and by sessions that share them.
#include "multicast/peer_deadlines.h"

#include "tests/unit/multicast/sessions.h"

namespace selmcast {
namespace {

using namespace testing_sessions;

constexpr TimePoint kStart{seconds(100)};

TEST(PeerDeadlines, SilenceCountsOneTimeout) {
  auto deadlines = PeerDeadlines::of_senders(2, kTimeout);
  deadlines.wait_for(1, kStart);
  EXPECT_EQ(deadlines.expires(1), kStart + kTimeout);
  deadlines.note_alive(1, kStart + kTimeout / 2);
  EXPECT_EQ(deadlines.expires(1), kStart + kTimeout * 3 / 2);
  EXPECT_FALSE(deadlines.silent(1, kStart + kTimeout));
  EXPECT_TRUE(deadlines.silent(1, kStart + kTimeout * 3 / 2));
}

TEST(PeerDeadlines, WhoIsHeardHasTwoTimeoutsAsAReceiverAndThreeAsASender) {
  auto receivers = PeerDeadlines::of_receivers(2, kTimeout);
  auto senders = PeerDeadlines::of_senders(2, kTimeout);
  const TimePoint late = kStart + 10 * kTimeout;
  for (auto* deadlines : {&receivers, &senders}) {
    deadlines->wait_for(1, kStart);
    deadlines->note_alive(1, late);
  }
  EXPECT_EQ(receivers.expires(1), kStart + 2 * kTimeout);
  EXPECT_EQ(senders.expires(1), kStart + 3 * kTimeout);
  receivers.progressed(1, kStart + 9 * kTimeout);
  senders.progressed(1, kStart + 9 * kTimeout);
  EXPECT_EQ(receivers.expires(1), kStart + 11 * kTimeout);
  EXPECT_EQ(senders.expires(1), kStart + 11 * kTimeout);  // By silence: 12 by progress.
}

TEST(PeerDeadlines, AnotherStreamDoesNotGiveAPeerMoreTime) {
  auto deadlines = PeerDeadlines::of_receivers(3, kTimeout);
  deadlines.wait_for(1, kStart);
  deadlines.wait_for(2, kStart + kTimeout);
  deadlines.wait_for(1, kStart + kTimeout / 2);
  deadlines.release(1);
  deadlines.wait_for(1, kStart + kTimeout * 3 / 4);
  EXPECT_EQ(deadlines.expires(1), kStart + kTimeout);
  EXPECT_EQ(deadlines.expires(2), kStart + 2 * kTimeout);
  deadlines.release(1);
  deadlines.release(1);
  deadlines.wait_for(1, kStart + 5 * kTimeout);
  EXPECT_EQ(deadlines.expires(1), kStart + 6 * kTimeout);
}

TEST(PeerDeadlines, APeerIsGivenUpInOneRound) {
  auto deadlines = PeerDeadlines::of_receivers(2, kTimeout);
  EXPECT_FALSE(deadlines.given_up(1, 0, 0));
  deadlines.give_up(1, 3, 7);
  EXPECT_TRUE(deadlines.given_up(1, 3, 7));
  EXPECT_FALSE(deadlines.given_up(1, 3, 8));
  EXPECT_FALSE(deadlines.given_up(1, 4, 7));
  EXPECT_FALSE(deadlines.given_up(0, 3, 7));
}

// Layers that are handed over later in a round would otherwise wait a timeout each for a dead rank.
TEST_F(Sessions, AStreamThatBeginsLaterDoesNotWaitForAReceiverThatWasGivenUp) {
  build(2, 50'000);
  Node& node = nodes_[0];
  auto deadlines = PeerDeadlines::of_receivers(2, kTimeout);
  SendSettings settings{shape_, 42, kTimeout};
  settings.deadlines = &deadlines;
  node.sender = std::make_unique<SendSession>(*node.port, settings);
  settings.stream = 1;
  SendSession later(*node.port, settings);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_send(0, lanes);
  nodes_[1].silent = true;
  const TimePoint begin = now();
  ASSERT_TRUE(run([&] { return node.sender->done(); }, 2 * kTimeout));
  EXPECT_EQ(now() - begin, kTimeout);
  later.begin(now(), 1, 0, node.data, node.region.id(), lanes, 1'000'000);
  EXPECT_EQ(later.state(1), ReceiverState::evicted);
  EXPECT_TRUE(later.done());
  later.begin(now(), 1, 1, node.data, node.region.id(), lanes, 1'000'000);
  EXPECT_EQ(later.state(1), ReceiverState::waiting);
}

// One stream hears nothing while another of the same sender moves, for seven timeouts; when that
// one has ended, the first has three timeouts more.
TEST_F(Sessions, AStreamLivesOnTheProgressOfItsSendersOtherStreams) {
  build(2, 100'000);
  Node& to = nodes_[1];
  auto deadlines = PeerDeadlines::of_senders(2, kTimeout);
  ReceiveSettings settings;
  settings.shape = shape_;
  settings.timeout = kTimeout;
  settings.window_bytes = settings.sender_window_bytes = 64 * 1472;
  settings.deadlines = &deadlines;
  to.receiver = std::make_unique<ReceiveSession>(*to.port, settings);
  settings.stream = 1;
  ReceiveSession waiting(*to.port, settings);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  const std::vector<Rank> senders{0};
  begin_receive(1, {0});
  waiting.begin(now(), 1, 0, senders, shape_.bytes);
  begin_send(0, lanes, 0, 100);  // 70 frames at 100 kbit/s take more than seven seconds.
  const auto both = [&] {
    waiting.progress(now());
    return to.receiver->done();
  };
  ASSERT_TRUE(run(both));
  EXPECT_GT(now().time_since_epoch(), 7 * kTimeout);
  EXPECT_EQ(to.receiver->state(0), SenderState::complete);
  EXPECT_EQ(waiting.state(0), SenderState::hearing);
  const TimePoint last = now();
  const auto heard = [&] {
    waiting.note_alive(0, now());  // ALIVE, again and again.
    waiting.progress(now());
    return waiting.done();
  };
  begin_receive(1, {0}, 1);  // So that there is something to run: credit, asked for and answered.
  ASSERT_TRUE(run(heard, 5 * kTimeout));
  EXPECT_EQ(waiting.state(0), SenderState::silent);
  EXPECT_GE(now() - last, 3 * kTimeout - milliseconds(200));
  EXPECT_LE(now() - last, 3 * kTimeout + milliseconds(50));
}

}  // namespace
}  // namespace selmcast
