// Ranks with both sessions each, over the simulated network; the fixture of the session tests.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "base/wire.h"
#include "multicast/digest.h"
#include "multicast/receive_session.h"
#include "multicast/send_session.h"
#include "transport/sim/sim_network.h"

namespace selmcast::testing_sessions {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr std::uint32_t kJob = 9;
inline constexpr Duration kTimeout = seconds(1);

/// One rank: transport, port, both sessions, and what it merged.
struct Node {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<FramePort> port;
  std::vector<std::byte> data;
  Region region;
  std::unique_ptr<SendSession> sender;
  std::unique_ptr<ReceiveSession> receiver;
  std::map<Rank, std::vector<std::byte>> merged;
  std::map<Verdict, int> verdicts;
  bool silent = false;  ///< Reads nothing and does nothing.
};

class Sessions : public testing::Test {
 protected:
  void build(std::uint32_t ranks, std::uint64_t bytes, SimLink link = {}) {
    SimConfig config;
    config.links.assign(ranks, link);
    network_ = std::make_unique<SimNetwork>(config);
    shape_ = StreamShape{bytes, 1432, 8};
    nodes_.resize(ranks);
    for (Rank r = 0; r < ranks; ++r) nodes_[r].transport = network_->attach(r);
    for (Rank r = 0; r < ranks; ++r) set_up(r, ranks);
  }

  void set_up(Rank r, std::uint32_t ranks) {
    Node& node = nodes_[r];
    node.port = FramePort::make(*node.transport, {kJob, r, ranks, 1472, 8, 2}).value();
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (peer == r) continue;
      ASSERT_TRUE(node.port->connect(peer, nodes_[peer].transport->address()));
    }
    node.data.resize(shape_.bytes);
    SplitMix64 rng(r + 1);
    for (auto& b : node.data) b = static_cast<std::byte>(rng());
    node.region = node.transport->register_memory(node.data).value();
    node.sender = std::make_unique<SendSession>(
        *node.port, SendSettings{shape_, 42, kTimeout, 2, 0, nullptr, nullptr, invites_});
    ReceiveSettings settings;
    settings.shape = shape_;
    settings.timeout = kTimeout;
    settings.senders_max = ranks;
    settings.window_bytes = settings.sender_window_bytes = 64 * 1472;
    settings.free_running = free_running_;
    settings.epoch = 1;
    node.receiver = std::make_unique<ReceiveSession>(*node.port, settings);
  }

  TimePoint now() const { return network_->clock().now(); }

  void begin_send(Rank from, const std::vector<LaneSpec>& lanes, std::uint32_t round = 0,
                  Kbps wire_kbps = 1'000'000) {
    Node& node = nodes_[from];
    node.sender->begin(now(), 1, round, node.data, node.region.id(), lanes, wire_kbps);
  }
  void begin_receive(Rank at, std::vector<Rank> senders, std::uint32_t round = 0) {
    senders_[at] = std::move(senders);
    nodes_[at].receiver->begin(now(), 1, round, senders_[at], shape_.bytes);
  }

  void take(Node& node, std::span<const std::byte> bytes) {
    const auto frame = parse_frame(bytes, kJob);
    if (frame.error != FrameError::none) return;
    node.sender->note_alive(frame.header.sender, now());
    node.receiver->note_alive(frame.header.sender, now());
    if (frame.header.kind == FrameKind::data) {
      const Verdict verdict = node.receiver->on_data(frame.header, frame.payload, now());
      ++node.verdicts[verdict];
      if (verdict != Verdict::fresh) return;
      auto& out = node.merged[frame.header.sender];
      out.resize(shape_.bytes);
      std::copy(frame.payload.begin(), frame.payload.end(),
                out.begin() + static_cast<std::ptrdiff_t>(frame.header.offset));
      return;
    }
    node.sender->on_control(frame.header, frame.payload, now());
    node.receiver->on_control(frame.header, frame.payload, now());
  }

  void turn(Node& node) {
    std::array<Completion, 16> completions;
    for (std::size_t count; (count = node.transport->poll(completions)) > 0;) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto& c = completions[i];
        if (c.kind == Completion::Kind::send) node.port->on_send_completion(c);
        if (c.kind != Completion::Kind::receive) continue;
        take(node, {c.data, c.bytes});
        const ReceiveRequest give_back{c.token};
        node.transport->post_receives({&give_back, 1});
      }
    }
    node.sender->progress(now());
    node.receiver->progress(now());
    node.port->flush();
  }

  /// Runs until `done` or `limit` of virtual time has passed; false in the second case.
  template <class Done>
  bool run(Done done, Duration limit = seconds(30)) {
    const TimePoint end = now() + limit;
    while (!done()) {
      if (now() > end) return false;
      TimePoint next = network_->next_event();
      for (auto& node : nodes_) {
        if (node.silent) continue;
        turn(node);
        next = std::min({next, node.sender->next_timer(), node.receiver->next_timer()});
      }
      if (done()) return true;  // At the time it happened, not at that of the next event.
      next = std::min(next, network_->next_event());
      network_->advance_to(std::max(std::min(next, end), now() + std::chrono::microseconds(1)));
    }
    return true;
  }

  LaneSpec unicast(Rank from, Rank to) { return {nodes_[from].port->destination(to), {to}, false}; }

  bool free_running_ = false;
  bool invites_ = false;
  StreamShape shape_;
  std::unique_ptr<SimNetwork> network_;
  std::vector<Node> nodes_;
  std::map<Rank, std::vector<Rank>> senders_;
};

}  // namespace selmcast::testing_sessions
