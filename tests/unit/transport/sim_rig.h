// A simulated network with every rank connected to every other, driven event by event.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/sim/sim_network.h"

namespace selmcast::test {

using namespace std::chrono_literals;

struct Arrival {
  TimePoint at{};
  std::vector<std::byte> bytes;
};

inline SimConfig even_links(std::uint32_t world, const SimLink& link) {
  SimConfig config;
  config.links.assign(world, link);
  return config;
}

/// Frames are given back as soon as they were recorded. Requests are sent from `memory`, whose byte
/// at i is i * 7 + 1 (mod 256).
class SimRig {
 public:
  explicit SimRig(const SimConfig& config) : net(config), world_(config.links.size()) {
    memory.resize(std::size_t{config.max_frame_bytes} * config.max_request_frames);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7 + 1);
    for (std::size_t r = 0; r < world_; ++r) ranks.push_back(net.attach(static_cast<Rank>(r)));
    endpoints.resize(world_);
    arrivals.resize(world_);
    sends.resize(world_);
    lost.resize(world_);
    for (std::size_t r = 0; r < world_; ++r) {
      regions.push_back(std::move(ranks[r]->register_memory(memory)).value());
      for (std::size_t p = 0; p < world_; ++p)
        endpoints[r].push_back(std::move(ranks[r]->connect(ranks[p]->address())).value());
    }
  }

  bool send(std::size_t from, Destination to, std::uint32_t bytes, std::uint32_t frame_bytes = 0,
            std::uint64_t user = 0, std::size_t offset = 0) {
    const LocalSlice slice{memory.data() + offset, bytes, regions[from].id()};
    const SendRequest request{to, {&slice, 1}, frame_bytes, user};
    return ranks[from]->post_sends({&request, 1}).accepted == 1;
  }
  bool send(std::size_t from, std::size_t to, std::uint32_t bytes, std::uint32_t frame_bytes = 0,
            std::uint64_t user = 0) {
    return send(from, Destination::to(endpoints[from][to]), bytes, frame_bytes, user);
  }

  void poll_all() {
    for (std::size_t r = 0; r < world_; ++r) {
      Completion out[64];
      while (const std::size_t n = ranks[r]->poll(out)) {
        for (std::size_t i = 0; i < n; ++i) record(r, out[i]);
      }
    }
  }
  /// Carries out events one time after the other until none is left or `until` is reached.
  void run(TimePoint until = kNever) {
    poll_all();
    while (net.next_event() <= until && net.next_event() != kNever) {
      net.advance_to(net.next_event());
      poll_all();
    }
    if (until != kNever) net.advance_to(until);
  }
  Duration elapsed() const { return net.clock().now() - TimePoint{}; }

  SimNetwork net;
  std::vector<std::byte> memory;
  std::vector<std::unique_ptr<Transport>> ranks;
  std::vector<Region> regions;
  std::vector<std::vector<Endpoint>> endpoints;
  std::vector<std::vector<Arrival>> arrivals;
  std::vector<std::vector<Completion>> sends;
  std::vector<std::vector<EndpointId>> lost;

 private:
  void record(std::size_t rank, const Completion& c) {
    switch (c.kind) {
      case Completion::Kind::send:
        sends[rank].push_back(c);
        return;
      case Completion::Kind::read:
        ADD_FAILURE() << "the simulator has no reads";
        return;
      case Completion::Kind::lost:
        lost[rank].push_back(static_cast<EndpointId>(c.user));
        return;
      case Completion::Kind::receive:
        EXPECT_EQ(c.frame_bytes, c.bytes);
        arrivals[rank].push_back({net.clock().now(), {c.data, c.data + c.bytes}});
        const ReceiveRequest back{c.token};
        EXPECT_EQ(ranks[rank]->post_receives({&back, 1}).accepted, 1U);
        return;
    }
  }
  std::size_t world_;
};

}  // namespace selmcast::test
