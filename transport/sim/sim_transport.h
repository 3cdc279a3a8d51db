// One rank's transport on a simulated network. Private to transport/sim.
#pragma once

#include <string>
#include <vector>

#include "transport/handle_table.h"
#include "transport/request_shape.h"
#include "transport/send_ledger.h"
#include "transport/sim/sim_core.h"

namespace selmcast::detail {

class SimTransport final : public Transport, private Timestamps {
 public:
  SimTransport(SimCore& core, Rank rank);
  ~SimTransport() override;

  PeerAddress address() const override;
  Result<Region> register_memory(std::span<const std::byte> memory) override;
  Result<Endpoint> connect(const PeerAddress& peer) override;
  Result<Membership> join(GroupAddress group, JoinAs as) override;
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override;
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void wait(Duration) noexcept override {}  // Virtual time: the driver advances the network.
  void wake() noexcept override {}
  TransportCounters counters() const noexcept override { return counters_; }
  std::string last_error() const override;

  // Called by the core while it carries out events.
  void on_transmitted();
  void on_delivery(PayloadPool::Index payload, GroupSlot group);
  void on_peer_lost(Rank rank);
  void crash() noexcept;

 private:
  // Timestamps.
  std::uint64_t arrival_ns(const Completion& receive) const noexcept override;

 protected:
  void release(HandleKind kind, std::uint32_t id) noexcept override;

 private:
  struct OpenMembership {
    GroupSlot group = 0;
    JoinAs as = JoinAs::receiver;
  };
  struct Posted : SendEntry {
    std::vector<LocalSlice> slices;
    RequestShape shape;
    std::uint32_t target = 0;  ///< Rank or group slot.
    Destination::Kind kind = Destination::Kind::endpoint;
    bool done = false;
  };
  static constexpr PayloadPool::Index kFree = ~PayloadPool::Index{0};
  struct Arrived {
    PayloadPool::Index payload = 0;
    GroupSlot group = kNoGroup;
    std::uint64_t room = 0;  ///< Of the inbox.
    TimePoint at{};
  };
  /// Where the frame that is leaving starts within the request at the head of the queue.
  struct Cursor {
    std::uint32_t sent_bytes = 0;
    std::size_t slice = 0;
    std::uint32_t slice_offset = 0;
  };

  Status resolve(Destination destination, Posted& out) const noexcept;
  void accept(const SendRequest& request);
  void leave(const OpenMembership& membership) noexcept;
  void start_next();
  void finish_leaving() noexcept;
  std::uint32_t next_frame_bytes() noexcept;
  PayloadPool::Index gather(std::uint32_t bytes);
  std::size_t poll_frames(std::span<Completion> out) noexcept;
  Completion lend(const Arrived& arrived) noexcept;
  bool receives(GroupSlot group) const noexcept {
    return group == kNoGroup || (group < joined_.size() && joined_[group] > 0);
  }

  SimCore& core_;
  const Rank rank_;
  TransportCounters counters_;
  bool crashed_ = false;
  bool transmitting_ = false;

  HandleTable<std::span<const std::byte>> regions_;
  HandleTable<Rank> endpoints_;
  HandleTable<OpenMembership> memberships_;
  std::vector<std::uint32_t> joined_;  // Receiver memberships held, by group slot.

  SendLedger<Posted> sends_;
  std::uint64_t left_ = 0;  // Requests that have left or failed: the number of the one that leaves.
  Cursor cursor_;
  RingQueue<EndpointId> lost_;

  RingQueue<Arrived> inbox_;
  std::uint64_t inbox_bytes_ = 0;
  struct Lent {
    PayloadPool::Index payload = kFree;
    TimePoint arrived{};
  };
  std::vector<Lent> lent_;  // By token.
  std::vector<std::uint32_t> free_tokens_;
};

}  // namespace selmcast::detail
