// Requests, frames, completions, back-pressure, refusals.
#include <algorithm>
#include <map>
#include <numeric>

#include "tests/conformance/fixture.h"

namespace selmcast::conformance {
namespace {

std::vector<std::uint32_t> numbers_of(const std::vector<Label>& labels) {
  std::vector<std::uint32_t> out;
  for (const Label& label : labels) out.push_back(label.number);
  return out;
}

std::vector<std::uint32_t> first_numbers(std::uint32_t count) {
  std::vector<std::uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0U);
  return out;
}

TEST_P(Conformance, CapabilitiesMakeSense) {
  SELMCAST_OPEN_OR_SKIP(2);
  EXPECT_STRNE(caps().name, "");
  EXPECT_GE(caps().max_frame_bytes, 512U);
  EXPECT_GE(caps().max_request_bytes, caps().max_frame_bytes);
  EXPECT_GE(caps().max_request_slices, 2U);
  EXPECT_GE(caps().send_depth, 1U);
  EXPECT_GE(caps().receive_buffers, 2U);
  EXPECT_GE(caps().receive_window_bytes, caps().max_frame_bytes);
  EXPECT_EQ(at(0).last_error(), "");
}

TEST_P(Conformance, EveryPairExchangesAFrame) {
  SELMCAST_OPEN_OR_SKIP(3);
  for (std::uint32_t from = 0; from < 3; ++from)
    for (std::uint32_t peer = 0; peer < 3; ++peer)
      if (from != peer) send(from, to(from, peer), {from, peer, 0});
  ASSERT_TRUE(pump([&] {
    return std::all_of(peers.begin(), peers.end(), [&](const Peer& p) {
      return p.sends.size() == 2 && (p.frames.size() == 2 || !GetParam().clean);
    });
  }));
  pump_quietly();
  for (std::uint32_t r = 0; r < 3; ++r) {
    auto labels = peers[r].labels();
    for (const Label& label : labels) EXPECT_EQ(label.channel, r);
    if (!GetParam().clean) continue;
    ASSERT_EQ(labels.size(), 2U);
    EXPECT_NE(labels[0].source, labels[1].source);
  }
}

TEST_P(Conformance, EachRequestCompletesOnceInOrderOfItsDestination) {
  SELMCAST_OPEN_OR_SKIP(3);
  constexpr std::uint32_t kRequests = 300;
  for (std::uint32_t i = 0; i < kRequests; ++i) send(0, to(0, 1 + i % 2), {0, 1 + i % 2, i});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() >= kRequests; }));
  pump_quietly();
  std::vector<std::uint64_t> even, odd;
  for (const Completion& c : peers[0].sends) {
    EXPECT_EQ(c.status, Status::ok);
    (c.user % 2 == 0 ? even : odd).push_back(c.user);
  }
  ASSERT_EQ(even.size() + odd.size(), kRequests);
  for (std::uint32_t i = 0; i < kRequests / 2; ++i) {
    ASSERT_EQ(even[i], 2 * i);
    ASSERT_EQ(odd[i], 2 * i + 1);
  }
}

TEST_P(Conformance, FramesArriveInTheOrderPosted) {
  SELMCAST_OPEN_OR_SKIP(2);
  if (!ordered()) GTEST_SKIP() << "frames of this backend may be reordered";
  constexpr std::uint32_t kFrames = 1'000;
  for (std::uint32_t i = 0; i < kFrames; ++i) send(0, to(0, 1), {0, 1, i}, 12 + i % 100);
  ASSERT_TRUE(pump([&] { return peers[1].frames.size() >= kFrames; }));
  pump_quietly();
  EXPECT_EQ(numbers_of(peers[1].labels()), first_numbers(kFrames));
}

