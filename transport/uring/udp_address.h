// How the UDP backend names peers and groups: pure functions, no sockets.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/group_address.h"
#include "transport/transport.h"

namespace selmcast::uring {

/// An IPv4 address and a UDP port, both in host byte order.
struct UdpTarget {
  std::uint32_t ipv4 = 0;
  std::uint16_t port = 0;
  friend bool operator==(const UdpTarget&, const UdpTarget&) = default;
};

/// The ports that group traffic of jobs is spread over: above Linux's default range of ephemeral
/// ports (32768..60999), so that no unicast socket takes one by chance.
inline constexpr std::uint16_t kGroupPortFirst = 61000;
inline constexpr std::uint16_t kGroupPortLast = 65535;

/// Address (see transport/group_address.h) and port of group `index` of `job`, or nothing when
/// index >= kGroupsPerJob. The port depends on the job alone.
std::optional<UdpTarget> group_target(std::uint64_t job, std::uint32_t index) noexcept;

/// Wire form of a peer's address, version 1, little-endian: magic u32, version u16, port u16,
/// IPv4 u32.
PeerAddress encode_peer(const UdpTarget& peer) noexcept;

/// Reads what encode_peer() wrote, from hostile bytes. Error bad_input: another backend's or
/// version's address, wrong size, port 0, or an address that is not a unicast host.
Result<UdpTarget> decode_peer(const PeerAddress& address);

}  // namespace selmcast::uring
