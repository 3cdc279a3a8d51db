// The two sessions against each other and against hand-made frames, over the simulated network.
#include <set>

#include "tests/unit/multicast/sessions.h"

namespace selmcast {
namespace {

using namespace testing_sessions;

TEST_F(Sessions, OneCopyToTwoReceiversArrivesWhole) {
  build(3, 100'001);
  auto group = nodes_[0].transport->join({5}, JoinAs::send_only).value();
  auto one = nodes_[1].transport->join({5}, JoinAs::receiver).value();
  auto two = nodes_[2].transport->join({5}, JoinAs::receiver).value();
  const std::vector<LaneSpec> lanes{{Destination::to(group), {1, 2}, false}};
  begin_receive(1, {0});
  begin_receive(2, {0});
  begin_send(0, lanes);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  for (const Rank r : {1U, 2U}) {
    EXPECT_TRUE(nodes_[r].receiver->done());
    EXPECT_EQ(nodes_[r].receiver->state(0), SenderState::complete);
    EXPECT_EQ(nodes_[r].merged[0], nodes_[0].data);
    EXPECT_EQ(nodes_[0].sender->state(r), ReceiverState::acked);
  }
  // 70 frames: 100 001 bytes and a header each, once.
  EXPECT_EQ(nodes_[0].port->counters().first_bytes, 100'001U + 70 * 40);
  EXPECT_EQ(nodes_[0].port->counters().repair_bytes, 0U);
}

// A stream of one chunk leaves in one piece, so its rate shows in the distance between rounds only.
TEST_F(Sessions, SmallStreamsKeepTheRateFromRoundToRound) {
  build(2, 3000);
  constexpr Kbps kRate = 1000;
  constexpr std::uint32_t kRounds = 10;
  // Three frames, each with 40 bytes of header and what build() states for the network's.
  const auto wire = transmission_time(3000 + 3 * (40 + 42), kRate);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  const TimePoint begun = now();
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    begin_send(0, lanes, round, kRate);
    begin_receive(1, {0}, round);
    ASSERT_TRUE(run([&] { return nodes_[0].sender->done() && nodes_[1].receiver->done(); }));
  }
  EXPECT_GE(now() - begun, (kRounds - 1) * wire);
  EXPECT_LE(now() - begun, kRounds * wire);
}

// Senders in rounds of their own: each is heard at its own, and credit may come first.
TEST_F(Sessions, FreeSendersAreHeardAtTheirOwnRounds) {
  free_running_ = true;
  build(3, 50'000);
  const std::vector<LaneSpec> from_0{unicast(0, 2)}, from_1{unicast(1, 2)};
  ReceiveSession& receiver = *nodes_[2].receiver;
  EXPECT_EQ(receiver.opened(0), std::nullopt);
  receiver.open(now(), 0, 7);
  receiver.open(now(), 1, 3);
  EXPECT_EQ(receiver.opened(0), 7U);
  begin_send(0, from_0, 7);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  EXPECT_EQ(nodes_[2].merged[0], nodes_[0].data);
  EXPECT_EQ(receiver.state(0), SenderState::complete);
  EXPECT_EQ(receiver.state(1), SenderState::hearing);
  EXPECT_EQ(receiver.unsettled(), 1U);
  receiver.open(now(), 0, 9);
  begin_send(1, from_1, 3);
  begin_send(0, from_0, 9);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done() && nodes_[1].sender->done(); }));
  EXPECT_EQ(nodes_[2].merged[1], nodes_[1].data);
  EXPECT_EQ(receiver.matched(), 3U);
  EXPECT_EQ(receiver.counters().payload_bytes, 3 * 50'000U);
}

// A sender that computes for long is no suspect while it answers; when it falls silent it is.
TEST_F(Sessions, AFreeSenderMayTakeItsTimeToBegin) {
  free_running_ = true;
  build(2, 50'000);
  ReceiveSession& receiver = *nodes_[1].receiver;
  receiver.open(now(), 0, 0);
  EXPECT_FALSE(run([&] { return receiver.done(); }, 20 * kTimeout));
  EXPECT_EQ(receiver.state(0), SenderState::hearing);
  nodes_[0].silent = true;
  ASSERT_TRUE(run([&] { return receiver.done(); }, 2 * kTimeout));
  EXPECT_EQ(receiver.state(0), SenderState::silent);
}

TEST_F(Sessions, ARoundThatTheSenderEndedWithoutUsIsOverAndAnswered) {
  free_running_ = true;
  build(2, 50'000);
  ReceiveSession& receiver = *nodes_[1].receiver;
  receiver.open(now(), 0, 0);
  receiver.supersede(0);
  EXPECT_EQ(receiver.state(0), SenderState::evicted_us);
  EXPECT_EQ(receiver.unsettled(), 0U);
  receiver.open(now(), 0, 2);
  // It did not end after all: the receiver says that it gave up.
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_send(0, lanes, 0);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::gave_up);
  begin_send(0, lanes, 2);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::acked);
}

TEST_F(Sessions, HeavyLossIsRepaired) {
  SimLink link;
  link.loss = 0.3;
  build(2, 300'000, link);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_receive(1, {0});
  begin_send(0, lanes);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  EXPECT_EQ(nodes_[1].merged[0], nodes_[0].data);
  EXPECT_GT(nodes_[0].port->counters().repaired_frames, 50U);
}

/// The bytes [first, end) of what was sent arrived where they belong, and nothing else did.
void expect_part(const std::vector<std::byte>& got, const std::vector<std::byte>& sent,
                 std::size_t first, std::size_t end) {
  ASSERT_EQ(got.size(), sent.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto want = i >= first && i < end ? sent[i] : std::byte{0};
    ASSERT_EQ(got[i], want) << "byte " << i;
  }
}

TEST_F(Sessions, EachReceiverGetsItsShardOnly) {
  SimLink link;
  link.loss = 0.1;
  build(4, 100'001, link);  // 70 frames of 1432 bytes: shards begin at 0, 23 and 46.
  std::vector<LaneSpec> lanes;
  for (std::uint32_t s = 0; s < 3; ++s) {
    lanes.push_back(unicast(0, s + 1));
    lanes.back().shard = {s, 3};
    const std::vector<Shard> shards{{s, 3}};
    senders_[s + 1] = {0};
    nodes_[s + 1].receiver->begin(now(), 1, 0, senders_[s + 1], shape_.bytes, shards);
  }
  nodes_[0].sender.reset();
  nodes_[0].sender =
      std::make_unique<SendSession>(*nodes_[0].port, SendSettings{shape_, 42, kTimeout, 3});
  begin_send(0, lanes);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  constexpr std::size_t kCuts[] = {0, 23 * 1432, 46 * 1432, 100'001};
  for (std::uint32_t s = 0; s < 3; ++s) {
    EXPECT_EQ(nodes_[s + 1].receiver->state(0), SenderState::complete);
    EXPECT_EQ(nodes_[s + 1].receiver->matched(), 1U);
    expect_part(nodes_[s + 1].merged[0], nodes_[0].data, kCuts[s], kCuts[s + 1]);
  }
  EXPECT_EQ(nodes_[0].port->counters().first_bytes, 100'001U + 70 * 40);
}

TEST_F(Sessions, AShardWithoutFramesIsSettledByItsTail) {
  build(2, 1000);  // One frame: of two shards the first has none.
  std::vector<LaneSpec> lanes{unicast(0, 1)};
  lanes[0].shard = {0, 2};
  const std::vector<Shard> shards{{0, 2}};
  senders_[1] = {0};
  nodes_[1].receiver->begin(now(), 1, 0, senders_[1], shape_.bytes, shards);
  begin_send(0, lanes);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done() && nodes_[1].receiver->done(); }));
  EXPECT_EQ(nodes_[1].receiver->matched(), 1U);
  EXPECT_EQ(nodes_[0].port->counters().first_bytes, 0U);
}

TEST_F(Sessions, FramesOfAnotherShardAreRefused) {
  build(2, 100'001);
  std::vector<LaneSpec> lanes{unicast(0, 1)};  // Sends all,
  const std::vector<Shard> shards{{1, 2}};     // and only the second half is wanted.
  senders_[1] = {0};
  nodes_[1].receiver->begin(now(), 1, 0, senders_[1], shape_.bytes, shards);
  begin_send(0, lanes);
  run([&] { return nodes_[1].receiver->digest_mismatch().has_value(); }, milliseconds(500));
  EXPECT_EQ(nodes_[1].verdicts[Verdict::malformed], 35);
  EXPECT_TRUE(nodes_[1].receiver->digest_mismatch().has_value());
}

TEST_F(Sessions, RoundsOfDifferentSizesFollowOneAnother) {
  build(2, 100'001);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  std::uint32_t round = 0;
  for (const std::size_t bytes : {100'001U, 8U, 1432U, 1433U, 100'000U, 3000U}) {
    Node& node = nodes_[0];
    nodes_[1].merged.clear();
    senders_[1] = {0};
    // Credit of the next round comes while the sender is in this one, of another size.
    nodes_[1].receiver->begin(now(), 1, round, senders_[1], bytes);
    EXPECT_FALSE(run([] { return false; }, milliseconds(3)));
    node.sender->begin(now(), 1, round, std::span(node.data).first(bytes), node.region.id(), lanes,
                       1'000'000);
    ASSERT_TRUE(run([&] { return node.sender->done() && nodes_[1].receiver->done(); }));
    EXPECT_EQ(nodes_[1].receiver->matched(), 1U);
    expect_part(nodes_[1].merged[0], node.data, 0, bytes);
    ++round;
  }
}

TEST_F(Sessions, NothingIsSentBeforeTheReceiverIsInTheRound) {
  build(2, 50'000);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_send(0, lanes);
  EXPECT_FALSE(run([&] { return nodes_[0].port->counters().first_bytes > 0; }, milliseconds(500)));
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::waiting);
  begin_receive(1, {0});
  EXPECT_TRUE(run([&] { return nodes_[0].sender->done(); }));
}

TEST_F(Sessions, CreditThatComesFirstIsKept) {
  build(2, 50'000);
  begin_receive(1, {0});
  EXPECT_FALSE(run([] { return false; }, milliseconds(5)));
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_send(0, lanes);
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::active);
  EXPECT_TRUE(run([&] { return nodes_[0].sender->done(); }, milliseconds(50)));
}

TEST_F(Sessions, ASilentReceiverIsEvictedAfterTheTimeout) {
  build(2, 50'000);
  begin_receive(1, {0});
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_send(0, lanes);
  nodes_[1].silent = true;
  const TimePoint begin = now();
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }, 2 * kTimeout));
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::evicted);
  EXPECT_GE(now() - begin, kTimeout);
}

TEST_F(Sessions, ASilentSenderIsGivenUpAfterTheTimeout) {
  build(2, 50'000);
  begin_receive(1, {0});
  nodes_[0].silent = true;
  ASSERT_TRUE(run([&] { return nodes_[1].receiver->done(); }, 2 * kTimeout));
  EXPECT_EQ(nodes_[1].receiver->state(0), SenderState::silent);
}

TEST_F(Sessions, ASenderThatLivesButSendsNothingIsGivenUpAfterThreeTimesTheTimeout) {
  build(2, 50'000);
  begin_receive(1, {0});
  const TimePoint begin = now();
  ASSERT_TRUE(run([&] { return nodes_[1].receiver->done(); }, 5 * kTimeout));
  EXPECT_EQ(nodes_[1].receiver->state(0), SenderState::silent);
  EXPECT_GE(now() - begin, 3 * kTimeout);
}

TEST_F(Sessions, ASlowLinkIsNoReasonToEvictAnybody) {
  // 70 frames at 100 kbit/s take more than eight seconds, the timeout is one.
  build(2, 100'000);
  const std::vector<LaneSpec> lanes{unicast(0, 1)};
  begin_receive(1, {0});
  Node& node = nodes_[0];
  node.sender->begin(now(), 1, 0, node.data, node.region.id(), lanes, 100);
  const TimePoint begin = now();
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done(); }));
  EXPECT_GT(now() - begin, seconds(7));
  EXPECT_EQ(nodes_[0].sender->state(1), ReceiverState::acked);
  EXPECT_EQ(nodes_[1].merged[0], nodes_[0].data);
}

TEST_F(Sessions, ADroppedPeerIsOwedNothing) {
  build(3, 50'000);
  begin_receive(1, {0, 2});
  const std::vector<LaneSpec> lanes{unicast(0, 1), unicast(0, 2)};
  begin_send(0, lanes);
  nodes_[0].sender->drop(2);
  nodes_[1].receiver->drop(2);
  ASSERT_TRUE(run([&] { return nodes_[0].sender->done() && nodes_[1].receiver->done(); }));
  EXPECT_EQ(nodes_[0].sender->state(2), ReceiverState::lost);
  EXPECT_EQ(nodes_[1].receiver->state(2), SenderState::lost);
  EXPECT_EQ(nodes_[1].merged[0], nodes_[0].data);
}

TEST_F(Sessions, AWrongDigestFailsTheRoundByName) {
  build(2, 1000);
  begin_receive(1, {0});
  FrameHeader header{
      .job = kJob, .sender = 0, .epoch = 1, .check = payload_check(nodes_[0].data), .length = 1000};
  EXPECT_EQ(nodes_[1].receiver->on_data(header, nodes_[0].data, now()), Verdict::fresh);
  const std::uint64_t right = frame_digest(header);
  header = FrameHeader{.kind = FrameKind::tail,
                       .job = kJob,
                       .sender = 0,
                       .epoch = 1,
                       .offset = 1000,
                       .flags = frame_flag::kFinal};
  std::array<std::byte, 8> digest;
  store_le(digest.data(), right + 1);
  nodes_[1].receiver->on_control(header, digest, now());
  EXPECT_EQ(nodes_[1].receiver->digest_mismatch(), std::optional<Rank>(0));
}

TEST_F(Sessions, FramesThatDoNotFitAreRefused) {
  build(3, 3000);
  begin_receive(1, {0});
  auto& receiver = *nodes_[1].receiver;
  const std::vector<std::byte> payload(1432);
  const auto verdict = [&](auto change) {
    FrameHeader header{.job = kJob, .sender = 0, .epoch = 1, .length = 1432};
    header.check = payload_check(payload);
    change(header);
    return receiver.on_data(header, std::span(payload).first(header.length), now());
  };
  EXPECT_EQ(verdict([](auto& h) { h.offset = 8; }), Verdict::malformed);
  EXPECT_EQ(verdict([](auto& h) { h.offset = 2864; }),
            Verdict::malformed);  // Last frame: 136 bytes.
  EXPECT_EQ(verdict([](auto& h) { h.offset = 4296; }), Verdict::malformed);
  EXPECT_EQ(verdict([](auto& h) { h.offset = ~0ULL; }), Verdict::malformed);
  EXPECT_EQ(verdict([](auto& h) { h.length = 100; }), Verdict::malformed);
  EXPECT_EQ(verdict([](auto& h) { h.stream = 1; }), Verdict::malformed);
  EXPECT_EQ(verdict([](auto& h) { h.round = 1; }), Verdict::stale);
  EXPECT_EQ(verdict([](auto& h) { h.epoch = 2; }), Verdict::stale);
  EXPECT_EQ(verdict([](auto& h) { h.sender = 2; }), Verdict::foreign);
  EXPECT_EQ(verdict([](auto&) {}), Verdict::fresh);
  EXPECT_EQ(verdict([](auto&) {}), Verdict::duplicate);
}

TEST_F(Sessions, ACorruptPayloadIsAsGoodAsLost) {
  build(2, 3000);
  begin_receive(1, {0});
  auto& receiver = *nodes_[1].receiver;
  const auto sent = std::span<const std::byte>(nodes_[0].data).subspan(1432, 1432);
  const FrameHeader header{.job = kJob,
                           .sender = 0,
                           .epoch = 1,
                           .check = payload_check(sent),
                           .offset = 1432,
                           .length = 1432};
  std::vector<std::byte> arrived(sent.begin(), sent.end());
  for (const std::size_t at : {std::size_t{0}, std::size_t{700}, std::size_t{1431}}) {
    arrived[at] ^= std::byte{0x10};
    EXPECT_EQ(receiver.on_data(header, arrived, now()), Verdict::corrupt) << at;
    arrived[at] ^= std::byte{0x10};
  }
  EXPECT_EQ(receiver.counters().corrupt, 3U);
  EXPECT_EQ(receiver.counters().payload_bytes, 0U);
  EXPECT_EQ(receiver.on_data(header, arrived, now()), Verdict::fresh) << "it can still arrive";
}

// Its payload is whole, so that only the digest can tell.
TEST_F(Sessions, AFrameReplayedAtAnotherPlaceFailsTheRound) {
  build(2, 2864);
  begin_receive(1, {0});
  auto& receiver = *nodes_[1].receiver;
  const auto first = std::span<const std::byte>(nodes_[0].data).first(1432);
  const auto second = std::span<const std::byte>(nodes_[0].data).subspan(1432);
  FrameHeader header{
      .job = kJob, .sender = 0, .epoch = 1, .check = payload_check(first), .length = 1432};
  std::uint64_t right = frame_digest(header);
  EXPECT_EQ(receiver.on_data(header, first, now()), Verdict::fresh);
  header.offset = 1432;
  EXPECT_EQ(receiver.on_data(header, first, now()), Verdict::fresh);
  header.check = payload_check(second);
  right += frame_digest(header);
  const FrameHeader tail{.kind = FrameKind::tail,
                         .job = kJob,
                         .sender = 0,
                         .epoch = 1,
                         .offset = 2864,
                         .flags = frame_flag::kFinal};
  std::array<std::byte, 8> digest;
  store_le(digest.data(), right);
  receiver.on_control(tail, digest, now());
  EXPECT_EQ(receiver.digest_mismatch(), std::optional<Rank>(0));
}

TEST(FrameDigest, EveryPartOfTheHeaderThatItIsMadeOfCounts) {
  const FrameHeader header{.check = 7, .offset = 1432, .length = 1432};
  std::set<std::uint64_t> seen{frame_digest(header)};
  const auto add = [&](auto change) {
    FrameHeader other = header;
    change(other);
    EXPECT_TRUE(seen.insert(frame_digest(other)).second);
  };
  for (int bit = 0; bit < 64; ++bit) add([=](auto& h) { h.offset ^= std::uint64_t{1} << bit; });
  for (int bit = 0; bit < 32; ++bit) add([=](auto& h) { h.check ^= 1U << bit; });
  for (int bit = 0; bit < 16; ++bit) {
    add([=](auto& h) { h.length = static_cast<std::uint16_t>(h.length ^ (1U << bit)); });
  }
}

}  // namespace
}  // namespace selmcast
