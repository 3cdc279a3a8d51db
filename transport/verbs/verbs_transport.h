// The backend for RDMA devices (RoCE v2, InfiniBand, Soft-RoCE) through libibverbs and librdmacm.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/config.h"
#include "transport/transport.h"

namespace selmcast {

/// Opens the backend on config.interface, DEVICE[:PORT[:GID]] joined by '+' where a rank stripes
/// over several (empty: the first usable port). Uses job, interface and mtu of
/// `config`. Needs access to /dev/infiniband and locked memory of about 10 MiB a device.
///
/// Frames are UD datagrams of at most the path MTU; groups are the network's. Frames may be lost,
/// duplicated and reordered; peers are not watched, so there is no `lost` completion. A device
/// whose port goes down is left until it is up again; with none up, post_sends() says backpressure.
///
/// Errors: bad_input for a device that is not there; unavailable, with the remedy, where there is
/// none, its port is down, it has no GID that will do, or memory cannot be locked.
Result<std::unique_ptr<Transport>> open_verbs(const TransportConfig& config);

}  // namespace selmcast
