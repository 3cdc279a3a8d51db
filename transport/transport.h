// The one interface through which bytes move between ranks; one folder a backend. Calls are per
// batch, never per frame. What only some backends can do is in abilities.h.
//
// Words. A *frame* is what the wire carries and loses as a whole (one datagram). A *request* is one
// post: a gather list that the backend cuts into frames of `frame_bytes` (the last may be shorter),
// the way UDP segmentation offload does.
//
// Threads. One thread drives one transport; only wake() may be called from another.
// Set-up calls may allocate, block briefly and fail with an Error. Data calls (post_*, poll)
// neither allocate, lock, throw nor log.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "transport/abilities.h"
#include "transport/handles.h"
#include "transport/requests.h"

namespace selmcast {

/// What a backend can carry on this machine.
struct Capabilities {
  const char* name = "";
  std::uint32_t max_frame_bytes = 0;    ///< Largest frame.
  std::uint32_t max_request_bytes = 0;  ///< Largest request, all its frames together.
  std::uint32_t max_request_slices = 0;
  std::uint32_t max_request_frames = ~std::uint32_t{0};
  std::uint32_t send_depth = 0;       ///< Requests that may be posted and not completed.
  std::uint32_t receive_buffers = 0;  ///< Receive completions that may be held at once.
  /// Bytes per frame that links carry beside the frame (for UDP over Ethernet 8 + 20 + 14).
  std::uint32_t wire_overhead_bytes = 0;
  /// Bytes that may be under way to this rank without loss when it is not scheduled, summed over
  /// all senders; senders are granted shares of it.
  std::uint64_t receive_window_bytes = 0;
  /// The same for one sender alone, where each has room of its own.
  std::uint64_t sender_window_bytes = ~std::uint64_t{0};
  /// How long after join() frames of the group are sure to arrive (switches learn of members late).
  Duration join_settle{};
  bool replicates_in_network = false;  ///< A multicast post costs its bytes once at the sender.
  bool loses_frames = false;           ///< Frames may be lost, duplicated or reordered.
  /// What arrives is what was sent, by a CRC of at least 32 bits that the medium has over each
  /// frame, or because it stays in one machine's memory: frames need no check of their own.
  bool checks_payload = false;
};

/// Where a rank can be reached; opaque, versioned, sent through the rendezvous.
struct PeerAddress {
  std::array<std::byte, 96> bytes{};
  std::uint32_t size = 0;
  std::span<const std::byte> view() const& noexcept { return {bytes.data(), size}; }
  void view() const&& = delete;  ///< It would outlive what it looks at.
};

/// What the transport handed to and took from the network since it was opened.
struct TransportCounters {
  std::uint64_t sent_frames = 0;
  std::uint64_t sent_bytes = 0;  ///< Frame bytes; a multicast post counts once.
  std::uint64_t received_frames = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t dropped_frames = 0;  ///< Dropped on this side for want of room, where known.
};

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // Constant once it is open.
  const Capabilities& capabilities() const noexcept { return capabilities_; }
  const Abilities& abilities() const noexcept { return abilities_; }

  // Set-up.
  virtual PeerAddress address() const = 0;
  /// Makes `memory` sendable. The memory stays the caller's and must outlive the Region.
  virtual Result<Region> register_memory(std::span<const std::byte> memory) = 0;
  /// At most one endpoint per peer at a time; a backend may refuse a second. It can be closed and
  /// made again.
  virtual Result<Endpoint> connect(const PeerAddress& peer) = 0;
  /// As `receiver`, frames of the group arrive until the membership is destroyed; posting to the
  /// group is allowed in both modes. A sender that is also a receiver of its group may or may not
  /// get its own frames back. A rank is never handed frames of a group it did not join.
  virtual Result<Membership> join(GroupAddress group, JoinAs as) = 0;

  // Data.
  /// Requests to one destination arrive in the order posted where nothing is lost and
  /// capabilities().loses_frames is false. Errors of a single request come as its completion.
  virtual PostOutcome post_sends(std::span<const SendRequest> requests) noexcept = 0;
  /// Gives buffers back; takes all of them. A buffer that is not lent is a programmer error.
  virtual PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept = 0;
  /// Fills up to out.size() completions and returns how many. Send completions of one destination
  /// come in the order posted.
  virtual std::size_t poll(std::span<Completion> out) noexcept = 0;

  // Idling.
  /// Sleeps until a completion may be there, wake() was called, or `at_most` passed.
  virtual void wait(Duration at_most) noexcept = 0;
  /// Ends a wait() now or the next one at once. Thread-safe, async-signal-safe.
  virtual void wake() noexcept = 0;

  virtual TransportCounters counters() const noexcept = 0;
  /// The latest failure in words; empty when none. Set-up cost; not for the data path.
  virtual std::string last_error() const = 0;
  /// What works, but less well than the machine promised; a line each with the reason. Thread-safe.
  virtual std::vector<std::string> notices() const { return {}; }

 protected:
  template <detail::HandleKind>
  friend class TransportHandle;
  virtual void release(detail::HandleKind kind, std::uint32_t id) noexcept = 0;

  Capabilities capabilities_;  ///< These two are set by the backend while it is opened.
  Abilities abilities_;
};

template <detail::HandleKind kind>
void TransportHandle<kind>::reset() noexcept {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->release(kind, id_);
}

}  // namespace selmcast
