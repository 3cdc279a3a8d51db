// What of a packet is not payload, and what therefore fits into packets of a given size. Pure.
//
// The size is that of the IP packet (RoCE). InfiniBand has none: there it is the whole packet on
// the link, from its LRH to its VCRC.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

/// Of a UD datagram. On InfiniBand as to a group, with a GRH, which unicast does without.
std::uint32_t datagram_headers(GidKind kind) noexcept;

/// The longest UD message within packets of `bytes`, a whole number of four bytes, since packets
/// are padded to that; 0: none is.
std::uint32_t datagram_within(std::uint32_t bytes, GidKind kind) noexcept;

/// The largest path MTU with which answers to RDMA READs are within packets of `bytes`.
std::optional<ibv_mtu> path_mtu_within(std::uint32_t bytes, GidKind kind) noexcept;

/// Bytes of a path MTU.
constexpr std::uint32_t bytes_of(ibv_mtu mtu) noexcept {
  return 128U << static_cast<unsigned>(mtu);
}

}  // namespace selmcast::verbs
