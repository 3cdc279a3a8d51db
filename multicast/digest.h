// The order-independent digest of a round: the sum over frames of a hash of offset, length and
// check. What lies in the frames is vouched for by their checks, or by the medium where there are
// none; the digest vouches for which frames were merged, each of them once.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "multicast/frame.h"

namespace selmcast {

/// What one frame adds to the digest; sums wrap modulo 2^64. Every bit of the three counts: they
/// fill the two words that are mixed (Steele, Lea and Flood 2014), one after the other.
inline std::uint64_t frame_digest(const FrameHeader& header) noexcept {
  const std::uint64_t place = mix_seed(header.offset);
  return mix_seed(place ^ ((std::uint64_t{header.length} << 32U) | header.check));
}

}  // namespace selmcast
