// A simulated network in virtual time: seeded, single-threaded, replayable bit for bit.
//
// Model. Each rank has a full-duplex link to one switch. A request leaves as frames, one after the
// other at the sender's transmit rate; the switch, when it has the whole frame, replicates a
// group's frames to the ports that joined it (never back to the sender's); each receiver's port
// serialises at its receive rate behind a bounded queue (tail drop), then `delay` passes. Per-link
// faults apply to each copy as it reaches the receiver's port. Then frames wait in the rank's inbox
// (the socket buffer of a real host) until poll(); a full inbox drops.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "transport/transport.h"

namespace selmcast {

namespace detail {
class SimCore;
}

/// One rank's link. Rates 0 = infinitely fast.
struct SimLink {
  Kbps tx_kbps = 0;
  Kbps rx_kbps = 0;
  Duration delay{std::chrono::microseconds(10)};
  std::uint64_t queue_bytes =
      4U << 20U;           ///< Port buffer before the receiver; beyond it: tail drop.
  double loss = 0.0;       ///< Chance that a frame copy vanishes before it takes any port time.
  double duplicate = 0.0;  ///< Chance that a copy comes twice; both take port time.
  double reorder = 0.0;    ///< Chance that a frame copy is held back.
  Duration reorder_by{std::chrono::microseconds(200)};  ///< Held back for up to this long.
  double corrupt = 0.0;  ///< Chance that one bit of a frame copy flips.
};

struct SimConfig {
  std::uint64_t seed = 1;
  std::uint32_t max_frame_bytes = 1472;
  std::uint32_t max_request_frames = 44;
  std::uint32_t send_depth = 64;
  std::uint32_t receive_buffers = 1024;
  std::uint32_t wire_overhead_bytes = 42;
  /// Room for frames (with wire overhead) that arrived and were not polled. Half of it, or of the
  /// port's queue if that is smaller, is what capabilities() offer as receive window.
  std::uint64_t inbox_bytes = 4U << 20U;
  Duration join_settle{};  ///< How long the switch takes to learn of a join.
  /// A fabric with back-pressure: ports and inboxes are unbounded, links must be without loss,
  /// duplication, reordering and corruption, and capabilities() say loses_frames = false.
  bool lossless = false;
  bool arrival_times = false;  ///< Timestamps: virtual time, of each rank's own zero.
  /// A frame copy from `from` to `to` vanishes as it would by SimLink::loss where this says so;
  /// empty: none. For faults that hit some frames only. Not with `lossless`.
  std::function<bool(Rank from, Rank to, std::span<const std::byte> frame)> loses;
  std::vector<SimLink> links;  ///< One per rank; its size is the number of ranks.
};

/// The network and its clock. Owns everything in flight. Must outlive its transports. One thread.
/// Chances outside [0, 1], negative times, a crash of a rank that does not exist and the like are
/// programmer errors (CHECK).
///
/// A transport of this network: wait() and wake() do nothing, because the driver moves time; memory
/// of a request is read when its frames leave, not at the post; the `lost` status and completion of
/// a peer follow crash(); destroying a transport is silent for its peers; giving back a buffer that
/// was not lent is a CHECK. Its data calls may allocate while its queues grow to their depth.
class SimNetwork {
 public:
  explicit SimNetwork(SimConfig config);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  const Clock& clock() const noexcept;
  /// The transport of one rank; at most once per rank.
  std::unique_ptr<Transport> attach(Rank rank);

  /// Time of the next event; kNever when nothing is in flight.
  TimePoint next_event() const noexcept;
  /// Moves the clock to `to` (>= now) and carries out every event up to it, in a fixed order: by
  /// time, then by when it was scheduled.
  void advance_to(TimePoint to);

  // Faults, from now on. What a port already queued keeps its times.
  void set_link(Rank rank, const SimLink& link);
  /// Cuts (or heals) both directions between two ranks; what the switch has passed on still
  /// arrives.
  void partition(Rank a, Rank b, bool cut);
  /// The rank falls silent for ever: what it sent and the switch already has still arrives. Peers
  /// get a `lost` completion `notice` later (never if notice is kNever's distance). Its own
  /// transport is `broken` from now on and polls empty.
  void crash(Rank rank, Duration notice);

  /// Hash over every delivery so far (time, destination, bytes): equal for equal seeds.
  std::uint64_t trace_hash() const noexcept;
  /// Bytes (with wire overhead) that crossed a rank's transmit and receive port.
  std::uint64_t wire_bytes_sent(Rank rank) const noexcept;
  std::uint64_t wire_bytes_received(Rank rank) const noexcept;
  /// Frame copies for this rank that its port had no room for.
  std::uint64_t tail_dropped_frames(Rank rank) const noexcept;
  /// Requests of a rank's transport that were larger than its Capabilities allow: nothing of them
  /// was sent.
  std::uint64_t oversize_requests(Rank rank) const noexcept;
  /// Frame buffers in use: in flight, in inboxes, or lent. 0 when everything was given back.
  std::size_t buffers_in_use() const noexcept;

 private:
  std::unique_ptr<detail::SimCore> core_;
};

}  // namespace selmcast
