// Where receivers can read a sender's round by RDMA READ, and how they know that what they read was
// that round's: pure functions.
//
// The sender keeps a tag beside its data: the round's number while the data is that round's, 0
// otherwise. Reads from one peer are done in order, so a reader that reads data first and the tag
// afterwards, and finds the round's number, has read the round's data (a sequence lock whose writer
// is known to change the data only while the tag is 0).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transport.h"

namespace selmcast {

struct SnapshotLocation {
  RemoteMemory data;  ///< Of byte 0 of the round.
  RemoteMemory tag;   ///< Of eight bytes, little-endian, aligned.
  bool operator==(const SnapshotLocation&) const = default;
};

inline constexpr std::size_t kLocationBytes = 40;
/// Of a TAIL: the digest, then the location. No other payload without a list is as long.
inline constexpr std::size_t kTailPayloadMax = 8 + kLocationBytes;

/// Never 0: epochs count from 1.
constexpr std::uint64_t round_tag(std::uint32_t epoch, std::uint32_t round) noexcept {
  return (std::uint64_t{epoch} << 32U) | round;
}

/// Little-endian: data address u64, data keys 3 x u32, tag address u64, tag keys 3 x u32.
void encode_location(const SnapshotLocation& location,
                     std::span<std::byte, kLocationBytes> out) noexcept;
/// Reads what encode_location() wrote; nothing for another size. Addresses are the sender's word:
/// a wrong one makes a read fail or what it brings fail its digest.
std::optional<SnapshotLocation> decode_location(std::span<const std::byte> bytes) noexcept;

}  // namespace selmcast
