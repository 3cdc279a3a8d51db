// UDP sockets of the kinds this backend needs, with their options set.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/uring/network_interface.h"
#include "transport/uring/udp_address.h"

namespace selmcast::uring {

/// A UDP socket for sending to peers and groups and receiving from peers: bound to the interface's
/// address and a port of the kernel's choice; multicast leaves by the interface, with a hop limit
/// of 1, and reaches members on this host. Blocking, since io_uring waits for room only then.
Result<UniqueFd> open_unicast_socket(const NetworkInterface& interface);

/// A UDP socket for receiving groups on `port`. Hears only groups it joins itself
/// (IP_MULTICAST_ALL off); its datagrams come with their destination address (IP_PKTINFO). Error
/// unavailable when a program that does not share the port holds it.
Result<UniqueFd> open_group_socket(std::uint16_t port);

/// Adds or drops a membership of `group` (host byte order) on `interface`; returns 0 or errno.
int change_membership(int fd, std::uint32_t group, const NetworkInterface& interface,
                      bool member) noexcept;

/// The port the socket is bound to, or the error.
Result<std::uint16_t> bound_port(int fd);

/// Bytes of receive buffer that the kernel granted, its own bookkeeping included.
std::uint64_t granted_receive_buffer(int fd) noexcept;

/// Datagrams (a batch that arrived as one counts once) dropped for want of room; 0 if not known.
std::uint64_t socket_drops(int fd) noexcept;

/// Memberships the kernel allows one socket (net.ipv4.igmp_max_memberships).
std::uint32_t memberships_per_socket();

}  // namespace selmcast::uring
