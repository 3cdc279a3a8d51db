// Repair by reading: what is fetched, and when it counts.
#include "multicast/read_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "base/random.h"
#include "base/wire.h"

namespace selmcast {
namespace {

/// A transport whose reads copy from this process's memory when the test says so.
class ReadingTransport final : public Transport, public RemoteReads {
 public:
  ReadingTransport() {
    capabilities_.max_frame_bytes = 4096;
    capabilities_.max_request_bytes = 65536;
    capabilities_.max_request_slices = 32;
    capabilities_.send_depth = 8;
    abilities_.reads = this;
  }
  PeerAddress address() const override { return {}; }
  Result<Region> register_memory(std::span<const std::byte>) override { return Region(this, 1); }
  Result<Region> register_readable(std::span<const std::byte>) override { return Region(this, 1); }
  Result<Region> register_target(std::span<std::byte>) override { return Region(this, 2); }
  RemoteMemory remote_memory(RegionId, const std::byte* at) const noexcept override {
    return {reinterpret_cast<std::uintptr_t>(at), {7, 8, 9}};
  }
  Result<Endpoint> connect(const PeerAddress&) override { return Endpoint(this, 5); }
  Result<Membership> join(GroupAddress, JoinAs) override { return Membership(this, 6); }
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override {
    return {static_cast<std::uint32_t>(requests.size()), PostState::accepted};
  }
  PostOutcome post_receives(std::span<const ReceiveRequest>) noexcept override { return {}; }
  bool can_read(EndpointId) noexcept override { return true; }
  PostOutcome post_reads(std::span<const ReadRequest> requests) noexcept override {
    if (reads.size() == room) return {0, PostState::backpressure};
    reads.push_back(requests.front());
    return {1, PostState::accepted};
  }
  std::size_t poll(std::span<Completion>) noexcept override { return 0; }
  void wait(Duration) noexcept override {}
  void wake() noexcept override {}
  TransportCounters counters() const noexcept override { return {}; }
  std::string last_error() const override { return {}; }

  /// Does the read posted first.
  Completion finish(Status status = Status::ok) {
    const ReadRequest request = reads.front();
    reads.pop_front();
    if (status == Status::ok) {
      std::memcpy(request.into, reinterpret_cast<const void*>(request.from.address), request.bytes);
    }
    return {.kind = Completion::Kind::read, .status = status, .user = request.user};
  }

  std::deque<ReadRequest> reads;
  std::size_t room = 64;

 protected:
  void release(detail::HandleKind, std::uint32_t) noexcept override {}
};

constexpr std::uint32_t kPayload = 64, kFrames = 40;
constexpr std::uint64_t kBytes = kPayload * kFrames - 24;  // the last frame is short

class ReadRepairTest : public testing::Test {
 protected:
  void SetUp() override {
    SplitMix64 random(3);
    for (auto& b : data_) b = static_cast<std::byte>(random());
    store_le(tag_.data(), round_tag(2, 9));
    port_ =
        std::move(FramePort::make(transport_, {1, 0, 2, kFrameHeaderBytes + kPayload, 4})).value();
    ASSERT_TRUE(port_->connect(1, {}));
    read_repair_ = std::move(ReadRepair::make(*port_, kPayload)).value();
  }
  RepairRead what() {
    return {.from = 1,
            .epoch = 2,
            .round = 9,
            .stream = 0,
            .shape = {kBytes, kPayload, 4},
            .location = {transport_.remote_memory(1, data_.data()),
                         transport_.remote_memory(1, tag_.data())}};
  }
  std::uint32_t fetch(std::vector<NackRange> gaps) { return read_repair_->fetch(what(), gaps); }
  void finish_all() {
    while (!transport_.reads.empty()) read_repair_->on_completion(transport_.finish());
  }
  /// The frames handed out, each checked against the sender's bytes.
  std::vector<std::uint32_t> delivered() {
    std::vector<std::uint32_t> out;
    read_repair_->deliver([&](const ParsedFrame& frame) {
      EXPECT_EQ(frame.header.kind, FrameKind::data);
      EXPECT_EQ(frame.header.sender, 1U);
      EXPECT_EQ(frame.header.round, 9U);
      EXPECT_EQ(frame.header.length, frame.payload.size());
      EXPECT_TRUE(std::equal(frame.payload.begin(), frame.payload.end(),
                             data_.begin() + static_cast<std::ptrdiff_t>(frame.header.offset)));
      // The transport of this test says nothing of what it checks.
      EXPECT_EQ(frame.header.check, payload_check(frame.payload));
      out.push_back(static_cast<std::uint32_t>(frame.header.offset / kPayload));
    });
    return out;
  }

