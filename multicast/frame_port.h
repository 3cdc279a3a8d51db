// The sending side of a transport as the sessions see it: frames to ranks and groups, from a fixed
// arena of headers, batched into one post per turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/fixed_stack.h"
#include "base/result.h"
#include "multicast/frame.h"
#include "multicast/snapshot.h"
#include "multicast/stream_shape.h"
#include "transport/transport.h"

namespace selmcast {

/// Frame bytes (header and payload) handed to the transport since the port was made.
struct PortCounters {
  std::uint64_t first_bytes = 0;  ///< First transmissions by the planned way.
  std::uint64_t patch_bytes = 0;  ///< First transmissions that patch a ring plan.
  std::uint64_t repair_bytes = 0;
  std::uint64_t control_bytes = 0;
  std::uint64_t repaired_frames = 0;
  std::uint64_t send_failures = 0;  ///< Completions with a status other than ok.
};

/// Consecutive frames of a stream to send as one request.
struct FrameRun {
  std::uint32_t epoch = 0;
  std::uint32_t round = 0;
  std::uint16_t stream = 0;
  std::uint16_t flags = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;          ///< At most StreamShape::chunk_frames.
  const std::byte* data = nullptr;  ///< Start of the stream.
  RegionId region = 0;
  const std::uint16_t* weights = nullptr;  ///< By frame: FrameHeader::weight; null: 1.
  /// By frame of the stream: FrameHeader::check; null where the medium checks.
  const std::uint32_t* checks = nullptr;
};

class ReadRepair;

struct PortSettings {
  std::uint32_t job = 0;
  Rank self = 0;
  std::uint32_t world = 1;
  /// Header and payload of the job's largest data frames; control frames are no larger. At least
  /// FramePort::kFrameBytesLeast.
  std::uint32_t frame_bytes = 0;
  std::uint32_t chunk_frames = 1;  ///< Bounds FrameRun::count.
  std::uint32_t streams = 1;       ///< Bounds FrameRun::stream.
};

/// One thread. Must be destroyed before its transport.
class FramePort {
 public:
  /// Registers the header arena. Errors of the transport pass through; bad_input where frames are
  /// too small.
  static Result<std::unique_ptr<FramePort>> make(Transport& transport,
                                                 const PortSettings& settings);

  Result<void> connect(Rank rank, const PeerAddress& address);
  /// Gives the rank up for good: frames to it are discarded, and on transports where a receiver
  /// that does not read holds up its senders, it holds up nobody any more.
  void disconnect(Rank rank) noexcept { endpoints_[rank].reset(); }
  /// What was sent to the rank may change although it did not say that it has it.
  void withdraw(Rank rank) noexcept;
  /// The same for all ranks; does nothing from the second call on.
  void withdraw_all() noexcept;
  Rank self() const noexcept { return self_; }
  std::uint32_t world() const noexcept { return world_; }
  std::uint32_t streams() const noexcept {
    return static_cast<std::uint32_t>(data_in_flight_.size());
  }
  Transport& transport() const noexcept { return transport_; }
  /// A reason to give up on sending altogether, see Transport::last_error().
  bool broken() const noexcept { return broken_; }

  /// Queues one control frame to `to`; header.sender, job and length are filled in. False: no slot
  /// is free, try again next turn. payload.size() <= control_payload_max().
  bool send_control(Rank to, FrameHeader header, std::span<const std::byte> payload) noexcept;
  /// Queues frames of a stream. False: no slot is free.
  bool send_frames(Destination to, const StreamShape& shape, const FrameRun& run) noexcept;
  Destination destination(Rank rank) const noexcept { return Destination::to(endpoints_[rank]); }

  /// Posts what was queued. Call once per turn.
  void flush() noexcept;
  void on_send_completion(const Completion& completion) noexcept;
  /// Data requests of a stream queued or posted and not completed: their memory must stay
  /// unchanged.
  std::uint32_t data_in_flight(std::uint16_t stream) const noexcept {
    return data_in_flight_[stream];
  }
  /// Whether what is in frames is safe without FrameHeader::check.
  bool medium_checks() const noexcept { return medium_checks_; }
  /// Who reads missing frames from their senders; null: they are asked for by NACK.
  ReadRepair* read_repair() const noexcept { return read_repair_; }
  void set_read_repair(ReadRepair* read_repair) noexcept { read_repair_ = read_repair; }
  /// Whether receivers may read what is sent from here.
  bool readable() const noexcept { return static_cast<bool>(tags_region_); }
  /// The tag of a stream's round (multicast/snapshot.h), readable by peers; 0: no round's data.
  /// Release: a peer's device that sees the tag sees the data written before.
  void set_tag(std::uint16_t stream, std::uint64_t tag) noexcept;
  /// Where peers read `data`, in a region of RemoteReads. Needs readable().
  SnapshotLocation location(std::uint16_t stream, RegionId region,
                            const std::byte* data) const noexcept;
  bool data_slot_free() const noexcept { return !free_data_.empty(); }

  const PortCounters& counters() const noexcept { return counters_; }

  /// What fits a control frame of this job.
  std::uint32_t control_payload_max() const noexcept { return control_payload_max_; }
  static constexpr std::uint32_t kFrameBytesLeast = kFrameHeaderBytes + kTailPayloadMax;

 private:
  FramePort(Transport& transport, const PortSettings& settings);
  void enqueue(Destination to, std::uint32_t slot, std::uint32_t slices,
               std::uint32_t frame_bytes) noexcept;
  LocalSlice* slices_of(std::uint32_t slot) noexcept;

  Transport& transport_;
  RemoteReads* reads_;  ///< The transport's; null: it has none.
  std::uint32_t job_, self_, world_, control_payload_max_, chunk_frames_;
  bool medium_checks_;
  std::uint32_t data_slots_ = 0, control_slots_ = 0;
  std::vector<std::uint32_t> data_in_flight_;  ///< By stream.
  std::vector<std::uint16_t> stream_of_slot_;
  bool broken_ = false, withdrawn_ = false;
  Arena arena_;  ///< Headers of data slots, then control frames.
  Region arena_region_;
  std::vector<LocalSlice> slices_;
  FixedStack<std::uint32_t> free_data_, free_control_;  ///< Slot numbers.
  std::vector<SendRequest> queue_;  ///< Not yet posted: [queue_head_, queue_size_).
  std::size_t queue_head_ = 0, queue_size_ = 0;
  std::vector<Endpoint> endpoints_;
  std::vector<std::uint64_t> tags_;  ///< By stream.
  Region tags_region_;               ///< Where the transport has reads.
  ReadRepair* read_repair_ = nullptr;
  PortCounters counters_;
};

}  // namespace selmcast
