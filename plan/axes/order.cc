#include "plan/axes/order.h"

namespace selmcast {
namespace {

constexpr Row<Order> kOrders[] = {
    {.form = "fifo",
     .meaning = "in the order of the parameters",
     .kind = OrderKind::fifo,
     .is_default = true,
     .examples = "fifo"},
    {.form = "class",
     .meaning = "what matters most first (of pace=stages)",
     .kind = OrderKind::by_class,
     .examples = "class",
     .traits = {.is = {Trait::important_first}}},
    {.form = "priority",
     .meaning = "layers are handed over one by one, and those that are needed first go first (P3)",
     .kind = OrderKind::priority,
     .examples = "priority",
     .traits = {.is = {Trait::layered}}},
};

}  // namespace

AxisTable<Order> Order::axis() noexcept {
  return {"order", kOrders};
}

}  // namespace selmcast
