// Lent buffers, running out of them, close, death, waiting.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/random.h"
#include "tests/conformance/fixture.h"

namespace selmcast::conformance {
namespace {

TEST_P(Conformance, LentBuffersStayIntactUntilGivenBack) {
  SELMCAST_OPEN_OR_SKIP(2);
  constexpr std::uint32_t kBytes = 200;
  const std::size_t keep = std::min(caps().receive_buffers / 2, 24U);
  peers[1].hold = true;
  std::uint32_t number = 0;
  // Frames may come together in one completion, or be lost: send until enough are lent.
  ASSERT_TRUE(pump([&] {
    if (number < 500 && peers[0].sends.size() == number)
      send(0, to(0, 1), {0, 1, number++}, kBytes);
    return peers[1].held.size() >= keep;
  }));
  peers[1].hold = false;
  const auto kept = peers[1].held;
  std::vector<Frame> copies;
  for (const Completion& c : kept) copies.emplace_back(c.data, c.data + c.bytes);
  for (std::uint32_t i = 0; i < 600; ++i) send(0, to(0, 1), {0, 1, number++}, kBytes);
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() >= number; }));
  pump_quietly();
  SplitMix64 random(4);
  while (!peers[1].held.empty()) {
    const std::size_t i = random.below(static_cast<std::uint32_t>(peers[1].held.size()));
    const Completion c = peers[1].held[i];
    for (std::size_t k = 0; k < kept.size(); ++k)
      if (kept[k].token == c.token) {
        EXPECT_TRUE(std::equal(copies[k].begin(), copies[k].end(), kept[k].data));
      }
    give_back(1, c);
    peers[1].held.erase(peers[1].held.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

TEST_P(Conformance, TokensLentAtOnceAreDistinct) {
  SELMCAST_OPEN_OR_SKIP(2);
  peers[1].hold = true;
  for (std::uint32_t i = 0; i < 40; ++i) send(0, to(0, 1), {0, 1, i}, 100);
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 40; }));
  pump_quietly();
  std::set<std::uint32_t> tokens;
  for (const Completion& c : peers[1].held) tokens.insert(c.token);
  EXPECT_EQ(tokens.size(), peers[1].held.size());
  EXPECT_FALSE(tokens.empty());
}