  std::vector<std::byte> data_ = std::vector<std::byte>(kBytes);
  std::array<std::byte, 8> tag_{};
  ReadingTransport transport_;
  std::unique_ptr<FramePort> port_;
  std::unique_ptr<ReadRepair> read_repair_;
};

TEST_F(ReadRepairTest, FetchesTheGapsAndHandsThemOutOnce) {
  EXPECT_EQ(fetch({{3, 2}, {10, 1}, {kFrames - 1, 1}}), 4U);
  EXPECT_EQ(transport_.reads.size(), 4U);  // three of data, one of the tag
  EXPECT_EQ(transport_.reads.back().bytes, 8U);
  finish_all();
  EXPECT_EQ(delivered(), (std::vector<std::uint32_t>{3, 4, 10, kFrames - 1}));
  EXPECT_TRUE(delivered().empty());
}

TEST_F(ReadRepairTest, NothingCountsBeforeTheTagCame) {
  ASSERT_EQ(fetch({{0, 1}}), 1U);
  read_repair_->on_completion(transport_.finish());
  EXPECT_TRUE(delivered().empty());
  read_repair_->on_completion(transport_.finish());
  EXPECT_EQ(delivered().size(), 1U);
}

TEST_F(ReadRepairTest, NothingCountsWhenTheSenderHasGoneOn) {
  for (const std::uint64_t tag : {std::uint64_t{0}, round_tag(2, 10), round_tag(1, 9)}) {
    store_le(tag_.data(), tag);
    ASSERT_EQ(fetch({{0, 3}}), 3U);
    finish_all();
    EXPECT_TRUE(delivered().empty()) << tag;
  }
  EXPECT_EQ(read_repair_->failed_batches(), 3U);
}

TEST_F(ReadRepairTest, NothingCountsWhenAReadFailed) {
  for (int bad = 0; bad < 3; ++bad) {
    ASSERT_EQ(fetch({{0, 1}, {7, 1}}), 2U);
    for (int i = 0; i < 3; ++i) {
      read_repair_->on_completion(transport_.finish(i == bad ? Status::failed : Status::ok));
    }
    EXPECT_TRUE(delivered().empty()) << "read " << bad;
  }
}

TEST_F(ReadRepairTest, BatchesAreBoundedAndComeBack) {
  EXPECT_EQ(fetch({{0, kFrames}}), ReadRepair::kBatchFrames);
  std::vector<NackRange> many;
  for (std::uint32_t f = 0; f < kFrames; f += 2) many.push_back({f, 1});
  EXPECT_EQ(fetch(many), ReadRepair::kBatchReads);
  EXPECT_EQ(fetch({{1, 1}}), 1U);
  EXPECT_EQ(fetch({{1, 1}}), 1U);
  EXPECT_EQ(fetch({{1, 1}}), 0U);  // kBatches
  finish_all();
  EXPECT_EQ(delivered().size(), ReadRepair::kBatchFrames + ReadRepair::kBatchReads + 2);
  EXPECT_EQ(fetch({{1, 1}}), 1U);
}

TEST_F(ReadRepairTest, AnythingButTheWholeBatchPostedCountsOnlyWithItsTag) {
  transport_.room = 0;
  EXPECT_EQ(fetch({{0, 1}}), 0U);
  transport_.room = 1;  // the data, not the tag
  EXPECT_EQ(fetch({{0, 1}}), 0U);
  finish_all();
  EXPECT_TRUE(delivered().empty());
  transport_.room = 2;  // one gap of two and, once there is room again, no tag: nothing
  EXPECT_EQ(fetch({{0, 1}, {5, 1}, {9, 1}}), 0U);
  finish_all();
  EXPECT_TRUE(delivered().empty());
}

TEST(Snapshot, LocationsAreReadAsWritten) {
  const SnapshotLocation location{{0x0102030405060708U, {1, 2, 3}},
                                  {0x1112131415161718U, {0xFFFFFFFFU, 0, 5}}};
  std::array<std::byte, kLocationBytes> bytes{};
  encode_location(location, bytes);
  EXPECT_EQ(bytes[0], std::byte{0x08});
  EXPECT_EQ(bytes[8], std::byte{1});
  EXPECT_EQ(bytes[20], std::byte{0x18});
  EXPECT_EQ(decode_location(bytes), location);
  for (std::size_t size = 0; size < kLocationBytes; ++size) {
    EXPECT_FALSE(decode_location(std::span(bytes).first(size)));
  }
}

TEST(Snapshot, TagsAreNeverZero) {
  EXPECT_NE(round_tag(1, 0), 0U);
  EXPECT_NE(round_tag(1, 5), round_tag(5, 1));
}

}  // namespace
}  // namespace selmcast
