#include "transport/verbs/packet_size.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kIpv4 = 20, kIpv6 = 40, kUdp = 8;
constexpr std::uint32_t kLrh = 8, kGrh = 40, kVcrc = 2;
constexpr std::uint32_t kBth = 12, kDeth = 8, kAeth = 4, kIcrc = 4;

/// Around BTH and ICRC; `grh`: on InfiniBand, whether there is one.
constexpr std::uint32_t network_headers(GidKind kind, bool grh) noexcept {
  switch (kind) {
    case GidKind::rocev2_ipv4:
      return kIpv4 + kUdp;
    case GidKind::rocev2_ipv6:
    case GidKind::rocev2_link_local:
      return kIpv6 + kUdp;
    case GidKind::infiniband:
      break;
  }
  return kLrh + (grh ? kGrh : 0) + kVcrc;
}

}  // namespace

std::uint32_t datagram_headers(GidKind kind) noexcept {
  return network_headers(kind, true) + kBth + kDeth + kIcrc;
}

std::uint32_t datagram_within(std::uint32_t bytes, GidKind kind) noexcept {
  const std::uint32_t headers = datagram_headers(kind);
  return bytes < headers ? 0 : (bytes - headers) / 4 * 4;
}

std::optional<ibv_mtu> path_mtu_within(std::uint32_t bytes, GidKind kind) noexcept {
  const std::uint32_t headers = network_headers(kind, false) + kBth + kAeth + kIcrc;
  for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512, IBV_MTU_256}) {
    if (bytes_of(mtu) + headers <= bytes) return mtu;
  }
  return {};
}

}  // namespace selmcast::verbs
