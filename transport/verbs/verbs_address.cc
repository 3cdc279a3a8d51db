#include "transport/verbs/verbs_address.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/wire.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kMagic = 0x53425256U;  // "VRBS"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kHeadBytes = 8;
constexpr std::uint32_t kRailBytes = 26;
static_assert(kHeadBytes + kRailsMax * kRailBytes <= sizeof(PeerAddress::bytes));

bool is_number(std::uint32_t qpn) noexcept {
  // 0 and 1 are the management queue pairs.
  return qpn > 1 && qpn < kQueuePairNumberMax;
}

}  // namespace

bool RailAddress::operator==(const RailAddress& other) const noexcept {
  return std::memcmp(gid.raw, other.gid.raw, sizeof gid.raw) == 0 &&
         frames_qpn == other.frames_qpn && wire_up_qpn == other.wire_up_qpn && lid == other.lid;
}

PeerAddress encode_address(const VerbsAddress& address) noexcept {
  PeerAddress out;
  const std::uint32_t rails = std::min(address.rail_count, kRailsMax);
  std::byte* at = out.bytes.data();
  store_le(at, kMagic);
  store_le(at + 4, kVersion);
  store_le(at + 6, static_cast<std::uint16_t>(rails));
  at += kHeadBytes;
  for (std::uint32_t r = 0; r < rails; ++r, at += kRailBytes) {
    const RailAddress& rail = address.rails[r];
    std::memcpy(at, rail.gid.raw, sizeof rail.gid.raw);
    store_le(at + 16, rail.frames_qpn);
    store_le(at + 20, rail.wire_up_qpn);
    store_le(at + 24, rail.lid);
  }
  out.size = kHeadBytes + rails * kRailBytes;
  return out;
}

Result<VerbsAddress> decode_address(const PeerAddress& address) {
  if (address.size > address.bytes.size() || address.size < kHeadBytes) {
    return bad_input("peer address: " + std::to_string(address.size) +
                     " bytes are not an address of the verbs backend");
  }
  const std::byte* at = address.bytes.data();
  if (load_le<std::uint32_t>(at) != kMagic) {
    return bad_input(
        "peer address: not one of the verbs backend; start every rank with the same transport");
  }
  if (const auto version = load_le<std::uint16_t>(at + 4); version != kVersion) {
    return bad_input("peer address: version " + std::to_string(version) +
                     " of the verbs backend, this build speaks version " +
                     std::to_string(kVersion) + "; use one version on all ranks");
  }
  VerbsAddress out;
  out.rail_count = load_le<std::uint16_t>(at + 6);
  if (out.rail_count == 0 || out.rail_count > kRailsMax ||
      address.size != kHeadBytes + out.rail_count * kRailBytes) {
    return bad_input("peer address: " + std::to_string(out.rail_count) + " devices in " +
                     std::to_string(address.size) + " bytes of the verbs backend");
  }
  at += kHeadBytes;
  for (std::uint32_t r = 0; r < out.rail_count; ++r, at += kRailBytes) {
    RailAddress& rail = out.rails[r];
    std::memcpy(rail.gid.raw, at, sizeof rail.gid.raw);
    rail.frames_qpn = load_le<std::uint32_t>(at + 16);
    rail.wire_up_qpn = load_le<std::uint32_t>(at + 20);
    rail.lid = load_le<std::uint16_t>(at + 24);
    if (!is_number(rail.frames_qpn) || (rail.wire_up_qpn != 0 && !is_number(rail.wire_up_qpn))) {
      return bad_input("peer address: queue pair number " + std::to_string(rail.frames_qpn) +
                       " or " + std::to_string(rail.wire_up_qpn) + " of device " +
                       std::to_string(r) + " is not one of the verbs backend");
    }
  }
  return out;
}

}  // namespace selmcast::verbs
