// The probe's own packet: a 40-byte little-endian header, padded to a full frame for data.
//
//  0 u16 magic    2 u8 version   3 u8 kind   4 u32 job     8 u32 sender   12 u32 train
// 16 u32 sequence 20 u32 count  24 u64 stamp 32 u16 flags 34 u16 zero     36 u32 CRC32C of all
// other bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/units.h"

namespace selmcast {

inline constexpr std::uint32_t kProbeHeaderBytes = 40;
inline constexpr std::uint16_t kProbeMagic = 0x5EB0;  ///< Differs from that of multicast frames.
inline constexpr std::uint8_t kProbeVersion = 1;

enum class ProbeKind : std::uint8_t {
  data = 1,  ///< Frame number `sequence` of the train, sent at `stamp` on the sender's clock.
  fin = 2,   ///< The train had `sequence` frames.
  ack = 3,   ///< Frames up to `sequence` were seen, `count` arrived; `stamp` is the last one's.
  ping = 4,  ///< Answer me; sent at `stamp`.
  pong = 5,  ///< The answer; `stamp` is the ping's.
};

namespace probe_flag {
inline constexpr std::uint16_t kFinSeen = 1;  ///< ack: the fin has arrived.
inline constexpr std::uint16_t kAckNow = 2;   ///< data: acknowledge without delay.
}  // namespace probe_flag

struct ProbePacket {
  ProbeKind kind = ProbeKind::data;
  std::uint32_t job = 0;
  Rank sender = 0;
  std::uint32_t train = 0;
  std::uint32_t sequence = 0;
  std::uint32_t count = 0;
  std::uint64_t stamp = 0;  ///< Nanoseconds of the clock of the rank that will read it.
  std::uint16_t flags = 0;

  bool operator==(const ProbePacket&) const = default;
};

/// Writes the header into frame[0..40). The CRC covers the rest of the frame, which is left as it
/// is.
void encode_probe(const ProbePacket& packet, std::span<std::byte> frame) noexcept;

/// Empty unless size, magic, version, kind, CRC and job are right and the sender is below `world`.
/// Hostile bytes are safe.
std::optional<ProbePacket> parse_probe(std::span<const std::byte> frame, std::uint32_t job,
                                       std::uint32_t world) noexcept;

}  // namespace selmcast
