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
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "transport/requests.h"

namespace selmcast {

/// What a backend can do on this machine. Constant after set-up.
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
  /// Peers' readable memory can be read (post_reads()); their processors take no part in it.
  bool reads = false;
  /// Receives that a landing queue holds at once; 0: there are none (join_landing()).
  std::uint32_t landing_depth = 0;
  bool arrival_times = false;  ///< Receives tell when they came (Completion::device_ns).
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

  /// What a request names when it goes to this handle.
  static constexpr auto kDestination =
      kind == detail::HandleKind::endpoint ? Destination::Kind::endpoint : Destination::Kind::group;
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
  /// The same, and where capabilities().reads peers may read it.
  virtual Result<Region> register_readable(std::span<const std::byte> memory) {
    return register_memory(memory);
  }
  /// Memory that what is read from peers arrives in, or the places of post_landings(). Needs
  /// capabilities().reads or landing_depth.
  virtual Result<Region> register_landing([[maybe_unused]] std::span<std::byte> memory) {
    return unavailable("this transport cannot read from peers, nor put frames in place");
  }
  /// Where peers read `at`, which lies in a region of register_readable().
  virtual RemoteMemory remote_memory([[maybe_unused]] RegionId region,
                                     [[maybe_unused]] const std::byte* at) const noexcept {
    return {};
  }
  /// At most one endpoint per peer at a time; a backend may refuse a second. It can be closed and
  /// made again.
  virtual Result<Endpoint> connect(const PeerAddress& peer) = 0;
  /// As `receiver`, frames of the group arrive until the membership is destroyed; posting to the
  /// group is allowed in both modes. A sender that is also a receiver of its group may or may not
  /// get its own frames back. A rank is never handed frames of a group it did not join.
  virtual Result<Membership> join(GroupAddress group, JoinAs as) = 0;
  /// As `receiver`, with a *landing queue*: the group's frames are received by what post_landings()
  /// posts, one after the other, and lost where nothing is posted. Several such memberships of a
  /// group share its queue. Error unavailable: no room for another queue, or the group was joined
  /// without; join() may still do. Needs capabilities().landing_depth.
  virtual Result<Membership> join_landing([[maybe_unused]] GroupAddress group) {
    return unavailable("this transport has no landing queues");
  }

  /// Has the device send no faster than `wire_kbps` in all, frames to all destinations together; 0:
  /// as fast as it can. A bound for what sessions pace anyway, so that their bursts leave evenly.
  /// False: the device cannot, or not at this rate, and sends as fast as it can. System calls,
  /// hence for changes of plan only.
  virtual bool limit_rate([[maybe_unused]] Kbps wire_kbps) noexcept { return false; }

  // Data.
  /// Requests to one destination arrive in the order posted where nothing is lost and
  /// capabilities().loses_frames is false. Errors of a single request come as its completion.
  virtual PostOutcome post_sends(std::span<const SendRequest> requests) noexcept = 0;
  /// Whether reads from this peer can be posted. The first call has the way to it made, which takes
  /// a while; after an error it is made anew.
  virtual bool can_read([[maybe_unused]] EndpointId peer) noexcept { return false; }
  /// Takes a prefix like post_sends(). A peer for which can_read() is false is backpressure.
  virtual PostOutcome post_reads([[maybe_unused]] std::span<const ReadRequest> requests) noexcept {
    return {.accepted = 0, .state = PostState::backpressure};
  }
  virtual PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept = 0;
  /// Adds receives to the end of a landing queue: a prefix, like post_sends(). Frames take them in
  /// this order, and completions come in it. The device may write to a place from now on until the
  /// completion, or until the receive is dropped.
  virtual PostOutcome post_landings(
      [[maybe_unused]] MembershipId group,
      [[maybe_unused]] std::span<const LandingRequest> requests) noexcept {
    return {.accepted = 0, .state = PostState::backpressure};
  }
  /// Drops all receives of the queue that have not completed: when this returns true, nothing
  /// writes to their places any more, and no completion of them comes. False: the device refuses,
  /// see last_error(). For after a loss: may enter the kernel.
  virtual bool take_back([[maybe_unused]] MembershipId group) noexcept { return false; }
  /// How often the queue's receives were dropped, by take_back() or by the transport after an error
  /// of the device. What poll() handed out before still counts.
  virtual std::uint32_t landing_drops([[maybe_unused]] MembershipId group) const noexcept {
    return 0;
  }
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
};

template <detail::HandleKind kind>
void TransportHandle<kind>::reset() noexcept {
  if (owner_ != nullptr) std::exchange(owner_, nullptr)->release(kind, id_);
}

}  // namespace selmcast