TEST_P(Conformance, RequestsAreCutIntoFrames) {
  SELMCAST_OPEN_OR_SKIP(2);
  constexpr std::uint32_t kFrame = 120;
  for (const std::uint32_t last : {kFrame, 50U}) {
    peers[1].frames.clear();
    peers[0].sends.clear();
    constexpr std::uint32_t kWhole = 5;
    const std::uint32_t total = kWhole * kFrame + last;
    std::byte* data = peers[0].take(total);
    for (std::uint32_t i = 0; i <= kWhole; ++i)
      write_frame({0, 1, i}, data + std::size_t{i} * kFrame, i < kWhole ? kFrame : last);
    const LocalSlice one = slice(0, data, total);
    post(0, to(0, 1), {&one, 1}, kFrame, 9);
    ASSERT_TRUE(pump([&] {
      return peers[0].sends.size() == 1 && (peers[1].frames.size() == 6 || !GetParam().clean);
    }));
    pump_quietly();
    EXPECT_EQ(peers[0].sends.size(), 1U);
    for (const Frame& frame : peers[1].frames)
      EXPECT_EQ(frame.size(), check_frame(frame).number < kWhole ? kFrame : last);
    if (ordered()) {
      EXPECT_EQ(numbers_of(peers[1].labels()), first_numbers(6));
    }
    if (GetParam().clean) {
      EXPECT_EQ(peers[1].frames.size(), 6U);
    }
  }
}

TEST_P(Conformance, LargestFrameAndLargestRequestPass) {
  SELMCAST_OPEN_OR_SKIP(2);
  const std::uint32_t frame = caps().max_frame_bytes, total = caps().max_request_bytes;
  send(0, to(0, 1), {0, 1, 0}, frame);
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 1; }));
  std::byte* data = peers[0].take(total);
  std::uint32_t frames = 0;
  for (std::uint32_t at = 0; at < total; at += frame) {
    const std::uint32_t bytes = std::min(frame, total - at);
    ASSERT_GE(bytes, kLabelBytes);
    write_frame({0, 1, ++frames}, data + at, bytes);
  }
  const LocalSlice one = slice(0, data, total);
  post(0, to(0, 1), {&one, 1}, frame, 1);
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 2 &&
           (peers[1].frames.size() == 1 + frames || !GetParam().clean);
  }));
  for (const Completion& c : peers[0].sends) EXPECT_EQ(c.status, Status::ok);
  peers[1].labels();
}

TEST_P(Conformance, SlicesAreGathered) {
  SELMCAST_OPEN_OR_SKIP(2);
  // A second region, and slice borders that are not frame borders.
  std::vector<std::byte> other(1'000);
  const auto region = std::move(at(0).register_memory(other)).value();
  constexpr std::uint32_t kFrame = 100, kFrames = 4;
  std::vector<std::byte> whole(kFrame * kFrames);
  for (std::uint32_t i = 0; i < kFrames; ++i)
    write_frame({0, 1, i}, whole.data() + i * kFrame, kFrame);
  const std::uint32_t pieces = std::min(caps().max_request_slices, 8U);
  std::vector<LocalSlice> slices;
  std::uint32_t done = 0, in_other = 0;
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const std::uint32_t bytes = i + 1 == pieces ? kFrame * kFrames - done : 7 + 13 * (i % 3);
    const bool second = i % 2 == 1;
    std::byte* at = second ? other.data() + in_other : peers[0].take(bytes + 5);
    if (second) in_other += bytes;
    std::copy_n(whole.data() + done, bytes, at);
    slices.push_back({at, bytes, second ? region.id() : peers[0].region.id()});
    done += bytes;
  }
  post(0, to(0, 1), slices, kFrame);
  // The span of slices is only read during the post.
  std::fill(slices.begin(), slices.end(), LocalSlice{});
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 1 && (peers[1].frames.size() == kFrames || !GetParam().clean);
  }));
  for (const Frame& frame : peers[1].frames) {
    EXPECT_EQ(frame.size(), kFrame);
    check_frame(frame);
  }
}

