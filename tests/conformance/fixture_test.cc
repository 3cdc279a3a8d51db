#include "tests/conformance/fixture.h"

#include <algorithm>

namespace selmcast::conformance {

// Which backends exist depends on the build; the suite itself is always there.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Conformance);

void Conformance::open(std::size_t ranks, std::optional<Mortal> mortal) {
  auto opened = GetParam().open(ranks, mortal);
  if (!opened) {
    if (opened.error().kind == ErrorKind::unavailable) GTEST_SKIP() << opened.error().message;
    GTEST_FAIL() << opened.error().message;
  }
  harness_ = std::move(opened).value();
  peers.resize(ranks);
  elsewhere_.assign(ranks, false);
  if (mortal) elsewhere_[mortal->rank] = true;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (elsewhere_[r]) continue;
    Peer& peer = peers[r];
    peer.memory.resize(std::size_t{caps().max_request_bytes} * 2 + 300'000);
    auto region = at(r).register_memory(peer.memory);
    ASSERT_TRUE(region) << region.error().message;
    peer.region = std::move(region).value();
    peer.endpoints.resize(ranks);
    for (std::size_t p = 0; p < ranks; ++p) {
      if (p == r) continue;
      auto endpoint = at(r).connect(harness_->address(p));
      ASSERT_TRUE(endpoint) << endpoint.error().message;
      peer.endpoints[p] = std::move(endpoint).value();
    }
  }
}

void Conformance::TearDown() {
  for (std::size_t r = 0; r < peers.size(); ++r)
    while (!peers[r].held.empty()) give_back(r, peers[r].held.back()), peers[r].held.pop_back();
  for (Peer& peer : peers) {
    peer.endpoints.clear();
    peer.region.reset();
  }
  harness_.reset();
}

void Conformance::close(std::size_t rank) {
  peers[rank].endpoints.clear();
  peers[rank].region.reset();
  peers[rank] = Peer();
  elsewhere_[rank] = true;
  harness_->close(rank);
}

void Conformance::give_back(std::size_t rank, const Completion& completion) {
  const ReceiveRequest back{completion.token};
  const PostOutcome outcome = at(rank).post_receives({&back, 1});
  EXPECT_EQ(outcome.accepted, 1U);
  EXPECT_EQ(outcome.state, PostState::accepted);
}

void Conformance::record(std::size_t rank, const Completion& c) {
  Peer& peer = peers[rank];
  switch (c.kind) {
    case Completion::Kind::send:
      peer.sends.push_back(c);
      return;
    case Completion::Kind::read:
      peer.reads.push_back(c);
      return;
    case Completion::Kind::lost:
      EXPECT_EQ(c.status, Status::peer_lost);
      peer.lost.push_back(static_cast<EndpointId>(c.user));
      return;
    case Completion::Kind::receive:
      EXPECT_EQ(c.status, Status::ok);
      ASSERT_GT(c.bytes, 0U);
      ASSERT_GT(c.frame_bytes, 0U);
      for (std::uint32_t i = 0; i < c.bytes; i += c.frame_bytes)
        peer.frames.emplace_back(c.data + i, c.data + std::min(i + c.frame_bytes, c.bytes));
      if (peer.hold)
        peer.held.push_back(c);
      else
        give_back(rank, c);
      return;
  }
}

bool Conformance::poll_all() {
  bool any = false;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    if (elsewhere_[r]) continue;
    Completion out[16];
    const std::size_t n = at(r).poll(out);
    EXPECT_LE(n, 16U);
    for (std::size_t i = 0; i < n; ++i) record(r, out[i]);
    any = any || n > 0;
  }
  return any;
}

bool Conformance::pump(const std::function<bool()>& done) {
  constexpr Duration kStep = 200us;
  for (Duration waited{}; waited < kDeadline;) {
    const bool any = poll_all();
    if (done()) return true;
    if (any) continue;
    harness_->pass(kStep);
    waited += kStep;
  }
  return false;
}

void Conformance::pump_quietly(Duration time) {
  constexpr Duration kStep = 1ms;
  for (Duration waited{}; waited < time; waited += kStep) {
    while (poll_all()) {
    }
    harness_->pass(kStep);
  }
  while (poll_all()) {
  }
}

void Conformance::post(std::size_t from, Destination destination,
                       std::span<const LocalSlice> slices, std::uint32_t frame_bytes,
                       std::uint64_t user) {
  const SendRequest request{destination, slices, frame_bytes, user};
  const bool taken = pump([&] {
    const PostOutcome outcome = at(from).post_sends({&request, 1});
    EXPECT_NE(outcome.state, PostState::broken) << at(from).last_error();
    EXPECT_EQ(outcome.accepted == 1, outcome.state == PostState::accepted);
    return outcome.accepted == 1 || outcome.state == PostState::broken;
  });
  ASSERT_TRUE(taken) << "no room to post for the whole deadline";
}

void Conformance::send(std::size_t from, Destination destination, const Label& label,
                       std::uint32_t bytes) {
  std::byte* data = peers[from].take(bytes);
  write_frame(label, data, bytes);
  const LocalSlice one = slice(from, data, bytes);
  post(from, destination, {&one, 1}, 0, label.number);
}

}  // namespace selmcast::conformance
