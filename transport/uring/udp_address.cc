#include "transport/uring/udp_address.h"

#include <algorithm>
#include <string>

#include "base/wire.h"

namespace selmcast::uring {
namespace {

constexpr std::uint32_t kPeerMagic = 0x50444D53U;  // "SMDP"
constexpr std::uint16_t kPeerVersion = 1;

}  // namespace

std::optional<UdpTarget> group_target(std::uint64_t job, std::uint32_t index) noexcept {
  const auto ipv4 = group_ipv4(job, index);
  if (!ipv4) return std::nullopt;
  constexpr std::uint64_t kPorts = kGroupPortLast - kGroupPortFirst + 1U;
  return UdpTarget{
      .ipv4 = *ipv4,
      .port = static_cast<std::uint16_t>(kGroupPortFirst + (group_hash(job) >> 32U) % kPorts)};
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
