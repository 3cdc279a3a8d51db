#include "transport/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <filesystem>
#include <thread>

#include "base/random.h"
#include "tests/unit/transport/shm_support.h"
#include "transport/shm/shm_ring.h"
#include "transport/shm/shm_segment.h"

namespace selmcast::test {
namespace {

/// Two ranks of this process, connected both ways, with a page of registered memory each.
class ShmPair : public testing::Test {
 protected:
  ShmPair() : a(open_test_shm(0, 2)), b(open_test_shm(1, 2)), memory(shm::kRequestMax + 64) {
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i] = static_cast<std::byte>(i * 31 % 251);
    a_to_b = connect_test(*a.transport, b.transport->address());
    b_to_a = connect_test(*b.transport, a.transport->address());
    auto registered = a.transport->register_memory(memory);
    EXPECT_TRUE(registered);
    region = std::move(*registered);
  }
  LocalSlice slice(std::uint32_t bytes, std::uint32_t from = 0) const {
    return {memory.data() + from, bytes, region.id()};
  }

  Node a;
  Node b;
  std::vector<std::byte> memory;
  Endpoint a_to_b;
  Endpoint b_to_a;
  Region region;
};

TEST_F(ShmPair, RequestArrivesWholeWithItsCut) {
  EXPECT_EQ(a.send(Destination::to(a_to_b), slice(20'000), 8'000, 5).accepted, 1U);
  a.poll();
  ASSERT_EQ(a.sent.size(), 1U);
  EXPECT_EQ(a.sent[0].user, 5U);
  EXPECT_EQ(a.sent[0].status, Status::ok);
  b.poll();
  ASSERT_EQ(b.arrived.size(), 1U);
  EXPECT_EQ(b.arrived[0].frame_bytes, 8'000U);
  ASSERT_EQ(b.arrived[0].bytes.size(), 20'000U);
  EXPECT_EQ(std::memcmp(b.arrived[0].bytes.data(), memory.data(), 20'000), 0);
  EXPECT_EQ(a.transport->counters().sent_frames, 3U);
  EXPECT_EQ(a.transport->counters().sent_bytes, 20'000U);
  EXPECT_EQ(b.transport->counters().received_frames, 3U);
  EXPECT_EQ(b.transport->counters().received_bytes, 20'000U);
}

TEST_F(ShmPair, SlicesAreGatheredInOrder) {
  const LocalSlice slices[] = {slice(3, 100), slice(0, 0), slice(5, 7)};
  const SendRequest request{Destination::to(a_to_b), slices, 0, 1};
  EXPECT_EQ(a.transport->post_sends({&request, 1}).accepted, 1U);
  b.poll();
  ASSERT_EQ(b.arrived.size(), 1U);
  std::vector<std::byte> expected(memory.begin() + 100, memory.begin() + 103);
  expected.insert(expected.end(), memory.begin() + 7, memory.begin() + 12);
  EXPECT_EQ(b.arrived[0].bytes, expected);
  EXPECT_EQ(b.arrived[0].frame_bytes, 8U);
}

TEST_F(ShmPair, ErrorsOfARequestComeAsItsCompletion) {
  std::vector<std::byte> foreign(10);
  const LocalSlice cases[] = {
      slice(shm::kFrameMax + 1),                            // one frame, too large
      {foreign.data(), 10, region.id()},                    // another memory
      {memory.data(), 10, region.id() + 1},                 // no such region
      {memory.data() + memory.size() - 4, 5, region.id()},  // reaches past the region
  };
  const Status expected[] = {Status::oversize, Status::not_registered, Status::not_registered,
                             Status::not_registered};
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(a.send(Destination::to(a_to_b), cases[i], 0, i).accepted, 1U);
  }
  a.send(Destination::to(a_to_b), slice(shm::kRequestMax + 1), 100, 4);
  a.send(Destination::to(a_to_b), slice(10), shm::kFrameMax + 1, 5);
  a.send({Destination::Kind::endpoint, 99}, slice(10), 0, 6);
  a.send({Destination::Kind::group, 99}, slice(10), 0, 7);
  a.poll();
  ASSERT_EQ(a.sent.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(a.sent[i].user, i);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(a.sent[i].status, expected[i]) << i;
  EXPECT_EQ(a.sent[4].status, Status::oversize);
  EXPECT_EQ(a.sent[5].status, Status::oversize);
  EXPECT_EQ(a.sent[6].status, Status::closed);
  EXPECT_EQ(a.sent[7].status, Status::closed);
  b.poll();
  EXPECT_TRUE(b.arrived.empty());
  region.reset();
  a.send(Destination::to(a_to_b), slice(10), 0, 8);
  a.poll();
  EXPECT_EQ(a.sent.back().status, Status::not_registered);
}

TEST_F(ShmPair, FullRingIsBackpressureAndNothingIsLost) {
  b.hold = true;
  std::uint32_t posted = 0;
  while (a.send(Destination::to(a_to_b), slice(60'000), 8'000, posted).state ==
         PostState::accepted) {
    ++posted;
    ASSERT_LE(posted, 4U) << "a ring of 256 KiB cannot hold five requests of 60 000 bytes";
  }
  EXPECT_EQ(posted, 4U);
  ASSERT_TRUE(b.until([&] { return b.held.size() == 4; }));
  EXPECT_EQ(a.send(Destination::to(a_to_b), slice(60'000), 8'000).accepted, 0U) << "lent, not free";
  b.give_back(b.held[1]);
  EXPECT_EQ(a.send(Destination::to(a_to_b), slice(60'000), 8'000).accepted, 0U)
      << "the ring's space is reclaimed in order";
  b.give_back(b.held[0]);
  EXPECT_EQ(a.send(Destination::to(a_to_b), slice(60'000), 8'000).accepted, 1U);
  ASSERT_TRUE(b.until([&] { return b.arrived.size() == 5; }));
  for (const Arrived& one : b.arrived) {
    ASSERT_EQ(one.bytes.size(), 60'000U);
    EXPECT_EQ(std::memcmp(one.bytes.data(), memory.data(), 60'000), 0);
  }
}

TEST_F(ShmPair, SendDepthIsBackpressureUntilPolled) {
  const std::uint32_t depth = a.transport->capabilities().send_depth;
  std::vector<SendRequest> requests(depth + 3);
  const LocalSlice one = slice(8);
  for (auto& request : requests) request = {Destination::to(a_to_b), {&one, 1}, 0, 0};
  const auto outcome = a.transport->post_sends(requests);
  EXPECT_EQ(outcome.accepted, depth);
  EXPECT_EQ(outcome.state, PostState::backpressure);
  a.poll();
  EXPECT_EQ(a.transport->post_sends(std::span(requests).first(1)).accepted, 1U);
}

TEST_F(ShmPair, ReceiveSlotsRunOutWithoutLoss) {
  b.hold = true;
  const std::uint32_t slots = b.transport->capabilities().receive_buffers;
  for (std::uint32_t i = 0; i < slots + 10; ++i) {
    ASSERT_EQ(a.send(Destination::to(a_to_b), slice(8, i % 100), 0).accepted, 1U);
    a.poll();
  }
  for (int i = 0; i < 300; ++i) b.poll();
  EXPECT_EQ(b.arrived.size(), slots);
  for (const auto token : b.held) b.give_back(token);
  b.held.clear();
  EXPECT_TRUE(b.until([&] { return b.arrived.size() == slots + 10; }));
  for (std::uint32_t i = 0; i < slots + 10; ++i) {
    EXPECT_EQ(std::memcmp(b.arrived[i].bytes.data(), memory.data() + i % 100, 8), 0) << i;
  }
}

TEST_F(ShmPair, PeerThatClosedInGoodOrderIsNotLost) {
  ASSERT_EQ(a.send(Destination::to(a_to_b), slice(8)).accepted, 1U);
  b_to_a.reset();
  b.transport.reset();
  EXPECT_EQ(a.send(Destination::to(a_to_b), slice(8), 0, 2).accepted, 1U);
  EXPECT_FALSE(a.until([&] { return !a.lost.empty(); }, 50ms));
  ASSERT_EQ(a.sent.size(), 2U);
  EXPECT_EQ(a.sent[1].status, Status::closed);
  EXPECT_EQ(a.transport->last_error(), "");
}

TEST_F(ShmPair, EndpointThatWasClosedRefusesAndCanBeMadeAgain) {
  const Destination old = Destination::to(a_to_b);
  a_to_b.reset();
  a.send(old, slice(8), 0, 1);
  a.poll();
  ASSERT_EQ(a.sent.size(), 1U);
  EXPECT_EQ(a.sent[0].status, Status::closed);
  a_to_b = connect_test(*a.transport, b.transport->address());
  a.send(Destination::to(a_to_b), slice(8), 0, 2);
  a.send(old, slice(8), 0, 3);
  a.poll();
  EXPECT_EQ(a.sent[1].status, Status::ok);
  EXPECT_EQ(a.sent[2].status, Status::closed) << "an id is not given twice";
  EXPECT_TRUE(b.until([&] { return b.arrived.size() == 1; }));
}

TEST_F(ShmPair, WakeEndsAWaitOfAnotherThreadAndTheNextOne) {
  a.transport->wake();
  const auto start = std::chrono::steady_clock::now();
  a.transport->wait(20s);
  std::thread waker([&] {
    std::this_thread::sleep_for(20ms);
    a.transport->wake();
  });
  a.transport->wait(20s);
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_F(ShmPair, WaitLastsAsLongAsAskedAndNoLonger) {
  const auto start = std::chrono::steady_clock::now();
  a.transport->wait(30ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 30ms);
  a.transport->wait(0ms);
  a.send(Destination::to(a_to_b), slice(8));
  a.transport->wait(20s);  // The send completion is there.
  b.transport->wait(20s);  // So is the frame.
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_F(ShmPair, TwoThreadsSleepingAtBothEndsLoseNothing) {
  constexpr std::uint32_t kMessages = 20'000;
  std::thread sender([&] {
    SplitMix64 random(9);
    for (std::uint32_t i = 0; i < kMessages;) {
      const auto bytes = static_cast<std::uint32_t>(1 + random.below(30'000));
      while (a.send(Destination::to(a_to_b), slice(bytes, i % 64), 8'192).accepted == 0) {
        a.poll();
        if (a.send(Destination::to(a_to_b), slice(bytes, i % 64), 8'192).accepted == 1) break;
        a.transport->wait(1s);
      }
      ++i;
      a.poll();
      a.sent.clear();
    }
  });
  SplitMix64 random(9);
  std::uint32_t seen = 0;
  const TimePoint deadline = SteadyClock().now() + 60s;
  while (seen < kMessages && SteadyClock().now() < deadline) {
    b.poll();
    for (const Arrived& one : b.arrived) {
      const auto bytes = static_cast<std::uint32_t>(1 + random.below(30'000));
      ASSERT_EQ(one.bytes.size(), bytes) << seen;
      ASSERT_EQ(std::memcmp(one.bytes.data(), memory.data() + seen % 64, bytes), 0) << seen;
      ++seen;
    }
    if (b.arrived.empty()) b.transport->wait(1s);
    b.arrived.clear();
  }
  sender.join();
  EXPECT_EQ(seen, kMessages);
}

TEST_F(ShmPair, ConnectRefusesWhatDoesNotFit) {
  const auto refused = [](Transport& from, const PeerAddress& to, const char* word) {
    const auto result = from.connect(to);
    ASSERT_FALSE(result) << word;
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  };
  refused(*a.transport, b.transport->address(), "already connected");
  refused(*a.transport, PeerAddress{}, "not one of this backend");
  auto other_job = open_shm(shm_config(1, 2, 78));
  refused(*a.transport, (*other_job)->address(), "job 78");
  auto other_world = open_shm(shm_config(1, 3));
  refused(*a.transport, (*other_world)->address(), "3 ranks");
  auto same_rank = open_test_shm(0, 2);
  refused(*same_rank, b.transport->address(), "its own rank");

  auto decoded = shm::decode_address(b.transport->address());
  ASSERT_TRUE(decoded);
  auto third = open_test_shm(0, 2);
  auto changed = *decoded;
  changed.boot ^= 1U;
  refused(*third, shm::encode_address(changed), "another host");
  changed = *decoded;
  changed.start_time += 1;
  refused(*third, shm::encode_address(changed), "gone");
  changed = *decoded;
  changed.nonce ^= 1U;
  refused(*third, shm::encode_address(changed), "another transport");
  changed = *decoded;
  changed.fd = 999'999;
  refused(*third, shm::encode_address(changed), "gone");
  changed = *decoded;
  changed.ring_bytes *= 2;
  refused(*third, shm::encode_address(changed), "not the one announced");
  changed.ring_bytes = 12'345;
  refused(*third, shm::encode_address(changed), "12345");
  PeerAddress cut = b.transport->address();
  --cut.size;
  refused(*third, cut, "not one of this backend");
}

TEST_F(ShmPair, SegmentCannotBeShrunk) {
  const auto decoded = shm::decode_address(b.transport->address());
  ASSERT_TRUE(decoded);
  const std::string path = "/proc/self/fd/" + std::to_string(decoded->fd);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(fd);
  EXPECT_NE(::ftruncate(fd.get(), 0), 0);
}

/// Maps the rings that `at` receives into, as a hostile process of the same user could.
shm::PeerSegment attack(const PeerAddress& at, Rank as) {
  const auto target = shm::decode_address(at);
  EXPECT_TRUE(target);
  auto own = *target;
  own.rank = as;
  auto mapped = shm::map_peer(own, *target);
  EXPECT_TRUE(mapped);
  return std::move(*mapped);
}

TEST_F(ShmPair, NonsenseInARingIsALostPeerAndNothingWorse) {
  ASSERT_EQ(a.send(Destination::to(a_to_b), slice(100)).accepted, 1U);
  ASSERT_TRUE(b.until([&] { return b.arrived.size() == 1; }));
  const auto hostile = attack(b.transport->address(), 0);
  const shm::RecordHeader nonsense{~0U, 1, 0, 0, 0};
  for (std::uint32_t at = 0; at < shm::kRingBytesMin; at += shm::kLine) {
    std::memcpy(hostile.ring.data() + at, &nonsense, sizeof nonsense);
  }
  ASSERT_EQ(a.send(Destination::to(a_to_b), slice(0)).accepted, 1U);
  auto& tail = hostile.control(0).tail;
  tail.store(tail.load() + shm::kLine);
  ASSERT_TRUE(b.until([&] { return !b.lost.empty(); }));
  EXPECT_EQ(b.lost[0].user, b_to_a.id());
  EXPECT_EQ(b.lost[0].status, Status::peer_lost);
  EXPECT_NE(b.transport->last_error().find("rank 0"), std::string::npos);
  EXPECT_FALSE(b.until([&] { return b.lost.size() > 1; }, 30ms)) << "lost is said once";
}

TEST_F(ShmPair, NonsenseFromAReceiverIsALostPeer) {
  const auto hostile = attack(b.transport->address(), 0);
  hostile.control(0).head.store(1ULL << 40U);
  for (int i = 0; i < 10; ++i) a.send(Destination::to(a_to_b), slice(60'000), 8'000);
  ASSERT_TRUE(a.until([&] { return !a.lost.empty(); }));
  a.send(Destination::to(a_to_b), slice(8), 0, 1234);
  a.poll();
  EXPECT_EQ(a.sent.back().user, 1234U);
  EXPECT_EQ(a.sent.back().status, Status::peer_lost);
}

TEST(ShmOpen, RefusesBadNumbers) {
  const auto message = [](Rank rank, std::uint32_t world, std::uint32_t ring) {
    const auto opened = open_shm(shm_config(rank, world), {ring});
    EXPECT_FALSE(opened);
    return opened ? std::string() : opened.error().message;
  };
  EXPECT_NE(message(0, 0, 1U << 20U).find("world size 0"), std::string::npos);
  EXPECT_NE(message(0, 257, 1U << 20U).find("257"), std::string::npos);
  EXPECT_NE(message(4, 4, 1U << 20U).find("rank 4"), std::string::npos);
  EXPECT_NE(message(0, 4, 1000).find("1000"), std::string::npos);
}

TEST(ShmOpen, RankCanTalkToItself) {
  Node node(open_test_shm(0, 1));
  const Endpoint self = connect_test(*node.transport, node.transport->address());
  const std::vector<std::byte> memory(100, std::byte{4});
  auto region = node.transport->register_memory(memory);
  ASSERT_TRUE(region);
  node.send(Destination::to(self), {memory.data(), 100, region->id()});
  ASSERT_TRUE(node.until([&] { return node.arrived.size() == 1; }));
  EXPECT_EQ(node.arrived[0].bytes, memory);
}

TEST(ShmOpen, ClosesEveryDescriptorAndMapping) {
  const auto count = [] {
    std::size_t fds = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      ++fds;
    return fds;
  };
  const auto before = count();
  for (int i = 0; i < 3; ++i) {
    Node a(open_test_shm(0, 2));
    Node b(open_test_shm(1, 2));
    const Endpoint there = connect_test(*a.transport, b.transport->address());
    const Endpoint back = connect_test(*b.transport, a.transport->address());
  }
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace selmcast::test
