// The UDP backend on the loopback interface, several transports in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/unit/uring/support.h"
#include "transport/uring/udp_address.h"
#include "transport/uring/udp_socket.h"
#include "transport/uring/uring_transport.h"

namespace selmcast {
namespace {

using testing::HasSubstr;

// Of this process: tests of several processes run on one host at the same time.
const std::uint64_t kJob = 0x5E1'0001 + (static_cast<std::uint64_t>(::getpid()) << 32U);

class Uring : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_uring(uring_config(kJob));
    if (!opened && opened.error().kind == ErrorKind::unavailable) {
      GTEST_SKIP() << opened.error().message;
    }
    ASSERT_TRUE(opened) << opened.error().message;
  }
};

PostOutcome post(UringRank& rank, Destination to, std::span<const LocalSlice> slices,
                 std::uint32_t frame_bytes, std::uint64_t user = 0) {
  const SendRequest request{to, slices, frame_bytes, user};
  return rank.transport->post_sends({&request, 1});
}

Status post_and_complete(UringRank& rank, Destination to, std::span<const LocalSlice> slices,
                         std::uint32_t frame_bytes) {
  const std::size_t before = rank.sent.size();
  EXPECT_EQ(post(rank, to, slices, frame_bytes, 77).accepted, 1U);
  EXPECT_TRUE(run_until({&rank}, [&] { return rank.sent.size() > before; }));
  if (rank.sent.size() != before + 1) return Status::failed;
  EXPECT_EQ(rank.sent.back().user, 77U);
  return rank.sent.back().status;
}

