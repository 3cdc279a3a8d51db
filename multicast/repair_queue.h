// Which frames a sender owes again, and whether one receiver or several asked for them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.h"
#include "multicast/frame.h"

namespace selmcast {

/// A run of frames owed to the same destination.
struct RepairRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool several = false;        ///< More than one receiver asked: multicast it.
  std::uint32_t receiver = 0;  ///< Index of the only receiver that asked, when !several.
};

/// Storage is allocated by resize() only: one 16-bit mark and one bit per frame. The bits let
/// take() skip 64 frames that are not owed at a time.
class RepairQueue {
 public:
  /// `frames` per round, receivers are named by indices below `receivers` (at most 65 533). Nothing
  /// is owed afterwards.
  void resize(std::uint32_t frames, std::uint32_t receivers);
  /// Nothing is owed. O(frames / 64).
  void clear() noexcept;
  bool empty() const noexcept { return owed_ == 0; }
  std::uint32_t owed() const noexcept { return owed_; }

  /// A receiver misses these frames. Ranges must lie within `frames`. Asking again for a frame that
  /// is still owed changes nothing; for one that was taken, it is owed anew.
  void request(std::uint32_t receiver, NackRange range) noexcept;
  /// Takes the next run of at most `frames_max` frames, lowest first and wrapping, that all have
  /// the same destination. Empty when nothing is owed.
  std::optional<RepairRun> take(std::uint32_t frames_max) noexcept;

 private:
  std::uint32_t next_owed(std::uint32_t from) const noexcept;

  std::vector<std::uint16_t> marks_;  ///< Receiver, or kSeveral; meaningful where the bit is set.
  std::vector<std::uint64_t> owed_bits_;
  std::uint32_t receivers_ = 0, owed_ = 0, cursor_ = 0;
};

}  // namespace selmcast
