// Axis route: the way of an update from its sender to its receivers.
#pragma once

#include <cstdint>

#include "plan/axes/row.h"

namespace selmcast {

enum class RouteKind : std::uint8_t { star, unicast, servers };

struct Route {
  RouteKind kind = RouteKind::star;
  std::uint32_t servers = 0;  ///< Of `servers`: how many of the ranks.

  bool operator==(const Route&) const = default;
  static AxisTable<Route> axis() noexcept;
};

}  // namespace selmcast
