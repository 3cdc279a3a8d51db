// The network interface a transport uses, as the kernel describes it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace selmcast::uring {

struct NetworkInterface {
  std::string name;
  int index = 0;
  std::uint32_t ipv4 = 0;  ///< An address of it, host byte order.
  std::uint32_t mtu = 0;   ///< Largest IP packet in bytes.
  bool loopback = false;
};

/// Looks up `name`; an empty name means lo, where ranks of one host meet. Of several addresses
/// takes `ipv4`, or the first where it has no such one.
/// Errors: bad_input when there is none of that name (the text lists those present); unavailable,
/// with the remedy, when it is down or has no IPv4 address.
Result<NetworkInterface> find_interface(const std::string& name, std::uint32_t ipv4 = 0);

}  // namespace selmcast::uring
