// The backend for any Linux machine: UDP over IPv4 and IP multicast, driven through io_uring.
#pragma once

#include <memory>

#include "transport/config.h"
#include "transport/transport.h"

namespace selmcast {

/// Opens the backend on config.interface (empty: lo, where ranks of one host meet). Uses job,
/// interface and mtu of `config`. Needs Linux 6.0 or later with io_uring allowed; no privileges
/// (as root it gets larger socket buffers, see Capabilities::receive_window_bytes).
///
/// Requests of several frames go out by UDP segmentation offload, frames that arrive back to back
/// come in one completion (UDP_GRO). Frames may be lost, duplicated and reordered; peers are not
/// watched, so there is no `lost` completion. Requests hold at most 64 frames.
///
/// The thread that opens and joins need not be the one that drives, and a transport may be handed
/// from thread to thread, as long as no two calls overlap (wake() may). The first data call of a
/// new driver re-submits the receives; until then the kernel may do their work in the old one.
///
/// Errors: bad_input for a missing interface (naming those present) or an MTU under 576;
/// unavailable, with the remedy, when the interface has no IPv4 address or the kernel refuses.
Result<std::unique_ptr<Transport>> open_uring(const TransportConfig& config);

}  // namespace selmcast
