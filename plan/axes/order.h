// Axis order: what travels first.
#pragma once

#include <cstdint>

#include "plan/axes/row.h"

namespace selmcast {

enum class OrderKind : std::uint8_t { fifo, by_class, priority };

struct Order {
  OrderKind kind = OrderKind::fifo;

  bool operator==(const Order&) const = default;
  static AxisTable<Order> axis() noexcept;
};

}  // namespace selmcast
