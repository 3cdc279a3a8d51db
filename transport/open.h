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
  std::uint32_t ipv4 = 0;            ///< uring: which of the interface's addresses; 0: its first.
  bool shared_receive_queue = true;  ///< verbs: one for all queue pairs, where the device can.
  /// verbs: what stays registered after its last Region, for the next of the same memory; either of
  /// them 0 keeps nothing. Memory stays pinned by it, at most this much for a transport.
  std::uint64_t idle_registration_bytes = 0;
  std::uint32_t idle_registrations = 256;
  bool landing =
      false;  ///< Landing queues (Transport::join_landing()), where the backend has them.
  /// verbs: Capabilities::arrival_times, with one device that stamps completions; a notice tells
  /// where it does not.
  bool arrival_times = false;
  std::uint32_t mtu = 0;         ///< Upper bound on the IP packet size; 0 takes the interface's.
  std::uint32_t groups_max = 0;  ///< Memberships as receiver that will be held at once, at most.
};

/// One line of `selmcast doctor`.
struct BackendState {
  std::string name;
  bool usable = false;
  std::string reason;  ///< Why not, with the remedy; or what it found.
};

/// `name` is shm, uring, verbs, or auto: the first that opens here of uring, verbs and shm, for a
/// rank that has nobody to agree with (choose.h has a job agree). Errors (of auto: uring's):
/// bad_input for an unknown name or a missing interface, unavailable when the machine lacks
/// something.
Result<std::unique_ptr<Transport>> open_transport(const std::string& name,
                                                  const TransportConfig& config);

/// What open_transport() takes, `auto` first.
std::vector<std::string> transport_names();

/// Every backend that this build knows of, with whether it opens here and why not.
std::vector<BackendState> backend_states();

}  // namespace selmcast
