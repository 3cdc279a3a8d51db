#include "plan/axes/groups.h"

namespace selmcast {
namespace {

constexpr Row<Groups> kGroups[] = {
    {.form = "rows",
     .meaning = "one group per row of the ring plan; joined once per view",
     .kind = GroupKind::rows,
     .is_default = true,
     .examples = "rows",
     .traits = {.is = {Trait::row_groups}}},
    {.form = "sender",
     .meaning = "groups of one sender each, all of a cycle joined once per view (default of "
                "select=random)",
     .kind = GroupKind::sender,
     .examples = "sender",
     .traits = {.is = {Trait::sender_groups}}},
};

}  // namespace

AxisTable<Groups> Groups::axis() noexcept {
  return {"groups", kGroups};
}

}  // namespace selmcast
