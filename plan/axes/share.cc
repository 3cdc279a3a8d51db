#include "plan/axes/share.h"

namespace selmcast {
namespace {

constexpr Row<Share> kShares[] = {
    {.form = "even",
     .meaning = "every worker gets the same share of the samples",
     .is_default = true,
     .examples = "even"},
    {.form = "rate"},
    {.form = "cluster"},
    {.form = "redundant"},
    {.form = "search"},
};

}  // namespace

AxisTable<Share> Share::axis() noexcept {
  return {"share", kShares};
}

}  // namespace selmcast
