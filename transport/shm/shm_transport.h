// Transport between processes of one host over shared memory.
#pragma once

#include <memory>

#include "base/result.h"
#include "transport/config.h"
#include "transport/transport.h"

namespace selmcast {

struct ShmOptions {
  std::uint32_t ring_bytes =
      1U << 20U;  ///< Per ordered pair of ranks; a power of two from 256 KiB.
};

/// Uses job, rank and world of the config; world is at most 256. A multicast post reaches the ranks
/// that have joined and that this rank has connected to; destroying the Endpoint takes a member
/// that makes no progress out of the way. Errors: bad_input for a rank or world out of range,
/// unavailable when the kernel lacks memfd seals or pidfd.
Result<std::unique_ptr<Transport>> open_shm(const TransportConfig& config,
                                            const ShmOptions& options = {});

}  // namespace selmcast
