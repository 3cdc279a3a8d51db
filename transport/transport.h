// The one interface through which bytes move between ranks. Backends: sim, shm, uring (verbs and
// dpdk later). Calls are per batch, never per frame.
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

#include "base/result.h"
#include "base/units.h"

namespace selmcast {

enum class Status : std::uint8_t {
  ok,
  oversize,        ///< The request exceeds Capabilities; nothing of it was sent.
  not_registered,  ///< A slice lies outside its registered region; nothing of it was sent.
  closed,          ///< The endpoint or membership named was closed before the post.
  peer_lost,       ///< The peer is gone; on a `lost` completion, `user` is the EndpointId.
  failed,          ///< The operating system or device refused; see Transport::last_error().
};

enum class PostState : std::uint8_t {
  accepted,      ///< Every request was taken.
  backpressure,  ///< Queue full: the prefix was taken; poll() and post the rest again.
  broken,        ///< The transport cannot send any more; see Transport::last_error().
};

/// A prefix of `accepted` requests was taken; each of those gets exactly one send completion.
struct PostOutcome {
  std::uint32_t accepted = 0;
  PostState state = PostState::accepted;
};

/// What a backend can do on this machine. Constant after set-up.
struct Capabilities {
  const char* name = "";
  std::uint32_t max_frame_bytes = 0;    ///< Largest frame.
  std::uint32_t max_request_bytes = 0;  ///< Largest request, all its frames together.
  std::uint32_t max_request_slices = 0;
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
};

/// Where a rank can be reached; opaque, versioned, sent through the rendezvous.
struct PeerAddress {
  std::array<std::byte, 96> bytes{};
  std::uint32_t size = 0;
  std::span<const std::byte> view() const noexcept { return {bytes.data(), size}; }
};

/// A multicast group of the job. Every rank of the job that names the same index means the same
/// group; backends map (their job id, index) to a network group.
struct GroupAddress {
  std::uint32_t index = 0;
};

enum class JoinAs : std::uint8_t { receiver, send_only };

using RegionId = std::uint32_t;
using EndpointId = std::uint32_t;
using MembershipId = std::uint32_t;

class Transport;

namespace detail {
enum class HandleKind : std::uint8_t { region, endpoint, membership };
}

/// Move-only owner of something set up in a transport; its destructor undoes it. Must not outlive
/// the transport.
template <detail::HandleKind kind>
class TransportHandle {
 public:
  TransportHandle() = default;
  TransportHandle(Transport* owner, std::uint32_t id) noexcept : owner_(owner), id_(id) {}
  TransportHandle(TransportHandle&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(other.id_) {}
  TransportHandle& operator=(TransportHandle&& other) noexcept {
    if (this != &other) {
      reset();
      owner_ = std::exchange(other.owner_, nullptr);
      id_ = other.id_;
    }
    return *this;
  }
  ~TransportHandle() { reset(); }

  std::uint32_t id() const noexcept { return id_; }
  explicit operator bool() const noexcept { return owner_ != nullptr; }
  void reset() noexcept;

 private:
  Transport* owner_ = nullptr;
  std::uint32_t id_ = 0;
};

using Region = TransportHandle<detail::HandleKind::region>;          ///< Registered memory.
using Endpoint = TransportHandle<detail::HandleKind::endpoint>;      ///< A connected peer.
using Membership = TransportHandle<detail::HandleKind::membership>;  ///< A joined group.

/// A piece of registered memory to send from. Must stay valid and unchanged until the completion.
struct LocalSlice {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  RegionId region = 0;
};

/// Where a request goes: one peer, or the receivers of a group.
struct Destination {
  enum class Kind : std::uint8_t { endpoint, group };
  Kind kind = Kind::endpoint;
  std::uint32_t id = 0;  ///< EndpointId or MembershipId.

  static Destination to(const Endpoint& e) noexcept { return {Kind::endpoint, e.id()}; }
  static Destination to(const Membership& m) noexcept { return {Kind::group, m.id()}; }
};

struct SendRequest {
  Destination destination;
  std::span<const LocalSlice> slices;  ///< The span itself is only read during the post.
  std::uint32_t frame_bytes = 0;       ///< Cut every so many bytes; 0 = one frame.
  std::uint64_t user = 0;              ///< Comes back in the completion.
};

/// Gives a receive buffer back that a completion lent.
struct ReceiveRequest {
  std::uint32_t token = 0;
};

struct Completion {
  enum class Kind : std::uint8_t {
    send,     ///< The request's memory may be reused; `user` is the request's.
    receive,  ///< One or more frames of equal size arrived back to back in `data`.
    lost,     ///< A connected peer vanished, told once; `user` is its EndpointId. A peer that
              ///< closed its endpoint or its transport in good order is not reported.
  };
  Kind kind = Kind::send;
  Status status = Status::ok;
  std::uint32_t token = 0;        ///< receive: pass to post_receives() when done with `data`.
  std::uint32_t bytes = 0;        ///< receive: size of `data`.
  std::uint32_t frame_bytes = 0;  ///< receive: every frame has this size but the last.
  const std::byte* data = nullptr;
  std::uint64_t user = 0;
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

  // Set-up.
  virtual const Capabilities& capabilities() const noexcept = 0;
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

 protected:
  template <detail::HandleKind>
  friend class TransportHandle;
  virtual void release(detail::HandleKind kind, std::uint32_t id) noexcept = 0;
};

template <detail::HandleKind kind>
void TransportHandle<kind>::reset() noexcept {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->release(kind, id_);
}

}  // namespace selmcast
