// What a transport is opened with.
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace selmcast {

/// What every backend needs to know to open. Fields a backend has no use for are ignored.
struct TransportConfig {
  std::uint64_t job = 0;  ///< Same on all ranks of a job, different between jobs of a network.
  Rank rank = 0;
  std::uint32_t world = 1;
  /// Network interface (uring), or RDMA devices (verbs): DEVICE[:PORT[:GID_INDEX]], joined by '+'
  /// to stripe over several. Empty picks one. Error if it is missing.
  std::string interface;
  std::uint32_t ipv4 = 0;            ///< uring: which of the interface's addresses; 0: its first.
  bool shared_receive_queue = true;  ///< verbs: one for all queue pairs, where the device can.
  /// An ability that costs something where it is there (abilities.h). Verbs has it with one device;
  /// a notice tells where that cannot do it.
  bool timestamps = false;
  std::uint32_t mtu = 0;  ///< Upper bound on the IP packet size; 0 takes the interface's.
};

}  // namespace selmcast
