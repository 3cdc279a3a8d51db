// Memory for parameters that ranks of one host need not copy.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "base/shared_memory.h"

namespace selmcast {

/// Zeroed memory for Worker::add_parameters() or add_layers(). Over shared memory (transport shm)
/// other ranks read what lies in it where it is; parameters in any other memory are copied once to
/// each of them. No difference with other transports. It must outlive the worker.
///
/// Not copied by fork(): what a child writes to it this process sees.
inline Result<SharedMemory> allocate(std::size_t bytes) {
  return SharedMemory::allocate(bytes);
}

}  // namespace selmcast