TEST_P(Conformance, RunningOutOfReceiveBuffersLosesNothing) {
  SELMCAST_OPEN_OR_SKIP(2);
  if (!ordered()) GTEST_SKIP() << "this backend may lose frames";
  const std::uint32_t frames = std::min(caps().receive_buffers + 100, 4'000U);
  peers[1].hold = true;
  std::uint32_t posted = 0;
  const auto post_one = [&] {
    std::byte* data = peers[0].take(kLabelBytes);
    write_frame({0, 1, posted}, data, kLabelBytes);
    const LocalSlice one = slice(0, data, kLabelBytes);
    const SendRequest request{to(0, 1), {&one, 1}, 0, posted};
    if (at(0).post_sends({&request, 1}).accepted == 1)
      ++posted;
    else
      peers[0].used -= kLabelBytes;
  };
  for (int quiet = 0; quiet < 50 && posted < frames;) {  // Until all is posted or nothing moves.
    const std::uint32_t before = posted;
    post_one();
    quiet = poll_all() || posted > before ? 0 : quiet + 1;
  }
  pump_quietly();
  EXPECT_LE(peers[1].held.size(), caps().receive_buffers);
  peers[1].hold = false;
  ASSERT_TRUE(pump([&] {
    while (!peers[1].held.empty()) {
      give_back(1, peers[1].held.back());
      peers[1].held.pop_back();
    }
    if (posted < frames) post_one();
    return peers[1].frames.size() >= frames;
  }));
  pump_quietly();
  const auto labels = peers[1].labels();
  ASSERT_EQ(labels.size(), frames);
  for (std::uint32_t i = 0; i < frames; ++i) EXPECT_EQ(labels[i].number, i);
}

TEST_P(Conformance, ReceivingResumesAfterBuffersRanOut) {
  SELMCAST_OPEN_OR_SKIP(2);
  peers[1].hold = true;
  // Far more frames than buffers; a lossless sender is held up instead, so no post() here.
  const std::uint32_t most = std::min(caps().receive_buffers * 2 + 64, 6'000U);
  std::vector<std::byte>& memory = peers[0].memory;
  write_frame({0, 1, 1}, memory.data(), kLabelBytes);
  peers[0].used = kLabelBytes;
  const LocalSlice one = slice(0, memory.data(), kLabelBytes);
  const SendRequest request{to(0, 1), {&one, 1}, 0, 1};
  std::uint32_t posted = 0;
  for (std::uint32_t i = 0; i < 4 * most && posted < most; ++i) {
    posted += at(0).post_sends({&request, 1}).accepted;
    poll_all();
  }
  pump_quietly();
  peers[1].hold = false;
  for (const Completion& c : peers[1].held) give_back(1, c);
  peers[1].held.clear();
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == posted; }));
  pump_quietly();
  peers[1].frames.clear();
  std::uint32_t tries = 0;
  EXPECT_TRUE(pump([&] {
    if (tries < 500 && peers[0].sends.size() == posted + tries) {
      ++tries;
      send(0, to(0, 1), {0, 1, 1'000 + tries});
    }
    const auto labels = peers[1].labels();
    return std::any_of(labels.begin(), labels.end(),
                       [](const Label& label) { return label.number > 1'000; });
  }));
}

TEST_P(Conformance, ClosedHandlesAreRecognised) {
  SELMCAST_OPEN_OR_SKIP(3);
  const auto receiver = join(1, 5, JoinAs::receiver), other = join(2, 6, JoinAs::receiver);
  auto group = join(0, 5, JoinAs::send_only);
  settle();
  const Destination old_group = Destination::to(group), old_peer = to(0, 1);
  group.reset();
  peers[0].endpoints[1].reset();
  // What is opened next must not be reached through the old names.
  const auto next_group = join(0, 6, JoinAs::send_only);
  auto next_peer = at(0).connect(at(1).address());
  ASSERT_TRUE(next_peer) << next_peer.error().message;
  peers[0].endpoints[1] = std::move(next_peer).value();
  send(0, old_group, {0, 0, 0});
  send(0, old_peer, {0, 0, 1});
  send(0, {Destination::Kind::endpoint, 60'000}, {0, 0, 2});
  send(0, {Destination::Kind::group, 60'000}, {0, 0, 3});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 4; }));
  pump_quietly();
  for (const Completion& c : peers[0].sends) EXPECT_EQ(c.status, Status::closed) << c.user;
  EXPECT_TRUE(peers[1].frames.empty());
  EXPECT_TRUE(peers[2].frames.empty());
  peers[0].sends.clear();
  send(0, Destination::to(next_group), {0, 2, 4});
  send(0, to(0, 1), {0, 1, 5});
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 2 &&
           (!GetParam().clean || (peers[1].frames.size() == 1 && peers[2].frames.size() == 1));
  }));
  for (const Completion& c : peers[0].sends) EXPECT_EQ(c.status, Status::ok);
}

TEST_P(Conformance, HandlesCanBeOpenedAndClosedManyTimes) {
  SELMCAST_OPEN_OR_SKIP(2);
  for (std::uint32_t i = 0; i < 100; ++i) {
    auto region = at(0).register_memory(peers[0].memory);
    ASSERT_TRUE(region) << region.error().message;
    peers[0].endpoints[1].reset();
    auto endpoint = at(0).connect(at(1).address());
    ASSERT_TRUE(endpoint) << endpoint.error().message;
    peers[0].endpoints[1] = std::move(endpoint).value();
    auto membership = at(0).join({i % 3}, i % 2 == 0 ? JoinAs::receiver : JoinAs::send_only);
    ASSERT_TRUE(membership) << membership.error().message;
  }
  send(0, to(0, 1), {0, 1, 0});
  EXPECT_TRUE(pump([&] {
    return peers[0].sends.size() == 1 && (peers[1].frames.size() == 1 || !GetParam().clean);
  }));
}

TEST_P(Conformance, ForeignAddressesAreRefused) {
  SELMCAST_OPEN_OR_SKIP(2);
  EXPECT_FALSE(at(0).connect(PeerAddress{}));
  PeerAddress cut = at(1).address();
  ASSERT_GT(cut.size, 0U);
  ASSERT_LE(cut.size, cut.bytes.size());
  --cut.size;
  const auto refused = at(0).connect(cut);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message, "");
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  SplitMix64 random(8);
  for (int i = 0; i < 200; ++i) {  // Whatever it says, it must not crash; a size that lies neither.
    PeerAddress any;
    for (auto& b : any.bytes) b = static_cast<std::byte>(random());
    any.size = i % 4 == 0 ? ~std::uint32_t{0} : static_cast<std::uint32_t>(random.below(97));
    static_cast<void>(at(0).connect(any));
  }
}

TEST_P(Conformance, AnOrderlyCloseIsNoLoss) {
  SELMCAST_OPEN_OR_SKIP(3);
  send(0, to(0, 1), {0, 1, 0});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 1; }));
  peers[2].endpoints[0].reset();
  close(1);
  send(0, to(0, 1), {0, 1, 1});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 2; }));
  pump_quietly();
  EXPECT_TRUE(peers[0].lost.empty());
  EXPECT_TRUE(peers[2].lost.empty());
}

