// Explicit schedules of a whole job: who hears whom in every round of a cycle.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "plan/axes/policy.h"
#include "plan/select/selection.h"
#include "plan/view.h"

namespace selmcast {

struct Schedule {
  /// cycle[t][i] = receivers of member i in round t, ascending member indices.
  std::vector<std::vector<std::vector<std::uint32_t>>> cycle;
  std::vector<RateFraction> rates;  ///< Per round of the cycle.
  std::uint32_t p = 0;              ///< What a sender should reach at least; 0 = everyone it can.
  std::uint32_t period = 0;         ///< Rounds until every pair was served; 0 = not bounded.
  RateFraction rate_without_k;      ///< The rate without a bound on the period.
};

/// What a sender pays for several receivers.
Fanout fanout_of(const Policy& policy);

/// What select=random draws round t of an epoch's cycle from; `seed` is the view's.
std::uint64_t random_round_seed(std::uint64_t seed, std::uint32_t epoch, std::uint32_t t) noexcept;

/// The schedule of every selection but `selmcast` with row groups. A checked view of at least two
/// members. O(n^2 k).
Result<Schedule> make_schedule(const View& view, const Policy& policy);

}  // namespace selmcast
