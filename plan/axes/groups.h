// Axis groups: which multicast groups there are.
#pragma once

#include <cstdint>

#include "plan/axes/row.h"

namespace selmcast {

enum class GroupKind : std::uint8_t { rows, sender };

struct Groups {
  GroupKind kind = GroupKind::rows;

  bool operator==(const Groups&) const = default;
  static AxisTable<Groups> axis() noexcept;
};

}  // namespace selmcast
