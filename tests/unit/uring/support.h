// What the tests of the UDP backend share: a transport with its outcomes collected.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/uring/uring_transport.h"

namespace selmcast {

inline TransportConfig uring_config(std::uint64_t job, std::string interface = {},
                                    std::uint32_t mtu = 0) {
  TransportConfig out;
  out.job = job;
  out.interface = std::move(interface);
  out.mtu = mtu;
  return out;
}

/// One transport, driven by poll() until something is there, everything copied out.
class UringRank {
 public:
  struct Received {
    std::vector<std::byte> data;
    std::uint32_t frame_bytes = 0;
  };
  struct Sent {
    std::uint64_t user = 0;
    Status status = Status::ok;
  };

  explicit UringRank(std::uint64_t job, const std::string& interface = "") {
    auto opened = open_uring(uring_config(job, interface));
    EXPECT_TRUE(opened) << opened.error().message;
    if (opened) transport = std::move(*opened);
  }

  /// One poll(); buffers go back at once unless `keep` is set.
  void step() {
    std::array<Completion, 64> out;
    const std::size_t count = transport->poll(out);
    for (std::size_t i = 0; i < count; ++i) {
      const Completion& c = out[i];
      if (c.kind == Completion::Kind::send) {
        sent.push_back({c.user, c.status});
      } else {
        EXPECT_EQ(c.kind, Completion::Kind::receive);
        EXPECT_EQ(c.status, Status::ok);
        received.push_back({{c.data, c.data + c.bytes}, c.frame_bytes});
        tokens.push_back(c.token);
      }
    }
    if (!keep) give_back();
  }

  void give_back() {
    for (const std::uint32_t token : tokens) {
      const ReceiveRequest request{token};
      EXPECT_EQ(transport->post_receives({&request, 1}).state, PostState::accepted);
    }
    tokens.clear();
  }

  std::unique_ptr<Transport> transport;
  std::deque<Received> received;
  std::vector<Sent> sent;
  std::vector<std::uint32_t> tokens;
  bool keep = false;
};

inline std::vector<std::byte> pattern_bytes(std::size_t size, unsigned seed) {
  std::vector<std::byte> out(size);
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = static_cast<std::byte>((i * 131 + seed * 17 + (i >> 8U)) & 0xFFU);
  }
  return out;
}

/// Steps all ranks until `done` or five seconds have passed; says whether it was `done`.
inline bool run_until(const std::vector<UringRank*>& ranks, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    for (UringRank* const rank : ranks) rank->step();
  }
  return true;
}

/// Steps all ranks for a while, to see what must not arrive.
inline void run_for(const std::vector<UringRank*>& ranks, std::chrono::milliseconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < deadline) {
    for (UringRank* const rank : ranks) rank->step();
  }
}

}  // namespace selmcast
