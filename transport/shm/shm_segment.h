// Shared segments: making one's own, mapping a peer's, and telling whether a peer still lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/shm/shm_layout.h"
#include "transport/transport.h"

namespace selmcast::shm {

/// Memory mapped from a file descriptor; unmapped in the destructor. Not inherited by fork().
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* at, std::size_t bytes) noexcept : at_(static_cast<std::byte*>(at)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const noexcept { return at_; }
  explicit operator bool() const noexcept { return at_ != nullptr; }

 private:
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Which process, on which host, holds the segment of which rank: the content of a PeerAddress.
struct SegmentAddress {
  std::uint64_t nonce = 0;       ///< Random, also in the segment.
  std::uint64_t start_time = 0;  ///< Of the process (clock ticks since boot): tells a reused pid.
  std::uint64_t job = 0;
  std::uint64_t boot = 0;  ///< Identity of the running kernel: same host.
  std::uint64_t pids = 0;  ///< Identity of the PID namespace.
  std::uint32_t pid = 0;
  std::uint32_t fd = 0;
  Rank rank = 0;
  std::uint32_t world = 0;
  std::uint32_t ring_bytes = 0;

  bool operator==(const SegmentAddress&) const = default;
};

PeerAddress encode_address(const SegmentAddress& address);
/// bad_input when it is not an address of this backend and version.
Result<SegmentAddress> decode_address(const PeerAddress& address);

/// One's own segment.
struct OwnSegment {
  UniqueFd fd;
  Mapping memory;
  SegmentAddress address;

  SegmentHeader& header() const noexcept;
  RingControl& control(std::uint32_t sender) const noexcept;
  std::byte* ring(std::uint32_t sender) const noexcept;
};
/// unavailable, with the remedy, when the kernel lacks memfd seals, pidfd or futexes.
Result<OwnSegment> create_segment(std::uint64_t job, Rank rank, std::uint32_t world,
                                  std::uint32_t ring_bytes);

/// What a sender maps of a peer: header and controls, and its own ring.
struct PeerSegment {
  Mapping shared;
  Mapping ring;
  UniqueFd pidfd;  ///< Readable once the process has ended. None for a peer in this process.

  SegmentHeader& header() const noexcept;
  RingControl& control(std::uint32_t sender) const noexcept;
};
/// Maps the ring of `own` in the segment at `peer`. bad_input when the two do not fit together
/// (host, job, world), failed when the peer is gone or its segment is not what the address says.
Result<PeerSegment> map_peer(const SegmentAddress& own, const SegmentAddress& peer);

/// Maps, for reading, what the peer exports. Nothing when it cannot be had any more or is not what
/// the export says, or this process has no room for it: then it does without.
Mapping map_export(const SegmentAddress& peer, const Export& what);

}  // namespace selmcast::shm
