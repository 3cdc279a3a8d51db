#include "probes/probe_packet.h"

#include "base/check.h"
#include "base/checksum.h"
#include "base/wire.h"

namespace selmcast {
namespace {

constexpr std::size_t kCrcAt = 36;

std::uint32_t packet_crc(std::span<const std::byte> frame) noexcept {
  return crc32c(crc32c(0, frame.first(kCrcAt)), frame.subspan(kProbeHeaderBytes));
}

}  // namespace

void encode_probe(const ProbePacket& packet, std::span<std::byte> frame) noexcept {
  SELMCAST_CHECK(frame.size() >= kProbeHeaderBytes, "a probe frame needs room for its header");
  std::byte* out = frame.data();
  store_le(out, kProbeMagic);
  store_le(out + 2, kProbeVersion);
  store_le(out + 3, static_cast<std::uint8_t>(packet.kind));
  store_le(out + 4, packet.job);
  store_le(out + 8, packet.sender);
  store_le(out + 12, packet.train);
  store_le(out + 16, packet.sequence);
  store_le(out + 20, packet.count);
  store_le(out + 24, packet.stamp);
  store_le(out + 32, packet.flags);
  store_le(out + 34, std::uint16_t{0});
  store_le(out + kCrcAt, packet_crc(frame));
}

std::optional<ProbePacket> parse_probe(std::span<const std::byte> frame, std::uint32_t job,
                                       std::uint32_t world) noexcept {
  if (frame.size() < kProbeHeaderBytes) return std::nullopt;
  const std::byte* in = frame.data();
  const auto kind = load_le<std::uint8_t>(in + 3);
  if (load_le<std::uint16_t>(in) != kProbeMagic || load_le<std::uint8_t>(in + 2) != kProbeVersion ||
      kind < static_cast<std::uint8_t>(ProbeKind::data) ||
      kind > static_cast<std::uint8_t>(ProbeKind::pong) || load_le<std::uint16_t>(in + 34) != 0 ||
      load_le<std::uint32_t>(in + kCrcAt) != packet_crc(frame)) {
    return std::nullopt;
  }
  const ProbePacket packet{.kind = static_cast<ProbeKind>(kind),
                           .job = load_le<std::uint32_t>(in + 4),
                           .sender = load_le<std::uint32_t>(in + 8),
                           .train = load_le<std::uint32_t>(in + 12),
                           .sequence = load_le<std::uint32_t>(in + 16),
                           .count = load_le<std::uint32_t>(in + 20),
                           .stamp = load_le<std::uint64_t>(in + 24),
                           .flags = load_le<std::uint16_t>(in + 32)};
  if (packet.job != job || packet.sender >= world) return std::nullopt;
  return packet;
}

}  // namespace selmcast
