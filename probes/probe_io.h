// Buffers and posting of the probe's packets on a transport.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/fixed_stack.h"
#include "base/result.h"
#include "base/wire.h"
#include "probes/probe_packet.h"
#include "transport/transport.h"

namespace selmcast {

/// Owns the memory that is sent from. One thread. Must not outlive the transport.
class ProbeIo {
 public:
  /// `peers[r]` is the endpoint of rank r; the entry of `self` is not used.
  static Result<std::unique_ptr<ProbeIo>> create(Transport& transport,
                                                 std::vector<EndpointId> peers, Rank self,
                                                 std::uint32_t job);
  /// Waits a moment for sends in flight: their memory goes away.
  ~ProbeIo();
  ProbeIo(const ProbeIo&) = delete;
  ProbeIo& operator=(const ProbeIo&) = delete;

  std::uint32_t frame_bytes() const noexcept { return frame_bytes_; }
  std::uint32_t request_frames_max() const noexcept { return request_frames_; }
  /// What `frames` full data frames occupy on a link.
  std::uint64_t wire_bytes(std::uint64_t frames) const noexcept;
  /// The same for packets without padding.
  std::uint64_t control_wire_bytes(std::uint64_t packets) const noexcept;
  const Capabilities& capabilities() const noexcept { return transport_.capabilities(); }

  /// Sends `frames` (1..request_frames_max()) full frames, numbered from packet.sequence on, in one
  /// request. False when the transport cannot take it now.
  bool send_data(Rank to, ProbePacket packet, std::uint32_t frames) noexcept;
  bool send_control(Rank to, ProbePacket packet) noexcept;

  /// Takes in what arrived and calls on_packet(const ProbePacket&, std::uint64_t device_ns) for
  /// each valid packet (Timestamps::arrival_ns(), 0 without), at most a few thousand.
  template <class OnPacket>
  void poll(OnPacket&& on_packet);

  /// A peer that the transport knows to be gone.
  std::optional<Rank> lost_peer() const noexcept { return lost_; }
  /// The transport will send nothing any more; last_error() says why.
  bool broken() const noexcept { return broken_; }
  bool sends_in_flight() const noexcept { return in_flight_ > 0; }
  std::string last_error() const { return transport_.last_error(); }

 private:
  ProbeIo(Transport& transport, std::vector<EndpointId> peers, Rank self, std::uint32_t job);
  bool post(Rank to, std::uint32_t slot, std::uint32_t bytes) noexcept;
  std::span<std::byte> slot_memory(std::uint32_t slot) noexcept;
  /// Receive completions stay in done_[i] until give_back(); others are dealt with here.
  void complete(const Completion& completion) noexcept;
  void give_back() noexcept;

  static constexpr std::uint32_t kControlSlots = 64;

  Transport& transport_;
  const Timestamps* timestamps_;  ///< The transport's; null: it has none.
  std::vector<EndpointId> peers_;
  Rank self_;
  std::uint32_t job_;
  std::uint32_t frame_bytes_ = 0, request_frames_ = 0, data_slots_ = 0;
  Arena arena_;
  Region region_;
  FixedStack<std::uint32_t> free_data_, free_control_;
  std::uint32_t in_flight_ = 0;
  std::optional<Rank> lost_;
  bool broken_ = false;
  std::array<Completion, 64> done_{};
  std::vector<ReceiveRequest> returns_;
};

template <class OnPacket>
void ProbeIo::poll(OnPacket&& on_packet) {
  for (int turn = 0; turn < 8; ++turn) {
    const std::size_t n = transport_.poll(done_);
    for (const Completion& c : std::span(done_).first(n)) {
      complete(c);
      if (c.kind != Completion::Kind::receive) continue;
      const std::uint64_t device_ns = timestamps_ == nullptr ? 0 : timestamps_->arrival_ns(c);
      const std::uint32_t step = c.frame_bytes == 0 ? c.bytes : c.frame_bytes;
      for (std::uint32_t at = 0; at < c.bytes; at += std::min(step, c.bytes - at)) {
        const std::span<const std::byte> frame(c.data + at, std::min(step, c.bytes - at));
        const auto packet = parse_probe(frame, job_, static_cast<std::uint32_t>(peers_.size()));
        if (packet && packet->sender != self_) on_packet(*packet, device_ns);
      }
      returns_.push_back({c.token});
    }
    give_back();
    if (n < done_.size()) return;
  }
}

}  // namespace selmcast
