// No control frame is larger than the job's frames, whatever it has to say: larger ones would not
// leave their host.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "bench/null_transport.h"
#include "multicast/receive_session.h"
#include "multicast/selection_frame.h"
#include "multicast/send_session.h"

namespace selmcast {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kControlJob = 9;

/// Keeps the control frames that are posted. Memory can be read, so that tails are as long as they
/// get.
class ControlRecorder final : public NullTransport, public RemoteReads {
 public:
  ControlRecorder() {
    capabilities_.max_frame_bytes = 9216;
    abilities_.reads = this;
  }
  Result<Region> register_readable(std::span<const std::byte> memory) override {
    return register_memory(memory);
  }
  Result<Region> register_target(std::span<std::byte> memory) override {
    return register_memory(memory);
  }
  bool can_read(EndpointId) noexcept override { return false; }
  PostOutcome post_reads(std::span<const ReadRequest>) noexcept override { return {}; }
  RemoteMemory remote_memory(RegionId, const std::byte* at) const noexcept override {
    return {reinterpret_cast<std::uintptr_t>(at), {7, 8, 9}};
  }
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override {
    for (const SendRequest& request : requests) {
      if (request.frame_bytes != 0) continue;  // Data.
      const LocalSlice& slice = request.slices[0];
      frames.emplace_back(slice.data, slice.data + slice.bytes);
    }
    return NullTransport::post_sends(requests);
  }

  std::vector<std::vector<std::byte>> frames;
};

class ControlFrames : public testing::TestWithParam<std::uint32_t> {
 protected:
  void SetUp() override {
    port_ = FramePort::make(transport_, {.job = kControlJob,
                                         .self = 0,
                                         .world = 2,
                                         .frame_bytes = GetParam(),
                                         .chunk_frames = 4})
                .value();
    ASSERT_TRUE(port_->connect(1, {}));
  }
  void flush() {
    port_->flush();
    std::array<Completion, 64> done;
    for (std::size_t n; (n = transport_.poll(done)) > 0;) {
      for (const Completion& c : std::span(done).first(n)) port_->on_send_completion(c);
    }
  }
  /// Checks the size of all frames since the last call and adds their kinds; NACKed ranges are
  /// counted by first frame.
  void read_posted() {
    for (const auto& bytes : transport_.frames) {
      EXPECT_LE(bytes.size(), GetParam());
      const auto frame = parse_frame(bytes, kControlJob);
      ASSERT_EQ(frame.error, FrameError::none);
      kinds_.insert(frame.header.kind);
      longest_[frame.header.kind] = std::max(longest_[frame.header.kind], bytes.size());
      if (frame.header.kind != FrameKind::nack) continue;
      ++nacks_;
      std::array<NackRange, kControlPayloadMax / kNackRangeBytes> ranges;
      const int count = parse_nack(frame.payload, ~0U, ranges);
      ASSERT_GT(count, 0);
      for (const NackRange& range : std::span(ranges).first(static_cast<std::size_t>(count))) {
        EXPECT_EQ(range.count, 1U);
        ++asked_[range.first];
      }
    }
    transport_.frames.clear();
  }
  StreamShape shape(std::uint32_t frames) const {
    const std::uint32_t payload = (GetParam() - kFrameHeaderBytes) / 8 * 8;
    return {std::uint64_t{frames} * payload, payload, 4};
  }

