// Opens a backend by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace selmcast {

/// What every backend needs to know to open. Fields a backend has no use for are ignored.
struct TransportConfig {
  std::uint64_t job = 0;  ///< Same on all ranks of a job, different between jobs of a network.
  Rank rank = 0;
  std::uint32_t world = 1;
  /// Network interface (uring), or RDMA devices (verbs): DEVICE[:PORT[:GID_INDEX]], joined by '+'
  /// to stripe over several. Empty picks one. Error if it is missing.
  std::string interface;
  bool shared_receive_queue = true;  ///< verbs: one for all queue pairs, where the device can.
  /// Wanted abilities that cost something where they are there (abilities.h). Verbs has them with
  /// one device; a notice tells where that cannot do it.
  bool placed_receives = false;
  bool timestamps = false;
  std::uint32_t mtu = 0;  ///< Upper bound on the IP packet size; 0 takes the interface's.
};

/// One line of `selmcast doctor`.
struct BackendState {
  std::string name;
  bool usable = false;
  std::string reason;  ///< Why not, with the remedy; or what it found.
};

/// `name` is shm, uring, verbs, or auto (shm never: ranks may be on several hosts; auto is uring).
/// Errors: bad_input for an unknown name or a missing interface, unavailable when the machine
/// lacks something.
Result<std::unique_ptr<Transport>> open_transport(const std::string& name,
                                                  const TransportConfig& config);

/// What open_transport() takes, `auto` first.
std::vector<std::string> transport_names();

/// Every backend that this build knows of, with whether it opens here and why not.
std::vector<BackendState> backend_states();

}  // namespace selmcast