/// Everything received, in order, as frames.
std::vector<std::vector<std::byte>> frames_of(const UringRank& rank) {
  std::vector<std::vector<std::byte>> out;
  for (const auto& r : rank.received) {
    for (std::size_t at = 0; at < r.data.size(); at += r.frame_bytes) {
      const auto end = std::min<std::size_t>(r.data.size(), at + r.frame_bytes);
      out.emplace_back(r.data.begin() + static_cast<std::ptrdiff_t>(at),
                       r.data.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  return out;
}

std::size_t received_bytes(const UringRank& rank) {
  std::size_t out = 0;
  for (const auto& r : rank.received) out += r.data.size();
  return out;
}

TEST_F(Uring, CapabilitiesOfLoopback) {
  UringRank rank(kJob);
  const Capabilities& c = rank.transport->capabilities();
  EXPECT_STREQ(c.name, "uring");
  EXPECT_EQ(c.max_frame_bytes, 8972U);  // 9000 - 20 - 8
  EXPECT_EQ(c.max_request_bytes, 65507U);
  EXPECT_EQ(c.wire_overhead_bytes, 42U);
  EXPECT_TRUE(c.replicates_in_network);
  EXPECT_TRUE(c.loses_frames);
  EXPECT_EQ(c.join_settle, Duration{});
  EXPECT_GE(c.receive_window_bytes, 65507U);
  auto small = open_uring(uring_config(kJob, "", 1500));
  ASSERT_TRUE(small);
  EXPECT_EQ((*small)->capabilities().max_frame_bytes, 1472U);
}

TEST_F(Uring, RefusesBadInput) {
  const auto missing = open_uring(uring_config(kJob, "nosuchif0"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(missing.error().message, HasSubstr("nosuchif0"));
  EXPECT_THAT(missing.error().message, HasSubstr("lo"));
  const auto too_long = open_uring(uring_config(kJob, std::string(300, 'x')));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().kind, ErrorKind::bad_input);
  const auto mtu = open_uring(uring_config(kJob, "", 100));
  ASSERT_FALSE(mtu);
  EXPECT_EQ(mtu.error().kind, ErrorKind::bad_input);

  UringRank rank(kJob);
  EXPECT_FALSE(rank.transport->register_memory({}));
  EXPECT_FALSE(rank.transport->connect(PeerAddress{}));
  const auto group = rank.transport->join({kGroupsPerJob}, JoinAs::receiver);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().kind, ErrorKind::bad_input);
}

TEST_F(Uring, UnicastArrivesInOrderFromScatteredSlices) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(100'000, 1);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  std::vector<std::vector<std::byte>> expected;
  for (std::uint32_t i = 0; i < 50; ++i) {
    const std::array<LocalSlice, 3> slices = {
        LocalSlice{memory.data() + i * 997, 33 + i, region->id()},
        LocalSlice{memory.data(), 0, region->id()},
        LocalSlice{memory.data() + 60'000 + i * 11, 700, region->id()}};
    std::vector<std::byte> whole(slices[0].data, slices[0].data + slices[0].bytes);
    whole.insert(whole.end(), slices[2].data, slices[2].data + slices[2].bytes);
    expected.push_back(whole);
    ASSERT_EQ(post(a, Destination::to(*to_b), slices, 0, i).accepted, 1U);
  }
  EXPECT_TRUE(run_until({&a, &b}, [&] { return b.received.size() == 50 && a.sent.size() == 50; }));
  for (std::uint32_t i = 0; i < a.sent.size(); ++i) {
    EXPECT_EQ(a.sent[i].user, i);
    EXPECT_EQ(a.sent[i].status, Status::ok);
  }
  EXPECT_EQ(frames_of(b), expected);
  EXPECT_EQ(a.transport->counters().sent_frames, 50U);
  EXPECT_EQ(b.transport->counters().received_frames, 50U);
  EXPECT_EQ(a.transport->counters().sent_bytes, b.transport->counters().received_bytes);
  EXPECT_EQ(a.transport->last_error(), "");
}

struct Cut {
  std::uint32_t bytes;
  std::uint32_t frame_bytes;
};

class UringSegmentation : public Uring, public testing::WithParamInterface<Cut> {};

TEST_P(UringSegmentation, FramesArriveCutWhereAsked) {
  // No structured binding: clang 14 cannot capture those.
  const std::uint32_t bytes = GetParam().bytes;
  const std::uint32_t frame_bytes = GetParam().frame_bytes;
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(bytes, 2);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice slice{memory.data(), bytes, region->id()};
  ASSERT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, frame_bytes), Status::ok)
      << a.transport->last_error();
  EXPECT_TRUE(run_until({&b}, [&] { return received_bytes(b) == bytes; }));
  std::vector<std::vector<std::byte>> expected;
  for (std::uint32_t at = 0; at < bytes; at += frame_bytes) {
    expected.emplace_back(memory.begin() + at, memory.begin() + std::min(bytes, at + frame_bytes));
  }
  EXPECT_EQ(frames_of(b), expected);
  EXPECT_EQ(a.transport->counters().sent_frames, expected.size());
  EXPECT_EQ(b.transport->counters().received_frames, expected.size());
}

INSTANTIATE_TEST_SUITE_P(Cuts, UringSegmentation,
                         testing::Values(Cut{1, 1}, Cut{2, 1}, Cut{64, 1}, Cut{1000, 1000},
                                         Cut{1001, 1000}, Cut{1999, 1000}, Cut{2000, 1000},
                                         Cut{64'000, 1000}, Cut{63'001, 1000}, Cut{64'768, 1472},
                                         Cut{8972, 8972}, Cut{62'804, 8972}, Cut{65'507, 8972},
                                         Cut{8973, 8972}, Cut{65'507, 1024}));

TEST_F(Uring, RefusesWhatExceedsItsCapabilitiesAndSendsNothing) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(70'000, 3);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const auto status = [&](std::uint32_t bytes, std::uint32_t frame_bytes) {
    const LocalSlice slice{memory.data(), bytes, region->id()};
    return post_and_complete(a, Destination::to(*to_b), {&slice, 1}, frame_bytes);
  };
  EXPECT_EQ(status(65'508, 8972), Status::oversize);
  EXPECT_EQ(status(8973, 0), Status::oversize);
  EXPECT_EQ(status(20'000, 8973), Status::oversize);
  EXPECT_EQ(status(65, 1), Status::oversize);  // 65 frames
  EXPECT_EQ(status(100, 9000), Status::ok);    // one short frame
  const std::vector<LocalSlice> many(129, LocalSlice{memory.data(), 1, region->id()});
  EXPECT_EQ(post_and_complete(a, Destination::to(*to_b), many, 0), Status::oversize);
  const std::vector<LocalSlice> most(128, LocalSlice{memory.data(), 3, region->id()});
  EXPECT_EQ(post_and_complete(a, Destination::to(*to_b), most, 0), Status::ok);
  EXPECT_TRUE(run_until({&b}, [&] { return received_bytes(b) == 100 + 384; }));
  run_for({&a, &b}, std::chrono::milliseconds(20));
  EXPECT_EQ(received_bytes(b), 100U + 384U);
}

TEST_F(Uring, ChecksEverySliceAgainstItsRegion) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(4096, 4);
  auto region = a.transport->register_memory(std::span(memory).subspan(1024, 2048));
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const auto status = [&](std::size_t at, std::uint32_t bytes, RegionId id) {
    const LocalSlice slice{memory.data() + at, bytes, id};
    return post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 0);
  };
  EXPECT_EQ(status(1024, 2048, region->id()), Status::ok);
  EXPECT_EQ(status(3071, 1, region->id()), Status::ok);
  EXPECT_EQ(status(1023, 2, region->id()), Status::not_registered);
  EXPECT_EQ(status(3071, 2, region->id()), Status::not_registered);
  EXPECT_EQ(status(3073, 1, region->id()), Status::not_registered);
  EXPECT_EQ(status(1024, 1, region->id() + 1), Status::not_registered);
  EXPECT_EQ(status(1024, 0xFFFF'FFFFU, region->id()), Status::not_registered);
  const RegionId old = region->id();
  region->reset();
  EXPECT_EQ(status(1024, 1, old), Status::not_registered);
  run_until({&b}, [&] { return received_bytes(b) >= 2049; });
  run_for({&b}, std::chrono::milliseconds(20));
  EXPECT_EQ(received_bytes(b), 2049U);
}

TEST_F(Uring, ClosedDestinationsAreRefusedAlsoAfterReuse) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(100, 5);
  auto region = a.transport->register_memory(memory);
  auto endpoint = a.transport->connect(b.transport->address());
  auto member = a.transport->join({3}, JoinAs::send_only);
  ASSERT_TRUE(region && endpoint && member);
  const LocalSlice slice{memory.data(), 100, region->id()};
  const auto old_endpoint = Destination::to(*endpoint);
  const auto old_member = Destination::to(*member);
  EXPECT_EQ(post_and_complete(a, old_endpoint, {&slice, 1}, 0), Status::ok);
  EXPECT_EQ(post_and_complete(a, old_member, {&slice, 1}, 0), Status::ok);
  endpoint->reset();
  member->reset();
  auto again = a.transport->connect(b.transport->address());
  auto member_again = a.transport->join({3}, JoinAs::send_only);
  ASSERT_TRUE(again && member_again);
  EXPECT_EQ(post_and_complete(a, old_endpoint, {&slice, 1}, 0), Status::closed);
  EXPECT_EQ(post_and_complete(a, old_member, {&slice, 1}, 0), Status::closed);
  EXPECT_EQ(post_and_complete(a, Destination::to(*again), {&slice, 1}, 0), Status::ok);
}

TEST_F(Uring, BackpressureTakesAPrefixAndEveryRequestCompletesOnceInOrder) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(60'000, 6);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice good{memory.data(), 60'000, region->id()};
  const LocalSlice bad{memory.data(), 60'001, region->id()};
  std::vector<SendRequest> requests;
  for (std::uint32_t i = 0; i < 200; ++i) {
    requests.push_back({Destination::to(*to_b), {i % 7 == 3 ? &bad : &good, 1}, 8000, i});
  }
  std::size_t posted = 0;
  bool pressed = false;
  EXPECT_TRUE(run_until({&a, &b}, [&] {
    const auto outcome = a.transport->post_sends(std::span(requests).subspan(posted));
    EXPECT_LE(outcome.accepted, a.transport->capabilities().send_depth);
    posted += outcome.accepted;
    if (posted < requests.size()) {
      EXPECT_EQ(outcome.state, PostState::backpressure);
      pressed = true;
    }
    return a.sent.size() == requests.size();
  }));
  EXPECT_TRUE(pressed);
  for (std::uint32_t i = 0; i < a.sent.size(); ++i) {
    EXPECT_EQ(a.sent[i].user, i);
    EXPECT_EQ(a.sent[i].status, i % 7 == 3 ? Status::not_registered : Status::ok);
  }
}

TEST_F(Uring, APeerThatIsGoneDoesNotBreakSending) {
  UringRank a(kJob);
  UringRank alive(kJob);
  auto gone = std::make_unique<UringRank>(kJob);
  const auto memory = pattern_bytes(1000, 7);
  auto region = a.transport->register_memory(memory);
  auto to_gone = a.transport->connect(gone->transport->address());
  auto to_alive = a.transport->connect(alive.transport->address());
  ASSERT_TRUE(region && to_gone && to_alive);
  gone.reset();
  const LocalSlice slice{memory.data(), 1000, region->id()};
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(post_and_complete(a, Destination::to(*to_gone), {&slice, 1}, 0), Status::ok);
    EXPECT_EQ(post_and_complete(a, Destination::to(*to_alive), {&slice, 1}, 0), Status::ok);
  }
  EXPECT_TRUE(run_until({&a, &alive}, [&] { return alive.received.size() == 20; }));
}

TEST_F(Uring, HeldBuffersStopReceivingAndReturnedOnesResumeIt) {
  UringRank a(kJob);
  UringRank b(kJob);
  b.keep = true;
  const std::uint32_t buffers = b.transport->capabilities().receive_buffers;
  const auto memory = pattern_bytes(500, 8);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice slice{memory.data(), 500, region->id()};
  for (std::uint32_t i = 0; i < buffers + 40; ++i) {
    EXPECT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 0), Status::ok);
  }
  EXPECT_TRUE(run_until({&b}, [&] { return b.received.size() == buffers; }));
  run_for({&b}, std::chrono::milliseconds(20));
  EXPECT_EQ(b.received.size(), buffers);
  b.give_back();
  b.keep = false;
  EXPECT_TRUE(run_until({&b}, [&] { return b.received.size() == buffers + 40; }));
  for (const auto& r : b.received) EXPECT_EQ(r.data, memory);
}

TEST_F(Uring, WindowArrivesWholeAtARankThatIsNotScheduled) {
  UringRank b(kJob);
  const std::uint64_t window = b.transport->capabilities().receive_window_bytes;
  b.step();  // arms; from here on this thread only sleeps in join()
  std::uint64_t posted = 0;
  std::thread sender([&] {
    UringRank a(kJob);
    const auto memory = pattern_bytes(1472, 9);
    auto region = a.transport->register_memory(memory);
    auto to_b = a.transport->connect(b.transport->address());
    ASSERT_TRUE(region && to_b);
    const LocalSlice slice{memory.data(), 1472, region->id()};
    // Single frames are the dearest: each pays the kernel's bookkeeping alone.
    while (posted + 1472 <= window) {
      ASSERT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 0), Status::ok);
      posted += 1472;
    }
  });
  sender.join();
  EXPECT_TRUE(run_until({&b}, [&] { return received_bytes(b) == posted; }));
  EXPECT_EQ(b.transport->counters().dropped_frames, 0U);
}

TEST_F(Uring, DropsForWantOfRoomAreCounted) {
  UringRank b(kJob);
  UringRank a(kJob);
  const auto memory = pattern_bytes(62'804, 10);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice slice{memory.data(), 62'804, region->id()};
  const std::uint64_t requests = b.transport->capabilities().receive_window_bytes * 4 / 62'804;
  // b never entered the ring, so nothing leaves its socket.
  for (std::uint64_t i = 0; i < requests; ++i) {
    ASSERT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 8972), Status::ok);
  }
  const std::uint64_t dropped = b.transport->counters().dropped_frames;
  EXPECT_GT(dropped, 0U);
  EXPECT_TRUE(run_until({&b}, [&] { return b.received.size() == requests - dropped; }))
      << b.received.size() << " received, " << dropped << " dropped of " << requests;
}

TEST_F(Uring, WakeEndsAWaitFromAnotherThread) {
  UringRank a(kJob);
  a.step();
  const auto start = std::chrono::steady_clock::now();
  std::thread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    a.transport->wake();
  });
  a.transport->wait(std::chrono::seconds(20));
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(Uring, WakeBeforeWaitEndsTheNextOneOnly) {
  UringRank a(kJob);
  for (const bool polled : {false, true}) {
    a.transport->wake();
    a.transport->wake();
    if (polled) a.step();
    const auto start = std::chrono::steady_clock::now();
    a.transport->wait(std::chrono::seconds(20));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << polled;
    const auto second = std::chrono::steady_clock::now();
    a.transport->wait(std::chrono::milliseconds(50));
    EXPECT_GE(std::chrono::steady_clock::now() - second, std::chrono::milliseconds(45)) << polled;
  }
}

TEST_F(Uring, WaitEndsAtItsTimeAndOnArrival) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto start = std::chrono::steady_clock::now();
  b.transport->wait(std::chrono::milliseconds(30));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(28));
  b.transport->wait(Duration{});
  b.transport->wait(Duration{-5});

  const auto memory = pattern_bytes(10, 11);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice slice{memory.data(), 10, region->id()};
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 0), Status::ok);
  });
  const auto before = std::chrono::steady_clock::now();
  b.transport->wait(std::chrono::seconds(20));
  b.step();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  sender.join();
  EXPECT_TRUE(run_until({&b}, [&] { return b.received.size() == 1; }));
}

