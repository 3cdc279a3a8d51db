#include "transport/uring/udp_address.h"

#include <algorithm>
#include <string>

#include "base/random.h"
#include "base/wire.h"

namespace selmcast::uring {
namespace {

constexpr std::uint32_t kGroupBase = 0xEFC00000U;  // 239.192.0.0
constexpr std::uint32_t kGroupMask = kGroupsPerJob - 1;
constexpr std::uint64_t kGroupSalt =
    0x75'64'70'2D'67'72'6F'75U;                    // keeps other users of the job id apart
constexpr std::uint32_t kPeerMagic = 0x50444D53U;  // "SMDP"
constexpr std::uint16_t kPeerVersion = 1;

std::uint64_t job_hash(std::uint64_t job) noexcept {
  return mix_seed(job ^ kGroupSalt);
}

}  // namespace

std::optional<UdpTarget> group_target(std::uint64_t job, std::uint32_t index) noexcept {
  if (index >= kGroupsPerJob) return std::nullopt;
  const std::uint64_t hash = job_hash(job);
  constexpr std::uint64_t kPorts = kGroupPortLast - kGroupPortFirst + 1U;
  return UdpTarget{.ipv4 = kGroupBase | ((index ^ static_cast<std::uint32_t>(hash)) & kGroupMask),
                   .port = static_cast<std::uint16_t>(kGroupPortFirst + (hash >> 32U) % kPorts)};
}

std::optional<std::uint32_t> group_index(std::uint64_t job, std::uint32_t ipv4) noexcept {
  if ((ipv4 & ~kGroupMask) != kGroupBase) return std::nullopt;
  return (ipv4 ^ static_cast<std::uint32_t>(job_hash(job))) & kGroupMask;
}

PeerAddress encode_peer(const UdpTarget& peer) noexcept {
  PeerAddress out;
  store_le(out.bytes.data(), kPeerMagic);
  store_le(out.bytes.data() + 4, kPeerVersion);
  store_le(out.bytes.data() + 6, peer.port);
  store_le(out.bytes.data() + 8, peer.ipv4);
  out.size = 12;
  return out;
}

Result<UdpTarget> decode_peer(const PeerAddress& address) {
  if (address.size > address.bytes.size()) {
    return bad_input("peer address: size " + std::to_string(address.size) + " exceeds the " +
                     std::to_string(address.bytes.size()) + " bytes there are");
  }
  WireReader reader(address.view());
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto port = reader.get<std::uint16_t>();
  const auto ipv4 = reader.get<std::uint32_t>();
  if (!magic || *magic != kPeerMagic) {
    return bad_input(
        "peer address: not one of the uring backend; start every rank with the same transport");
  }
  if (!version || *version != kPeerVersion) {
    return bad_input("peer address: version " + std::to_string(version.value_or(0)) +
                     " of the uring backend, this build speaks version " +
                     std::to_string(kPeerVersion) + "; use one version on all ranks");
  }
  if (!reader.finished()) return bad_input("peer address: expected 12 bytes of the uring backend");
  const std::uint32_t top = *ipv4 >> 24U;
  if (*port == 0 || top == 0 || top >= 224) {
    return bad_input("peer address: port 0 or not the address of one host");
  }
  return UdpTarget{.ipv4 = *ipv4, .port = *port};
}

}  // namespace selmcast::uring
