// Frames that lie in their sender's memory: how they are cut, and when that memory may change.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/wire.h"
#include "bench/null_transport.h"
#include "multicast/received_frames.h"
#include "multicast/send_session.h"

namespace selmcast {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kJob = 9;

/// Three frames of 16 bytes of payload, the last one shorter, as they come in place.
struct Receive {
  Receive() : body(40), heads(3 * kFrameHeaderBytes) {
    for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i);
    for (std::uint32_t f = 0; f < 3; ++f) {
      const auto payload = std::span<const std::byte>(body).subspan(f * 16, f == 2 ? 8 : 16);
      const FrameHeader header{.job = kJob,
                               .offset = f * std::uint64_t{16},
                               .length = static_cast<std::uint16_t>(payload.size())};
      encode_frame(header, payload, heads.data() + f * kFrameHeaderBytes);
    }
    completion.kind = Completion::Kind::receive;
    completion.data = heads.data();
    completion.bytes = static_cast<std::uint32_t>(heads.size());
    completion.frame_bytes = kFrameHeaderBytes + 16;
    completion.body = body.data();
    completion.head_bytes = kFrameHeaderBytes;
    completion.body_bytes = static_cast<std::uint32_t>(body.size());
  }
  std::vector<ParsedFrame> frames() const {
    std::vector<ParsedFrame> out;
    each_frame(completion, kJob, [&](const ParsedFrame& frame) { out.push_back(frame); });
    return out;
  }

  std::vector<std::byte> body, heads;
  Completion completion;
};

TEST(ReceivedFrames, BodiesInPlaceAreCutAsTheyWereSent) {
  const Receive receive;
  const auto frames = receive.frames();
  ASSERT_EQ(frames.size(), 3U);
  for (std::size_t f = 0; f < 3; ++f) {
    EXPECT_EQ(frames[f].error, FrameError::none);
    EXPECT_EQ(frames[f].header.offset, 16 * f);
    EXPECT_EQ(frames[f].payload.data(), receive.body.data() + 16 * f);
    EXPECT_EQ(frames[f].payload.size(), f == 2 ? 8U : 16U);
  }
}

TEST(ReceivedFrames, FramesBackToBackAreTheSame) {
  const Receive in_place;
  std::vector<std::byte> all;
  for (std::size_t f = 0; f < 3; ++f) {
    const auto* const head = in_place.heads.data() + f * kFrameHeaderBytes;
    all.insert(all.end(), head, head + kFrameHeaderBytes);
    const auto* const payload = in_place.body.data() + 16 * f;
    all.insert(all.end(), payload, payload + (f == 2 ? 8 : 16));
  }
  Receive copied;
  copied.completion.data = all.data();
  copied.completion.bytes = static_cast<std::uint32_t>(all.size());
  copied.completion.head_bytes = copied.completion.body_bytes = 0;
  const auto one = in_place.frames(), other = copied.frames();
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t f = 0; f < one.size(); ++f) {
    EXPECT_EQ(other[f].error, FrameError::none);
    EXPECT_EQ(one[f].header, other[f].header);
    EXPECT_TRUE(std::equal(one[f].payload.begin(), one[f].payload.end(), other[f].payload.begin(),
                           other[f].payload.end()));
  }
}

TEST(ReceivedFrames, HeadsOfAnotherSizeAreNoFramesOfOurs) {
  Receive receive;
  receive.completion.head_bytes = kFrameHeaderBytes / 2;
  EXPECT_TRUE(receive.frames().empty());
}

/// Notes which peers' memory was withdrawn; a peer's endpoint is numbered as it was connected.
class Noting final : public NullTransport, private ReadInPlace {
 public:
  Noting() { abilities_.in_place = this; }
  Result<Endpoint> connect(const PeerAddress&) override { return Endpoint(this, next_++); }
  void withdraw(EndpointId peer) noexcept override { withdrawn.push_back(peer); }

  std::vector<EndpointId> withdrawn;

 private:
  EndpointId next_ = 1;  ///< Of rank 1.
};

class Withdrawing : public testing::Test {
 protected:
  Withdrawing() : data(4000) {
    port = FramePort::make(transport, {kJob, 0, 3, transport.capabilities().max_frame_bytes, 4})
               .value();
    for (const Rank rank : {1U, 2U}) EXPECT_TRUE(port->connect(rank, {}));
    session.emplace(
        *port, SendSettings{
                   .shape = {data.size(), 1000, 4}, .timeout = milliseconds(100), .lanes_max = 2});
    for (const Rank rank : {1U, 2U}) lanes.push_back({port->destination(rank), {rank}});
    session->begin(now, 1, 0, data, 0, lanes, 1'000'000'000);
  }
  void control(FrameKind kind, Rank from, std::uint16_t flags = 0) {
    session->on_control({.kind = kind,
                         .job = kJob,
                         .sender = from,
                         .epoch = 1,
                         .offset = kind == FrameKind::credit ? data.size() : 0,
                         .flags = flags},
                        {}, now);
  }

  Noting transport;
  std::unique_ptr<FramePort> port;
  std::vector<std::byte> data;
  std::optional<SendSession> session;
  std::vector<LaneSpec> lanes;
  TimePoint now{milliseconds(1)};
};

TEST_F(Withdrawing, WhoHasEverythingOrWantsNothingMayStillReadIt) {
  for (const Rank rank : {1U, 2U}) control(FrameKind::credit, rank);
  session->progress(now);
  control(FrameKind::ack, 1);
  control(FrameKind::ack, 2, frame_flag::kGaveUp);
  EXPECT_EQ(session->state(2), ReceiverState::gave_up);
  EXPECT_TRUE(transport.withdrawn.empty());
}

TEST_F(Withdrawing, WhoIsEvictedReadsNothingMore) {
  for (const Rank rank : {1U, 2U}) control(FrameKind::credit, rank);
  session->progress(now);
  control(FrameKind::ack, 1);
  // Alive, but without progress: twice the timeout.
  for (int i = 0; i < 30 && session->state(2) != ReceiverState::evicted; ++i) {
    now += milliseconds(10);
    session->note_alive(2, now);
    session->progress(now);
    port->flush();
    std::array<Completion, 64> done;
    const std::size_t count = transport.poll(done);
    for (std::size_t c = 0; c < count; ++c) port->on_send_completion(done[c]);
    EXPECT_EQ(transport.withdrawn.empty(), session->state(2) != ReceiverState::evicted);
  }
  EXPECT_EQ(session->state(2), ReceiverState::evicted);
  EXPECT_EQ(transport.withdrawn, std::vector<EndpointId>{2});
}

TEST_F(Withdrawing, AfterAFailureNobodyReadsAnythingMore) {
  port->withdraw_all();
  EXPECT_EQ(transport.withdrawn, (std::vector<EndpointId>{1, 2}));
  port->withdraw_all();
  EXPECT_EQ(transport.withdrawn.size(), 2U);
}

}  // namespace
}  // namespace selmcast
