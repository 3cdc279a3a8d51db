// What the shared memory tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/wire.h"
#include "transport/shm/shm_layout.h"
#include "transport/shm/shm_transport.h"

namespace selmcast::test {

using namespace std::chrono_literals;

inline TransportConfig shm_config(Rank rank, std::uint32_t world, std::uint64_t job = 77) {
  TransportConfig config;
  config.job = job;
  config.rank = rank;
  config.world = world;
  return config;
}

inline std::unique_ptr<Transport> open_test_shm(Rank rank, std::uint32_t world,
                                                std::uint32_t ring_bytes = shm::kRingBytesMin) {
  auto opened = open_shm(shm_config(rank, world), {ring_bytes});
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().message);
  return opened ? std::move(*opened) : nullptr;
}

inline Endpoint connect_test(Transport& from, const PeerAddress& to) {
  auto connected = from.connect(to);
  EXPECT_TRUE(connected) << (connected ? "" : connected.error().message);
  return connected ? std::move(*connected) : Endpoint();
}

/// What a receive completion held, copied out.
struct Arrived {
  std::vector<std::byte> bytes;
  std::uint32_t frame_bytes = 0;
};

/// One rank in a test: polls into lists. Gives receive buffers back at once unless `hold` is set.
struct Node {
  explicit Node(std::unique_ptr<Transport> t) : transport(std::move(t)) {}

  void poll() {
    Completion out[16];
    const std::size_t count = transport->poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& c = out[i];
      if (c.kind == Completion::Kind::send) sent.push_back(c);
      if (c.kind == Completion::Kind::lost) lost.push_back(c);
      if (c.kind != Completion::Kind::receive) continue;
      arrived.push_back({{c.data, c.data + c.bytes}, c.frame_bytes});
      if (hold) {
        held.push_back(c.token);
      } else {
        give_back(c.token);
      }
    }
  }
  void give_back(std::uint32_t token) {
    const ReceiveRequest request{token};
    transport->post_receives({&request, 1});
  }
  /// Polls and sleeps until `done`, at most `limit`.
  bool until(const std::function<bool()>& done, Duration limit = 10s) {
    const TimePoint deadline = SteadyClock().now() + limit;
    while (true) {
      poll();
      if (done()) return true;
      if (SteadyClock().now() > deadline) return false;
      transport->wait(2ms);
    }
  }
  PostOutcome send(const Destination& to, const LocalSlice& slice, std::uint32_t frame_bytes = 0,
                   std::uint64_t user = 0) {
    const SendRequest request{to, {&slice, 1}, frame_bytes, user};
    return transport->post_sends({&request, 1});
  }

  std::unique_ptr<Transport> transport;
  bool hold = false;
  std::vector<Completion> sent;
  std::vector<Completion> lost;
  std::vector<Arrived> arrived;
  std::vector<std::uint32_t> held;
};

}  // namespace selmcast::test
