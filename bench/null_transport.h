// A transport to nowhere: takes every request and completes it at once. What a benchmark measures
// on it is this program's own cost.
#pragma once

#include <vector>

#include "transport/transport.h"

namespace selmcast {

class NullTransport : public Transport {
 public:
  NullTransport() {
    capabilities_.name = "null";
    capabilities_.max_frame_bytes = 1472;
    capabilities_.max_request_bytes = 44 * 1472;
    capabilities_.max_request_slices = 88;
    capabilities_.send_depth = 64;
    capabilities_.receive_buffers = 64;
    capabilities_.receive_window_bytes = 4U << 20U;
    capabilities_.wire_overhead_bytes = 42;
    completed_.reserve(capabilities_.send_depth);
  }
  PeerAddress address() const override { return {}; }
  Result<Region> register_memory(std::span<const std::byte>) override { return Region(this, 0); }
  Result<Endpoint> connect(const PeerAddress&) override { return Endpoint(this, 0); }
  Result<Membership> join(GroupAddress, JoinAs) override { return Membership(this, 0); }
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override {
    for (const SendRequest& request : requests) completed_.push_back(request.user);
    return {static_cast<std::uint32_t>(requests.size()), PostState::accepted};
  }
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override {
    return {static_cast<std::uint32_t>(requests.size()), PostState::accepted};
  }
  std::size_t poll(std::span<Completion> out) noexcept override {
    std::size_t n = 0;
    for (; n < out.size() && !completed_.empty(); ++n) {
      out[n] = {};
      out[n].user = completed_.back();
      completed_.pop_back();
    }
    return n;
  }
  void wait(Duration) noexcept override {}
  void wake() noexcept override {}
  TransportCounters counters() const noexcept override { return {}; }
  std::string last_error() const override { return {}; }

 private:
  void release(detail::HandleKind, std::uint32_t) noexcept override {}
  std::vector<std::uint64_t> completed_;
};

}  // namespace selmcast