TEST_P(Conformance, BackpressureTakesAPrefixAndPasses) {
  SELMCAST_OPEN_OR_SKIP(2);
  const std::uint32_t count = std::min(2 * caps().send_depth + 3, 4'000U);
  constexpr std::uint32_t kBytes = 64;
  std::vector<LocalSlice> slices(count);
  std::vector<SendRequest> requests(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    std::byte* data = peers[0].take(kBytes);
    write_frame({0, 1, i}, data, kBytes);
    slices[i] = slice(0, data, kBytes);
    requests[i] = {to(0, 1), {&slices[i], 1}, 0, i};
  }
  // Nobody polls until the transport refuses: it may then hold send_depth requests, no more.
  std::span<const SendRequest> rest(requests);
  bool refused = false;
  while (!rest.empty() && !refused) {
    const PostOutcome outcome = at(0).post_sends(rest);
    ASSERT_LE(outcome.accepted, rest.size());
    ASSERT_NE(outcome.state, PostState::broken);
    refused = outcome.state == PostState::backpressure;
    ASSERT_EQ(refused, outcome.accepted < rest.size());
    rest = rest.subspan(outcome.accepted);
  }
  ASSERT_TRUE(refused || count <= caps().send_depth);
  if (!GetParam().refuses_at_will) {
    EXPECT_GE(count - rest.size(), 1U);
  }
  EXPECT_LE(count - rest.size(), caps().send_depth);
  ASSERT_TRUE(pump([&] {
    if (!rest.empty()) rest = rest.subspan(at(0).post_sends(rest).accepted);
    return peers[0].sends.size() >= count;
  }));
  ASSERT_TRUE(!ordered() || pump([&] { return peers[1].frames.size() >= count; }));
  pump_quietly();
  ASSERT_EQ(peers[0].sends.size(), count);
  for (std::uint32_t i = 0; i < count; ++i) EXPECT_EQ(peers[0].sends[i].user, i);
  if (ordered()) {
    EXPECT_EQ(numbers_of(peers[1].labels()), first_numbers(count));
  }
}

TEST_P(Conformance, UnregisteredMemoryIsNotSent) {
  SELMCAST_OPEN_OR_SKIP(2);
  std::vector<std::byte> wide(400);
  const auto inner = std::span(wide).subspan(100, 200);
  auto region = std::move(at(0).register_memory(inner)).value();
  auto closed = std::move(at(0).register_memory(wide)).value();
  const RegionId closed_id = closed.id();
  closed.reset();
  const std::vector<LocalSlice> bad{{inner.data() - 1, 50, region.id()},
                                    {inner.data() + 151, 50, region.id()},
                                    {inner.data() + 200, 1, region.id()},
                                    {inner.data(), 201, region.id()},
                                    {inner.data(), ~std::uint32_t{0} / 64, region.id()},
                                    {inner.data(), 50, region.id() + 1'000},
                                    {inner.data(), 50, closed_id},
                                    {peers[0].memory.data(), 50, region.id()}};
  for (std::uint32_t i = 0; i < bad.size(); ++i) {
    // Also as the second slice of an otherwise good request.
    const std::vector<LocalSlice> second{slice(0, peers[0].memory.data(), 20), bad[i]};
    post(0, to(0, 1), {&bad[i], 1}, 20, 2 * i);
    post(0, to(0, 1), second, 20, 2 * i + 1);
  }
  write_frame({0, 1, 7}, inner.data(), 200);
  const LocalSlice good{inner.data(), 200, region.id()};
  post(0, to(0, 1), {&good, 1}, 0, 99);
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 2 * bad.size() + 1; }));
  pump_quietly();
  for (std::size_t i = 0; i + 1 < peers[0].sends.size(); ++i) {
    EXPECT_EQ(peers[0].sends[i].user, i);
    // A huge slice may be refused for its size as well.
    if (i / 2 == 4 && peers[0].sends[i].status == Status::oversize) continue;
    EXPECT_EQ(peers[0].sends[i].status, Status::not_registered) << "bad slice " << i / 2;
  }
  EXPECT_EQ(peers[0].sends.back().status, Status::ok);
  for (const Frame& frame : peers[1].frames) EXPECT_EQ(frame.size(), 200U);
  if (GetParam().clean) {
    EXPECT_EQ(peers[1].frames.size(), 1U);
  }
}