  ControlRecorder transport_;
  std::unique_ptr<FramePort> port_;
  std::set<FrameKind> kinds_;
  std::map<FrameKind, std::size_t> longest_;
  std::uint32_t nacks_ = 0;
  std::map<std::uint32_t, std::uint32_t> asked_;  ///< Frame -> how often.
};

// Every other frame is missing: as many ranges as there can be.
TEST_P(ControlFrames, ManyGapsAreAskedForInAsManyNacksAsItTakes) {
  constexpr std::uint32_t kFrames = 1401, kGaps = 700;
  const StreamShape stream = shape(kFrames);
  ReceiveSession receiver(*port_, {.shape = stream, .timeout = hours(1)});
  const std::vector<Rank> senders{1};
  const std::vector<std::byte> payload(stream.frame_payload);
  TimePoint now{};
  receiver.begin(now, 1, 0, senders, stream.bytes);
  for (std::uint32_t f = 0; f < kFrames; f += 2) {
    const FrameHeader header{.job = kControlJob,
                             .sender = 1,
                             .epoch = 1,
                             .check = payload_check(payload),
                             .offset = stream.offset_of(f),
                             .length = static_cast<std::uint16_t>(payload.size())};
    ASSERT_EQ(receiver.on_data(header, payload, now), Verdict::fresh);
  }
  const auto run_until = [&](auto done, TimePoint limit) {
    while (!done() && now < limit) {
      now += microseconds(50);
      receiver.progress(now);
      flush();
      read_posted();
    }
    return done();
  };
  // Once each, before any is asked for again; a NACK waits for 0.6 ms at most.
  const std::uint32_t per_nack = std::min(128U, (GetParam() - 40) / 8);
  const std::uint32_t expected = (kGaps + per_nack - 1) / per_nack;
  ASSERT_TRUE(run_until([&] { return nacks_ == expected; }, now + expected * microseconds(700)));
  EXPECT_EQ(asked_.size(), kGaps);
  for (const auto& [frame, times] : asked_) {
    EXPECT_EQ(frame % 2, 1U);
    EXPECT_EQ(times, 1U) << "frame " << frame;
  }
  // Nothing comes: all of them again, 10 ms after the last.
  EXPECT_TRUE(run_until([&] { return nacks_ == 2 * expected; },
                        now + milliseconds(10) + expected * microseconds(700)));
  for (const auto& [frame, times] : asked_) EXPECT_EQ(times, 2U) << "frame " << frame;
}

TEST_P(ControlFrames, WhatSessionsSayFits) {
  const StreamShape stream = shape(3);
  const std::vector<std::byte> data(stream.bytes);
  const std::vector<LaneSpec> lanes{{port_->destination(1), {1}, false, {}}};
  SendSession sender(*port_, {.shape = stream, .timeout = hours(1)});
  ReceiveSession receiver(*port_, {.shape = stream, .timeout = hours(1)});
  const std::vector<Rank> senders{1};
  TimePoint now{};
  const auto turn = [&] {
    now += milliseconds(1);
    sender.progress(now);
    receiver.progress(now);
    flush();
    read_posted();
  };
  const auto tail = [](std::uint32_t round) {
    return FrameHeader{
        .kind = FrameKind::tail, .job = kControlJob, .sender = 1, .epoch = 1, .round = round};
  };
  const std::vector<std::byte> digest(8);
  receiver.begin(now, 1, 1, senders, stream.bytes);  // CREDIT
  receiver.on_control(tail(0), digest, now);         // ACK of a round that is over.
  receiver.on_control(tail(2), digest, now);         // ALIVE
  sender.begin(now, 1, 0, data, 0, lanes, 1'000'000);
  sender.on_control({.kind = FrameKind::credit, .sender = 1, .epoch = 1, .offset = stream.bytes},
                    {}, now);
  for (int i = 0; i < 100; ++i) turn();  // TAIL
  sender.cut(1);                         // EVICT
  turn();
  const std::set<FrameKind> want{FrameKind::credit, FrameKind::tail, FrameKind::ack,
                                 FrameKind::evict, FrameKind::alive};
  EXPECT_EQ(kinds_, want);
  EXPECT_EQ(longest_[FrameKind::tail], kFrameHeaderBytes + 8U + 40U);
}

// Of both frames that list all members: those that are allowed fit, and one more would not.
TEST_P(ControlFrames, SelectionFitsUpToItsLimit) {
  const std::uint32_t most = selection_members_max(GetParam());
  std::vector<std::byte> payload(3 * kControlPayloadMax);
  for (std::uint32_t members = 1; members <= most + 1; ++members) {
    const std::vector<std::uint16_t> marks(members, 7);
    const std::vector<std::uint8_t> chosen(members, 1);
    const std::size_t request = encode_marks(marks, payload);
    EXPECT_EQ(request <= port_->control_payload_max(), members <= most) << members;
    if (members > most) continue;
    ASSERT_TRUE(
        port_->send_control(1, {.kind = FrameKind::request}, std::span(payload).first(request)));
    const std::size_t plan = encode_plan(1'000'000, chosen, payload);
    ASSERT_TRUE(port_->send_control(1, {.kind = FrameKind::plan}, std::span(payload).first(plan)));
    ASSERT_TRUE(port_->send_control(1, {.kind = FrameKind::clock}, {}));
    flush();
    read_posted();
  }
  EXPECT_EQ(longest_[FrameKind::request], kFrameHeaderBytes + 2 * most);
  EXPECT_EQ(longest_[FrameKind::plan], kFrameHeaderBytes + 8 + (most + 7) / 8);
}

// 548: Ethernet packets of 576 bytes; 88: the least there can be.
INSTANTIATE_TEST_SUITE_P(FrameBytes, ControlFrames,
                         testing::Values(88U, 548U, 576U, 1024U, 1472U, 1500U, 4096U, 9000U));

TEST(ControlFrame, FramesWithoutRoomForATailAreRefused) {
  ControlRecorder transport;
  const auto port = FramePort::make(transport, {.world = 2, .frame_bytes = 87});
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(
      port.error().message,
      "frames of 87 bytes are too small for what ranks tell one another, which takes 88; use a "
      "larger MTU");
}

}  // namespace
}  // namespace selmcast
