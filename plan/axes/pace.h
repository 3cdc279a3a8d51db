// Axis pace: when a round may begin and when it ends.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/axes/row.h"

namespace selmcast {

enum class PaceKind : std::uint8_t { bsp, periodic, overlap, stages, ssp, async, busy };

/// Each number is of the kinds named beside it and as it is here with all others.
struct Pace {
  PaceKind kind = PaceKind::bsp;
  std::uint32_t period = 1;      ///< periodic: steps of a round.
  std::uint32_t most_steps = 1;  ///< overlap: steps after a departure before a worker waits; busy:
                                 ///< beyond all.
  std::uint32_t slack = 0;       ///< ssp: none begins a step more than this beyond the slowest.
  /// ssp: receivers are selected as multicasts start, those with less than this share left are kept
  /// (SspSelection::eta). Absent: by a plan made in advance.
  std::optional<double> eta{};
  /// stages: share of the parameters exchanged behind the barrier; absent: it adapts.
  std::optional<double> first_share{};

  bool operator==(const Pace&) const = default;
  static AxisTable<Pace> axis() noexcept;
};

}  // namespace selmcast
