// Axis select: who receives the update of whom.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/axes/row.h"

namespace selmcast {

enum class SelectKind : std::uint8_t { all, selmcast, random };

struct Select {
  SelectKind kind = SelectKind::all;
  std::uint32_t p = 0;  ///< Least number of receivers; 0 for all.
  /// Every pair is served once in k rounds, 0 = no bound; absent: see Policy::resolved_k().
  std::optional<std::uint32_t> k{};

  bool operator==(const Select&) const = default;
  static AxisTable<Select> axis() noexcept;
};

}  // namespace selmcast
