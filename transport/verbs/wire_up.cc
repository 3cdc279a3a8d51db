#include "transport/verbs/wire_up.h"

#include <algorithm>
#include <cstring>

#include "base/wire.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kWireUpMagic = 0x55575256U;  // "VRWU"
constexpr std::uint16_t kWireUpVersion = 1;
constexpr std::uint32_t kPsnMax = 0xFFFFFF;

}  // namespace

void encode_wire_up(const WireUp& message, std::span<std::byte, kWireUpBytes> out) noexcept {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::byte* const at = out.data();
  store_le(at, kWireUpMagic);
  store_le(at + 4, kWireUpVersion);
  store_le(at + 6, static_cast<std::uint16_t>(message.kind));
  store_le(at + 8, message.job);
  store_le(at + 16, message.attempt);
  std::memcpy(at + 24, message.sender.gid.raw, sizeof message.sender.gid.raw);
  store_le(at + 40, message.sender.frames_qpn);
  store_le(at + 44, message.sender.wire_up_qpn);
  store_le(at + 48, message.sender.lid);
  store_le(at + 50, static_cast<std::uint16_t>(message.mtu));
  store_le(at + 52, message.qpn);
  store_le(at + 56, message.psn);
}

std::optional<WireUp> decode_wire_up(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() != kWireUpBytes) return {};
  const std::byte* const at = bytes.data();
  if (load_le<std::uint32_t>(at) != kWireUpMagic ||
      load_le<std::uint16_t>(at + 4) != kWireUpVersion)
    return {};
  const auto kind = load_le<std::uint16_t>(at + 6);
  const auto mtu = load_le<std::uint16_t>(at + 50);
  if (kind != static_cast<std::uint16_t>(WireUp::Kind::ask) &&
      kind != static_cast<std::uint16_t>(WireUp::Kind::answer)) {
    return {};
  }
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return {};
  WireUp out;
  out.kind = static_cast<WireUp::Kind>(kind);
  out.job = load_le<std::uint64_t>(at + 8);
  out.attempt = load_le<std::uint64_t>(at + 16);
  std::memcpy(out.sender.gid.raw, at + 24, sizeof out.sender.gid.raw);
  out.sender.frames_qpn = load_le<std::uint32_t>(at + 40);
  out.sender.wire_up_qpn = load_le<std::uint32_t>(at + 44);
  out.sender.lid = load_le<std::uint16_t>(at + 48);
  out.mtu = static_cast<ibv_mtu>(mtu);
  out.qpn = load_le<std::uint32_t>(at + 52);
  out.psn = load_le<std::uint32_t>(at + 56);
  const bool numbers = out.qpn > 1 && out.qpn < kQueuePairNumberMax && out.psn <= kPsnMax &&
                       load_le<std::uint32_t>(at + 60) == 0;
  return numbers ? std::optional(out) : std::nullopt;
}

}  // namespace selmcast::verbs