TEST_F(Uring, MayBeHandedToAnotherThreadAndBack) {
  UringRank a(kJob);
  UringRank b(kJob);
  const auto memory = pattern_bytes(2000, 12);
  auto region = a.transport->register_memory(memory);
  auto to_b = a.transport->connect(b.transport->address());
  ASSERT_TRUE(region && to_b);
  const LocalSlice slice{memory.data(), 2000, region->id()};
  std::size_t rounds = 0;
  const auto round = [&] {
    EXPECT_EQ(post_and_complete(a, Destination::to(*to_b), {&slice, 1}, 1000), Status::ok);
    ++rounds;
    EXPECT_TRUE(run_until({&b}, [&] { return received_bytes(b) == 2000 * rounds; }));
    b.transport->wake();
    const auto start = std::chrono::steady_clock::now();
    b.transport->wait(std::chrono::seconds(20));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  };
  for (int i = 0; i < 3; ++i) {
    round();
    std::thread(round).join();  // its receives end with the thread
    std::atomic<bool> leave{false};
    std::atomic<bool> ran{false};
    std::thread alive([&] {
      round();
      ran.store(true, std::memory_order_release);  // pairs with the acquire below
      while (!leave.load(std::memory_order_acquire)) std::this_thread::yield();
    });
    while (!ran.load(std::memory_order_acquire)) std::this_thread::yield();
    round();  // while the former driver still runs
    leave.store(true, std::memory_order_release);
    alive.join();
  }
}

TEST_F(Uring, OpensAndClosesWithoutLeavingDescriptors) {
  const auto open_files = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += ::dup2(fd, fd) == fd ? 1 : 0;
    return count;
  };
  { UringRank warm_up(kJob); }
  const int before = open_files();
  for (int i = 0; i < 30; ++i) {
    UringRank rank(kJob);
    auto member = rank.transport->join({1}, JoinAs::receiver);
    ASSERT_TRUE(member);
    rank.step();
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace selmcast