TEST_P(Conformance, DeathOfAPeerIsNoticed) {
  if (!GetParam().notices_death) GTEST_SKIP() << "this backend does not watch its peers";
  SELMCAST_OPEN_OR_SKIP(3, Mortal{1, true});
  send(0, to(0, 1), {0, 1, 0});
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() == 1; }));
  kill_mortal();
  ASSERT_TRUE(pump([&] { return !peers[0].lost.empty() && !peers[2].lost.empty(); }));
  pump_quietly();
  for (const std::size_t r : {0U, 2U}) {
    ASSERT_EQ(peers[r].lost.size(), 1U);  // Once, and for the right one.
    EXPECT_EQ(peers[r].lost[0], peers[r].endpoints[1].id());
  }
  // Posts to the dead complete all the same, and the living still talk.
  send(0, to(0, 1), {0, 1, 1});
  send(0, to(0, 2), {0, 2, 2});
  ASSERT_TRUE(pump([&] {
    return peers[0].sends.size() == 3 && (!peers[2].frames.empty() || !GetParam().clean);
  }));
  for (const Completion& c : peers[0].sends) {
    if (c.user == 1) {
      EXPECT_EQ(c.status, Status::peer_lost);
    }
    if (c.user == 2) {
      EXPECT_EQ(c.status, Status::ok);
    }
  }
}

TEST_P(Conformance, DeathOfABusyPeerHoldsNobodyUp) {
  // Fill the way to a receiver that never polls, then let it die.
  SELMCAST_OPEN_OR_SKIP(3, Mortal{1, false});
  const auto member = join(2, kMortalGroup, JoinAs::receiver);
  const auto group = join(0, kMortalGroup, JoinAs::send_only);
  settle();
  std::byte* data = peers[0].take(512);
  write_frame({0, 0, 0}, data, 512);
  const LocalSlice one = slice(0, data, 512);
  std::uint32_t posted = 0;
  for (std::uint32_t i = 0; i < caps().send_depth; ++i) {
    const SendRequest request{i % 2 == 0 ? to(0, 1) : Destination::to(group), {&one, 1}, 0, i};
    posted += at(0).post_sends({&request, 1}).accepted;
  }
  kill_mortal();
  ASSERT_TRUE(pump([&] { return peers[0].sends.size() >= posted; }));
  pump_quietly();
  EXPECT_EQ(peers[0].sends.size(), posted);
  peers[2].frames.clear();
  std::uint32_t tries = 0;
  EXPECT_TRUE(pump([&] {
    if (tries < 200 && peers[0].sends.size() == posted + tries) {
      ++tries;
      send(0, Destination::to(group), {0, 2, 7});
    }
    return !peers[2].frames.empty();
  }));
}

TEST_P(Conformance, WakeEndsWait) {
  SELMCAST_OPEN_OR_SKIP(1);
  using Watch = std::chrono::steady_clock;
  for (const bool before : {true, false}) {
    const auto start = Watch::now();
    if (!GetParam().real_time) {  // Nobody else could move the time on.
      at(0).wait(60s);
      EXPECT_LT(Watch::now() - start, 30s);
      continue;
    }
    if (before) at(0).wake();  // Not lost when nobody waits yet.
    std::thread waiter([&] { at(0).wait(60s); });
    if (!before) {
      std::this_thread::sleep_for(30ms);
      at(0).wake();
    }
    waiter.join();
    EXPECT_LT(Watch::now() - start, 30s);
  }
}

TEST_P(Conformance, WaitEndsByItselfAndForArrivals) {
  SELMCAST_OPEN_OR_SKIP(2);
  using Watch = std::chrono::steady_clock;
  const auto start = Watch::now();
  at(1).wait(1ms);
  at(1).wait(0ms);
  if (!GetParam().real_time) return;
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    Completion c;
    while (Watch::now() - start < 60s) {
      at(1).wait(60s);
      if (at(1).poll({&c, 1}) == 0) continue;
      const ReceiveRequest back{c.token};
      at(1).post_receives({&back, 1});
      // Release: pairs with the acquire load below.
      got.store(true, std::memory_order_release);
      return;
    }
  });
  std::this_thread::sleep_for(30ms);
  std::byte* data = peers[0].take(64);
  write_frame({0, 1, 0}, data, 64);
  const LocalSlice one = slice(0, data, 64);
  const SendRequest request{to(0, 1), {&one, 1}, 0, 0};
  EXPECT_EQ(at(0).post_sends({&request, 1}).accepted, 1U);
  Completion done;
  // Acquire: pairs with the release store above.
  while (!got.load(std::memory_order_acquire) && Watch::now() - start < 60s) {
    at(0).poll({&done, 1});
    std::this_thread::sleep_for(1ms);
  }
  waiter.join();
  EXPECT_TRUE(got.load(std::memory_order_acquire));
  EXPECT_LT(Watch::now() - start, 30s);
}

}  // namespace
}  // namespace selmcast::conformance
