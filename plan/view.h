// View: the snapshot of links and live ranks that every member plans from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"

namespace selmcast {

/// Immutable once published. All ranks that hold epoch e hold the same bytes, so planning needs no
/// further coordination. `members` is sorted; entry m of the rate arrays belongs to members[m].
struct View {
  std::uint32_t epoch = 0;
  std::uint64_t seed = 0;     ///< For random selections; the same for all epochs of a job.
  std::vector<Rank> members;  ///< Live ranks.
  std::vector<Kbps> tx_kbps;  ///< Available wire rate out of each member.
  std::vector<Kbps> rx_kbps;  ///< Available wire rate into each member.

  bool operator==(const View&) const = default;
};

/// Little-endian: tag "SMV1", epoch u32, seed u64, member count u32, then per member rank u32,
/// transmit u64, receive u64. Both rate arrays must have one entry per member (CHECK).
Bytes serialize(const View& view);
/// Rejects (bad_input) truncated, unsorted, empty, oversized (more than 65 535 members) and
/// trailing bytes and rates of 2^53 or more. Allocates only after the size was found to match.
Result<View> parse_view(std::span<const std::byte> bytes);

}  // namespace selmcast