TEST_P(Conformance, OversizeIsRefusedWhole) {
  SELMCAST_OPEN_OR_SKIP(2);
  const Capabilities& c = caps();
  const std::byte* data = peers[0].memory.data();
  const LocalSlice too_long = slice(0, data, c.max_request_bytes + 1);
  const LocalSlice long_frame = slice(0, data, c.max_frame_bytes + 1);
  std::vector<LocalSlice> too_many(c.max_request_slices + 1, slice(0, data, 1));
  post(0, to(0, 1), {&too_long, 1}, c.max_frame_bytes, 0);
  post(0, to(0, 1), {&long_frame, 1}, 0, 1);
  post(0, to(0, 1), {&long_frame, 1}, c.max_frame_bytes + 1, 2);
  post(0, to(0, 1), too_many, 0, 3);
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 4; }));
  pump_quietly();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(peers[0].sends[i].user, i);
    EXPECT_EQ(peers[0].sends[i].status, Status::oversize) << "request " << i;
  }
  EXPECT_TRUE(peers[1].frames.empty());
}

TEST_P(Conformance, RefusedRequestsKeepTheirPlaceAmongOthers) {
  SELMCAST_OPEN_OR_SKIP(2);
  const LocalSlice outside{peers[0].memory.data() + peers[0].memory.size(), 1,
                           peers[0].region.id()};
  constexpr std::uint32_t kRequests = 60;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    if (i % 3 == 1)
      post(0, to(0, 1), {&outside, 1}, 0, i);
    else
      send(0, to(0, 1), {0, 1, i});
  }
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() >= kRequests; }));
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(peers[0].sends[i].user, i);
    EXPECT_EQ(peers[0].sends[i].status, i % 3 == 1 ? Status::not_registered : Status::ok);
  }
}

TEST_P(Conformance, EmptyCallsDoNothing) {
  SELMCAST_OPEN_OR_SKIP(1);
  EXPECT_EQ(at(0).post_sends({}).accepted, 0U);
  EXPECT_EQ(at(0).post_receives({}).state, PostState::accepted);
  EXPECT_EQ(at(0).poll({}), 0U);
}

TEST_P(Conformance, CountersCountFramesAndBytes) {
  SELMCAST_OPEN_OR_SKIP(3);
  std::byte* data = peers[0].take(250);
  for (std::uint32_t i = 0; i < 3; ++i)
    write_frame({0, 1, i}, data + std::size_t{i} * 100, i < 2 ? 100 : 50);
  const LocalSlice one = slice(0, data, 250);
  post(0, to(0, 1), {&one, 1}, 100);
  const auto member1 = join(1, 3, JoinAs::receiver), member2 = join(2, 3, JoinAs::receiver);
  const auto group = join(0, 3, JoinAs::send_only);
  settle();
  send(0, Destination::to(group), {0, 9, 5}, 70);
  const LocalSlice outside{data, 1, peers[0].region.id() + 1'000};
  post(0, to(0, 1), {&outside, 1});  // Refused: counts nothing.
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 3 &&
           (!GetParam().clean || (peers[1].frames.size() == 4 && peers[2].frames.size() == 1));
  }));
  EXPECT_EQ(at(0).counters().sent_frames, 4U);
  EXPECT_EQ(at(0).counters().sent_bytes, 320U);
  EXPECT_EQ(at(0).counters().received_frames, 0U);
  if (!GetParam().clean) return;
  EXPECT_EQ(at(1).counters().received_frames, 4U);
  EXPECT_EQ(at(1).counters().received_bytes, 320U);
  EXPECT_EQ(at(2).counters().received_frames, 1U);
  EXPECT_EQ(at(2).counters().received_bytes, 70U);
  EXPECT_EQ(at(1).counters().dropped_frames, 0U);
}

}  // namespace
}  // namespace selmcast::conformance
