// Which network interface leads to the job's store: where the user names none, ranks use that one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "store/rendezvous.h"

namespace selmcast {

struct StoreRoute {
  std::string interface;   ///< E.g. "eth0".
  std::uint32_t ipv4 = 0;  ///< This host's address on the way, host byte order; 0: it is IPv6.
  bool loopback = false;   ///< The store is on this host, under an address that no other reaches.
  std::string why;         ///< Completes "interface eth0 was taken because ".
};

/// By the kernel's routing table; nothing is sent. A store under one of this host's own addresses
/// is reached through that address's interface, loopback only under a loopback address or a path.
/// Errors: bad_input for a host that does not resolve, unavailable when no route leads there or its
/// interface cannot be told; with what to do.
Result<StoreRoute> route_to(const StoreAddress& store);

}  // namespace selmcast
