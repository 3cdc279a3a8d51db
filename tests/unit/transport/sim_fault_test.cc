// Loss, duplication, reordering, corruption, partition, crash, and replay of the simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/random.h"
#include "base/wire.h"
#include "tests/unit/transport/sim_rig.h"

namespace selmcast::test {
namespace {

/// Sends `frames` frames of 64 bytes from 0 to 1; frame i starts with i (u32).
void send_numbered(SimRig& rig, std::uint32_t frames) {
  std::vector<std::byte> numbered(std::size_t{frames} * 64);
  for (std::uint32_t i = 0; i < frames; ++i) store_le(numbered.data() + std::size_t{i} * 64, i);
  const auto region = std::move(rig.ranks[0]->register_memory(numbered)).value();
  for (std::uint32_t i = 0; i < frames; ++i) {
    const LocalSlice slice{numbered.data() + std::size_t{i} * 64, 64, region.id()};
    const SendRequest request{Destination::to(rig.endpoints[0][1]), {&slice, 1}, 0, i};
    ASSERT_EQ(rig.ranks[0]->post_sends({&request, 1}).accepted, 1U);
    rig.run();
  }
}

std::vector<std::uint32_t> numbers(const std::vector<Arrival>& arrivals) {
  std::vector<std::uint32_t> out;
  for (const Arrival& a : arrivals) out.push_back(load_le<std::uint32_t>(a.bytes.data()));
  return out;
}

/// |count - n p| within five standard deviations of the binomial distribution.
void expect_binomial(std::size_t count, double n, double p) {
  EXPECT_NEAR(static_cast<double>(count), n * p, 5 * std::sqrt(n * p * (1 - p)));
}

constexpr std::uint32_t kFrames = 20'000;

TEST(SimFault, LossIsBinomialAndKeepsOrder) {
  SimRig rig(even_links(2, {.loss = 0.05}));
  send_numbered(rig, kFrames);
  const auto got = numbers(rig.arrivals[1]);
  expect_binomial(kFrames - got.size(), kFrames, 0.05);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  EXPECT_EQ(std::set(got.begin(), got.end()).size(), got.size());
  EXPECT_EQ(rig.sends[0].size(), kFrames);  // Lost frames complete all the same.
}

TEST(SimFault, ReceiversLoseIndependently) {
  SimRig rig(even_links(3, {.loss = 0.2}));
  std::vector<Membership> members;
  for (std::size_t r = 1; r < 3; ++r)
    members.push_back(std::move(rig.ranks[r]->join({0}, JoinAs::receiver)).value());
  const auto group = std::move(rig.ranks[0]->join({0}, JoinAs::send_only)).value();
  std::size_t both = 0, copies = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t before1 = rig.arrivals[1].size(), before2 = rig.arrivals[2].size();
    ASSERT_TRUE(rig.send(0, Destination::to(group), 16));
    rig.run();
    const std::size_t now = rig.arrivals[1].size() - before1 + rig.arrivals[2].size() - before2;
    copies += now;
    both += now == 2 ? 1 : 0;
  }
  expect_binomial(copies, 20'000, 0.8);
  expect_binomial(both, 10'000, 0.64);
}

TEST(SimFault, DuplicatesComeTwiceAndTakePortTime) {
  SimRig rig(even_links(2, {.rx_kbps = 8'000, .delay = 0us, .duplicate = 0.1}));
  send_numbered(rig, kFrames);
  const auto got = numbers(rig.arrivals[1]);
  const std::set<std::uint32_t> distinct(got.begin(), got.end());
  EXPECT_EQ(distinct.size(), kFrames);
  expect_binomial(got.size() - kFrames, kFrames, 0.1);
  EXPECT_EQ(rig.net.wire_bytes_received(1), got.size() * (64 + 42));
  EXPECT_EQ(rig.elapsed(), got.size() * transmission_time(64 + 42, 8'000));
}

TEST(SimFault, ReorderedFramesComeLateButCome) {
  SimRig rig(
      even_links(2, {.tx_kbps = 1'000'000, .delay = 0us, .reorder = 0.1, .reorder_by = 50us}));
  for (std::size_t i = 0; i < 60; ++i)
    ASSERT_TRUE(rig.send(0, Destination::to(rig.endpoints[0][1]), 40, 1, i));
  rig.run();
  // 2400 frames of 1 byte, 344 ns apart; a copy held back by up to 50 us is overtaken by others.
  ASSERT_EQ(rig.arrivals[1].size(), 2'400U);
  std::size_t out_of_place = 0;
  for (std::size_t i = 0; i < 2'400; ++i)
    out_of_place += rig.arrivals[1][i].bytes[0] != rig.memory[i % 40] ? 1U : 0U;
  EXPECT_GT(out_of_place, 100U);
  EXPECT_LE(rig.elapsed(), 2'400 * transmission_time(43, 1'000'000) + 50us);
}

TEST(SimFault, CorruptionFlipsOneBitOfOneCopy) {
  SimRig rig(even_links(3, {.corrupt = 0.5}));
  rig.net.set_link(2, {});  // A clean receiver of the same group sees clean frames.
  std::vector<Membership> members;
  for (std::size_t r = 1; r < 3; ++r)
    members.push_back(std::move(rig.ranks[r]->join({0}, JoinAs::receiver)).value());
  const auto group = std::move(rig.ranks[0]->join({0}, JoinAs::send_only)).value();
  for (int i = 0; i < 4'000; ++i) {
    ASSERT_TRUE(rig.send(0, Destination::to(group), 32));
    rig.run();
  }
  std::size_t damaged = 0;
  ASSERT_EQ(rig.arrivals[1].size(), 4'000U);
  for (const Arrival& a : rig.arrivals[1]) {
    int bits = 0;
    for (std::size_t i = 0; i < 32; ++i)
      bits += std::popcount(std::to_integer<unsigned>(a.bytes[i] ^ rig.memory[i]));
    ASSERT_LE(bits, 1);
    damaged += bits == 1 ? 1U : 0U;
  }
  expect_binomial(damaged, 4'000, 0.5);
  for (const Arrival& a : rig.arrivals[2])
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.end(), rig.memory.begin()));
}

TEST(SimFault, PartitionCutsBothWaysAndOnlyThatPair) {
  SimRig rig(even_links(3, {}));
  rig.net.partition(0, 1, true);
  for (std::size_t from = 0; from < 3; ++from) {
    ASSERT_TRUE(rig.send(from, (from + 1) % 3, 4));
    ASSERT_TRUE(rig.send(from, (from + 2) % 3, 4));
  }
  rig.run();
  EXPECT_EQ(rig.arrivals[0].size(), 1U);
  EXPECT_EQ(rig.arrivals[1].size(), 1U);
  EXPECT_EQ(rig.arrivals[2].size(), 2U);
  rig.net.partition(1, 0, false);
  ASSERT_TRUE(rig.send(0, 1, 4));
  ASSERT_TRUE(rig.send(1, 0, 4));
  rig.run();
  EXPECT_EQ(rig.arrivals[0].size(), 2U);
  EXPECT_EQ(rig.arrivals[1].size(), 2U);
}

TEST(SimFault, CrashSilencesAndIsNoticedOnce) {
  SimRig rig(even_links(3, {.tx_kbps = 8'000, .delay = 10ms}));
  ASSERT_TRUE(rig.send(0, 1, 958 * 5, 958));
  ASSERT_TRUE(rig.send(1, 0, 958));
  rig.run(TimePoint(2'500us));
  rig.net.crash(0, 20ms);
  rig.net.crash(0, 1ms);  // Once dead, dead: no second notice.
  rig.run(TimePoint(22'500us - 1ns));
  EXPECT_EQ(rig.arrivals[1].size(), 2U);  // The switch had two whole frames.
  EXPECT_TRUE(rig.arrivals[0].empty());
  EXPECT_TRUE(rig.lost[1].empty());
  rig.run();
  for (const std::size_t peer : {1U, 2U}) {
    ASSERT_EQ(rig.lost[peer].size(), 1U);
    EXPECT_EQ(rig.lost[peer][0], rig.endpoints[peer][0].id());
  }
  EXPECT_TRUE(rig.lost[0].empty());
  EXPECT_FALSE(rig.send(0, 1, 4));
  EXPECT_EQ(rig.ranks[0]->post_sends({}).state, PostState::broken);
  EXPECT_NE(rig.ranks[0]->last_error(), "");
  EXPECT_EQ(rig.ranks[1]->last_error(), "");
  // Who knows of the loss is told so at the post; who connects later is told at once.
  ASSERT_TRUE(rig.send(1, 0, 4, 0, 5));
  rig.run();
  EXPECT_EQ(rig.sends[1].back().status, Status::peer_lost);
  const auto late = std::move(rig.ranks[2]->connect(rig.ranks[0]->address())).value();
  rig.run();
  ASSERT_EQ(rig.lost[2].size(), 2U);
  EXPECT_EQ(rig.lost[2][1], late.id());
}

TEST(SimFault, CrashWithoutNoticeIsNeverNoticed) {
  SimRig rig(even_links(2, {}));
  rig.net.advance_to(TimePoint(1ms));
  rig.net.crash(0, kNever - TimePoint{});
  EXPECT_EQ(rig.net.next_event(), kNever);
  ASSERT_TRUE(rig.send(1, 0, 4));
  rig.run();
  EXPECT_EQ(rig.sends[1].at(0).status, Status::ok);
  EXPECT_TRUE(rig.lost[1].empty());
}

TEST(SimFault, FullInboxDropsAndCounts) {
  SimConfig config = even_links(2, {});
  config.inbox_bytes = 5 * (100 + 42);
  SimRig rig(config);
  ASSERT_TRUE(rig.send(0, 1, 800, 100));
  rig.net.advance_to(TimePoint(1s));  // Nobody polls meanwhile.
  rig.run();
  EXPECT_EQ(rig.arrivals[1].size(), 5U);
  EXPECT_EQ(rig.ranks[1]->counters().dropped_frames, 3U);
  EXPECT_EQ(rig.ranks[1]->counters().received_frames, 5U);
}

TEST(SimFault, LosslessFabricNeitherTailDropsNorOverflows) {
  SimConfig config = even_links(2, {.rx_kbps = 8'000, .queue_bytes = 1'000});
  config.inbox_bytes = 1'000;
  config.lossless = true;
  SimRig rig(config);
  EXPECT_FALSE(rig.ranks[0]->capabilities().loses_frames);
  ASSERT_TRUE(rig.send(0, 1, 958 * 40, 958));
  rig.net.advance_to(TimePoint(1s));
  rig.run();
  EXPECT_EQ(rig.arrivals[1].size(), 40U);
}

TEST(SimFault, NothingLeaksWhateverHappens) {
  SimRig rig(even_links(4, {.loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1}));
  for (std::size_t to = 1; to < 4; ++to) ASSERT_TRUE(rig.send(0, to, 958 * 30, 958));
  rig.run(TimePoint(5us));
  rig.endpoints[2].clear();
  rig.regions[2] = {};
  rig.ranks[2].reset();
  rig.net.crash(3, 1us);
  rig.net.advance_to(TimePoint(1s));
  Completion out[64];
  while (const std::size_t n = rig.ranks[1]->poll(out)) {
    for (std::size_t i = 0; i < n; ++i) {
      if (out[i].kind != Completion::Kind::receive) continue;
      const ReceiveRequest back{out[i].token};
      rig.ranks[1]->post_receives({&back, 1});
    }
  }
  rig.endpoints[3].clear();
  rig.regions[3] = {};
  rig.ranks[3].reset();
  EXPECT_EQ(rig.net.buffers_in_use(), 0U);
}

struct Outcome {
  std::uint64_t hash = 0;
  std::vector<TimePoint> times;
};

Outcome replay(std::uint64_t seed) {
  SimConfig config = even_links(5, {.tx_kbps = 100'000,
                                    .rx_kbps = 50'000,
                                    .queue_bytes = 20'000,
                                    .loss = 0.02,
                                    .duplicate = 0.02,
                                    .reorder = 0.05,
                                    .corrupt = 0.01});
  config.seed = seed;
  SimRig rig(config);
  std::vector<Membership> groups;
  for (std::size_t r = 0; r < 5; ++r)
    groups.push_back(std::move(rig.ranks[r]->join({9}, JoinAs::receiver)).value());
  SplitMix64 traffic(1);  // The same traffic for every seed.
  for (int i = 0; i < 200; ++i) {
    const std::size_t from = traffic.below(5), to = traffic.below(5);
    const auto bytes = static_cast<std::uint32_t>(1 + traffic.below(20'000));
    if (i % 3 == 0)
      rig.send(from, Destination::to(groups[from]), bytes, 1'000);
    else
      rig.send(from, to, bytes, 1'000);
    rig.run(rig.net.clock().now() + Duration(traffic.below(300'000)));
  }
  rig.run();
  Outcome out{rig.net.trace_hash(), {}};
  for (const auto& arrivals : rig.arrivals)
    for (const Arrival& a : arrivals) out.times.push_back(a.at);
  return out;
}

TEST(SimReplay, EqualSeedsReplayAndOthersDiffer) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Outcome first = replay(seed), second = replay(seed);
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.times, second.times) << "seed " << seed;
    hashes.insert(first.hash);
  }
  EXPECT_EQ(hashes.size(), 20U);
}

TEST(SimReplay, HashDependsOnContentsTimeAndDestination) {
  const auto hash = [](std::size_t to, std::uint32_t bytes, Duration delay) {
    SimRig rig(even_links(3, {.delay = delay}));
    rig.send(0, to, bytes);
    rig.run();
    return rig.net.trace_hash();
  };
  const std::set<std::uint64_t> different{hash(1, 8, 1us), hash(2, 8, 1us), hash(1, 9, 1us),
                                          hash(1, 8, 2us)};
  EXPECT_EQ(different.size(), 4U);
  EXPECT_EQ(hash(1, 8, 1us), hash(1, 8, 1us));
}

TEST(SimDeathTest, ProgrammerErrorsAbort) {
  EXPECT_DEATH(SimNetwork(even_links(1, {.loss = 1.5})), "chances");
  EXPECT_DEATH(SimNetwork(even_links(1, {.delay = -1ns})), "negative");
  SimConfig faulty = even_links(1, {.loss = 0.1});
  faulty.lossless = true;
  EXPECT_DEATH(SimNetwork{faulty}, "lossless");
  SimNetwork net(even_links(1, {}));
  EXPECT_DEATH(net.attach(1), "no such rank");
  const auto once = net.attach(0);
  EXPECT_DEATH(net.attach(0), "attaches once");
  net.advance_to(TimePoint(1s));
  EXPECT_DEATH(net.advance_to(TimePoint{}), "backwards");
  const ReceiveRequest never_lent{0};
  EXPECT_DEATH(once->post_receives({&never_lent, 1}), "not lent");
}

TEST(SimAddress, ForeignAddressesAreRefused) {
  SimRig rig(even_links(2, {}));
  PeerAddress address = rig.ranks[1]->address();
  address.size = 4;
  EXPECT_EQ(rig.ranks[0]->connect(address).error().kind, ErrorKind::bad_input);
  address = rig.ranks[1]->address();
  address.bytes[0] ^= std::byte{1};
  EXPECT_EQ(rig.ranks[0]->connect(address).error().kind, ErrorKind::bad_input);
  address = rig.ranks[1]->address();
  store_le<std::uint32_t>(address.bytes.data() + 4, 2);
  EXPECT_EQ(rig.ranks[0]->connect(address).error().kind, ErrorKind::bad_input);
}

}  // namespace
}  // namespace selmcast::test
