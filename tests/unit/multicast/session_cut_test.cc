// Receivers that are cut out of a round under way, and rounds that receivers are invited to.
#include "tests/unit/multicast/sessions.h"

namespace selmcast {
namespace {

using namespace testing_sessions;

class CutSessions : public Sessions {
 protected:
  void build_group(std::uint32_t ranks, std::uint64_t bytes, SimLink link = {}) {
    free_running_ = invites_ = true;
    build(ranks, bytes, link);
    members_.push_back(nodes_[0].transport->join({5}, JoinAs::send_only).value());
    lanes_ = {{Destination::to(members_[0]), {}, false, {}}};
    for (Rank r = 1; r < ranks; ++r) {
      members_.push_back(nodes_[r].transport->join({5}, JoinAs::receiver).value());
      lanes_[0].receivers.push_back(r);
    }
  }
  /// Rank 2 is cut out and hears nothing of it for a while.
  void cut_unheard(bool next_round) {
    build_group(3, 300'000);
    for (const Rank r : {1U, 2U}) receiver(r).open(now(), 0, 0);
    network_->partition(0, 2, true);
    begin_send(0, lanes_);
    EXPECT_FALSE(run([&] { return sender().done(); }, milliseconds(20)));
    sender().cut(2);
    ASSERT_TRUE(run([&] { return sender().done(); }));
    lanes_[0].receivers = {1};
    if (next_round) {
      receiver(1).open(now(), 0, 1);
      begin_send(0, lanes_, 1);
      ASSERT_TRUE(run([&] { return sender().done(); }));
    }
    EXPECT_EQ(receiver(2).state(0), SenderState::hearing);
    network_->partition(0, 2, false);
    ASSERT_TRUE(run([&] { return receiver(2).done(); }, kTimeout / 2));
    EXPECT_EQ(receiver(2).state(0), SenderState::evicted_us);
  }
  SendSession& sender() { return *nodes_[0].sender; }
  ReceiveSession& receiver(Rank r) { return *nodes_[r].receiver; }

  std::vector<Membership> members_;  ///< Declared after the nodes: left before they go.
  std::vector<LaneSpec> lanes_;
};

// Rank 2 never opens the round, so the lane stands still until it is cut out.
TEST_F(CutSessions, ARoundGoesOnWithoutTheReceiverThatHeldItUp) {
  build_group(3, 300'000);
  receiver(1).open(now(), 0, 0);
  begin_send(0, lanes_);
  EXPECT_FALSE(run([&] { return sender().done(); }, milliseconds(100)));
  EXPECT_EQ(sender().frames_left(), shape_.frames());
  sender().cut(2);
  EXPECT_EQ(sender().state(2), ReceiverState::cut);
  ASSERT_TRUE(run([&] { return sender().done(); }, milliseconds(100)));
  EXPECT_EQ(sender().frames_left(), 0U);
  EXPECT_EQ(sender().state(1), ReceiverState::acked);
  EXPECT_EQ(sender().state(2), ReceiverState::cut);
  EXPECT_EQ(nodes_[1].merged[0], nodes_[0].data);
}

// Rank 2 hears one frame in two. Once it is cut out nothing is repaired any more, though it was in
// the middle of asking, and it takes the round for over.
TEST_F(CutSessions, WhoIsCutOutIsNotRepairedAnyMore) {
  build_group(3, 3'000'000);
  for (const Rank r : {1U, 2U}) receiver(r).open(now(), 0, 0);
  network_->set_link(2, [] {
    SimLink lossy;
    lossy.loss = 0.5;
    return lossy;
  }());
  begin_send(0, lanes_);
  ASSERT_TRUE(run([&] { return nodes_[0].port->counters().repaired_frames > 0; }));
  sender().cut(2);
  const auto repaired = nodes_[0].port->counters().repaired_frames;
  ASSERT_TRUE(run([&] { return sender().done(); }));
  EXPECT_LE(nodes_[0].port->counters().repaired_frames, repaired + shape_.chunk_frames);
  EXPECT_EQ(nodes_[1].merged[0], nodes_[0].data);
  ASSERT_TRUE(run([&] { return receiver(2).done(); }));
  EXPECT_EQ(receiver(2).state(0), SenderState::evicted_us);
  // The next round has both again.
  network_->set_link(2, {});
  for (const Rank r : {1U, 2U}) receiver(r).open(now(), 0, 1);
  begin_send(0, lanes_, 1);
  ASSERT_TRUE(run([&] { return sender().done(); }));
  EXPECT_EQ(sender().state(2), ReceiverState::acked);
}

// The EVICT is lost: the receiver goes on asking and is told again, also when the sender is in a
// later round.
TEST_F(CutSessions, WhoMissedThatItWasCutOutIsToldAgain) {
  cut_unheard(false);
}
TEST_F(CutSessions, WhoMissedThatItWasCutOutIsToldInTheNextRoundToo) {
  cut_unheard(true);
}

TEST_F(CutSessions, OnlyWhoIsStillOwedSomethingCanBeCutOut) {
  build_group(4, 10'000);
  for (const Rank r : {1U, 2U}) receiver(r).open(now(), 0, 0);
  lanes_[0].receivers = {1, 2};
  begin_send(0, lanes_);
  ASSERT_TRUE(run([&] { return sender().done(); }));
  sender().cut(1);  // Has everything.
  sender().cut(3);  // Is no receiver.
  EXPECT_EQ(sender().state(1), ReceiverState::acked);
  EXPECT_EQ(sender().state(3), ReceiverState::none);
  EXPECT_TRUE(sender().done());
}

// A chunk of eight frames takes 94 ms at the old rate. Right after one of them all the rest leaves
// at the new one, which does not wait for that chunk's time to pass.
TEST_F(CutSessions, ARateChangesInTheMiddleOfARound) {
  build_group(2, 100'000);
  receiver(1).open(now(), 0, 0);
  constexpr Kbps kSlow = 1000;
  begin_send(0, lanes_, 0, kSlow);
  const TimePoint begun = now();
  const auto left = shape_.frames() - 3 * shape_.chunk_frames;
  ASSERT_TRUE(run([&] { return sender().frames_left() == left; }));
  EXPECT_GE(now() - begun, 2 * transmission_time(8 * 1432, kSlow));
  sender().set_rate(1000 * kSlow, now());
  ASSERT_TRUE(run([&] { return sender().done(); }, milliseconds(20)));
}

// No credit before the round is known, so it is the first TAIL that opens it.
TEST_F(CutSessions, AnInvitationGoesOutAtOnce) {
  build_group(2, 10'000);
  begin_send(0, lanes_, 4);
  bool invited = false;
  nodes_[1].silent = true;
  ASSERT_TRUE(run(
      [&] {
        std::array<Completion, 4> some;
        const auto count = nodes_[1].transport->poll(some);
        for (std::size_t i = 0; i < count; ++i) {
          if (some[i].kind != Completion::Kind::receive) continue;
          const auto frame = parse_frame({some[i].data, some[i].bytes}, kJob);
          invited = invited || (frame.header.kind == FrameKind::tail && frame.header.round == 4);
        }
        return invited;
      },
      milliseconds(1)));
}

}  // namespace
}  // namespace selmcast
