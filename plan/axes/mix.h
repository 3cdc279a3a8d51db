// Axis mix: how what arrives enters the model.
#pragma once

#include <cstdint>

#include "plan/axes/row.h"

namespace selmcast {

enum class MixKind : std::uint8_t { average, sgd, compensate, lgp, age, stale };

/// Each number is of the kinds named beside it and as it is here with all others.
struct Mix {
  MixKind kind = MixKind::average;
  /// compensate: weight of own steps that are not merged yet, in units of the learning rate. age:
  /// credit per round, times n.
  double gamma = 0.0;
  std::uint32_t late_steps = 0;  ///< stale: from a departure to its merge.

  bool operator==(const Mix&) const = default;
  static AxisTable<Mix> axis() noexcept;
};

}  // namespace selmcast
