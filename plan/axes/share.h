// Axis share: how the samples are shared among the workers.
#pragma once

#include <cstdint>

#include "plan/axes/row.h"

namespace selmcast {

enum class ShareKind : std::uint8_t { even };

struct Share {
  ShareKind kind = ShareKind::even;

  bool operator==(const Share&) const = default;
  static AxisTable<Share> axis() noexcept;
};

}  // namespace selmcast
