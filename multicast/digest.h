// The order-independent digest of a round: the sum over frames of hash(offset, bytes).
#pragma once

#include <cstdint>
#include <span>

#include "base/checksum.h"

namespace selmcast {

/// What one frame adds to the digest; sums wrap modulo 2^64.
inline std::uint64_t frame_digest(std::uint64_t offset,
                                  std::span<const std::byte> payload) noexcept {
  return content_hash(offset + 1, payload);
}

}  // namespace selmcast
