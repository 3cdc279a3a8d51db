// How the UDP backend names peers and groups: pure functions, no sockets.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/transport.h"

namespace selmcast::uring {

/// An IPv4 address and a UDP port, both in host byte order.
struct UdpTarget {
  std::uint32_t ipv4 = 0;
  std::uint16_t port = 0;
  friend bool operator==(const UdpTarget&, const UdpTarget&) = default;
};

/// Groups a job can name: GroupAddress::index lies below it.
inline constexpr std::uint32_t kGroupsPerJob = 1U << 18U;

/// The ports that group traffic of jobs is spread over: above Linux's default range of ephemeral
/// ports (32768..60999), so that no unicast socket takes one by chance.
inline constexpr std::uint16_t kGroupPortFirst = 61000;
inline constexpr std::uint16_t kGroupPortLast = 65535;

/// Address and port of group `index` of `job`, or nothing when index >= kGroupsPerJob.
/// The address is 239.192.0.0/14 (organisation-local scope, RFC 2365 section 6.2) with the low 18
/// bits index xor hash(job): one to one within a job, and since all 18 bits lie in the 23 that
/// Ethernet takes over (RFC 1112 section 6.4), distinct groups have distinct MAC addresses too.
/// The port depends on the job alone. Two jobs of a network may still share both; their frames
/// are then told apart by the frame header only.
std::optional<UdpTarget> group_target(std::uint64_t job, std::uint32_t index) noexcept;

/// The inverse: the index whose group has `ipv4` in `job`, or nothing outside 239.192.0.0/14.
std::optional<std::uint32_t> group_index(std::uint64_t job, std::uint32_t ipv4) noexcept;

/// Wire form of a peer's address, version 1, little-endian: magic u32, version u16, port u16,
/// IPv4 u32.
PeerAddress encode_peer(const UdpTarget& peer) noexcept;

/// Reads what encode_peer() wrote, from hostile bytes. Error bad_input: another backend's or
/// version's address, wrong size, port 0, or an address that is not a unicast host.
Result<UdpTarget> decode_peer(const PeerAddress& address);

}  // namespace selmcast::uring
