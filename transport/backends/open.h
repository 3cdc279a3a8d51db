// Opens a backend by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/config.h"
#include "transport/transport.h"

namespace selmcast {

/// One line of `selmcast doctor`.
struct BackendState {
  std::string name;
  bool usable = false;
  std::string reason;  ///< Why not, with the remedy; or what it found.
};

/// `name` is shm, uring, verbs, or auto: the first that opens here of uring, verbs and shm, for a
/// rank that has nobody to agree with (choose.h has a job agree). Errors (of auto: uring's):
/// bad_input for an unknown name or a missing interface, unavailable when the machine or this build
/// lacks something.
Result<std::unique_ptr<Transport>> open_transport(const std::string& name,
                                                  const TransportConfig& config);

/// What open_transport() takes, `auto` first.
std::vector<std::string> transport_names();

/// Every backend that this build knows of, with whether it opens here and why not.
std::vector<BackendState> backend_states();

}  // namespace selmcast
