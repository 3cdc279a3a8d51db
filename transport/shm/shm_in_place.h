// What is read where its sender has it: which memory a rank offers its peers, what it has mapped of
// theirs, and which requests can go that way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/request_shape.h"
#include "transport/shm/shm_ring.h"
#include "transport/shm/shm_segment.h"

namespace selmcast::shm {

/// Registered memory; with a slot when it lies in memory that is exported.
struct RegisteredMemory {
  std::span<const std::byte> memory;
  std::optional<std::uint32_t> slot;
  std::uint64_t offset = 0;  ///< In what is exported.
};

/// Describes `memory` and, when it lies in a SharedMemory, exports that: at most kExportsMax of
/// them, ever; what goes beyond is copied. Set-up.
RegisteredMemory export_memory(SegmentHeader& own, std::span<const std::byte> memory);

/// Whether the request's frames are all a head and a body, as multicast frames are, with the bodies
/// in one exported region and back to back there. `memory_of(RegionId)` is a pointer to
/// RegisteredMemory, not null for a request that was measured.
template <class MemoryOf>
std::optional<PlaceHeader> place_of(const SendRequest& request, const RequestShape& shape,
                                    MemoryOf memory_of) noexcept {
  const auto& slices = request.slices;
  if (slices.empty() || slices.size() != 2 * std::size_t{shape.frames}) return std::nullopt;
  const LocalSlice& first = slices[1];
  const std::uint32_t head = slices[0].bytes;
  if (head == 0 || head >= shape.frame_bytes || first.bytes == 0) return std::nullopt;
  const RegisteredMemory& memory = *memory_of(first.region);
  if (!memory.slot) return std::nullopt;
  const std::uint32_t body = shape.frame_bytes - head;
  for (std::size_t f = 0; f < shape.frames; ++f) {
    const LocalSlice& part = slices[2 * f + 1];
    const bool last = f + 1 == shape.frames;
    const bool whole = part.bytes == body || (last && part.bytes > 0 && part.bytes < body);
    if (slices[2 * f].bytes != head || part.region != first.region || !whole ||
        part.data != first.data + f * body) {
      return std::nullopt;
    }
  }
  const auto from = static_cast<std::uint64_t>(first.data - memory.memory.data());
  return PlaceHeader{.offset = memory.offset + from,
                     .slot = *memory.slot,
                     .head_bytes = head,
                     .body_bytes = shape.bytes - shape.frames * head};
}

/// Whether the peer that `control` belongs to has mapped the slot of the sender with this nonce.
bool has_mapped(const RingControl& control, std::uint64_t nonce, std::uint32_t slot) noexcept;

/// One rank's view of what its peers export. One thread.
class Imports {
 public:
  explicit Imports(std::uint32_t world) : of_rank_(world) {}

  /// Maps what `peer` has exported since the last look and says so in `control`, its ring's here.
  /// `lent`: something of an earlier process of that rank may still be read. System calls, once for
  /// each export.
  void look(const SegmentAddress& peer, const SegmentHeader& header, RingControl& control,
            bool lent);
  /// Where a record's bodies lie, all within what was mapped; null for a place that is not.
  const std::byte* find(Rank sender, const PlaceHeader& place) const noexcept;

 private:
  struct Mapped {
    Mapping memory;
    std::uint64_t bytes = 0;
  };
  struct Peer {
    std::uint64_t nonce = 0;  ///< Of the process that this was mapped of.
    std::uint32_t seen = 0;
    std::array<Mapped, kExportsMax> parts;
  };
  std::vector<Peer> of_rank_;
};

}  // namespace selmcast::shm
