#include "base/random.h"

#include <algorithm>

#include "plan/select/explicit.h"
#include "plan/select/feasible.h"

namespace selmcast {

Result<Selection> select_random(const SelectionProblem& problem) {
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  Selection out;
  out.receivers = by_sender(problem.forced, n);
  const auto forbidden = by_sender(problem.forbidden, n);
  for (std::uint32_t i = 0; i < n; ++i) {
    auto& chosen = out.receivers[i];
    auto open = open_receivers(problem, i, chosen, forbidden[i]);
    // A partial Fisher-Yates shuffle: each set of the missing size is equally likely.
    SplitMix64 random(mix_seed(problem.seed) ^ mix_seed(~std::uint64_t{i}));
    const auto missing = problem.p[i] - std::min<std::size_t>(problem.p[i], chosen.size());
    for (std::size_t at = 0; at < missing; ++at) {
      const auto pick = at + random.below(static_cast<std::uint32_t>(open.size() - at));
      std::swap(open[at], open[pick]);
      chosen.push_back(open[at]);
    }
    std::sort(chosen.begin(), chosen.end());
  }
  SELMCAST_CHECK(rate_of(problem, out).has_value(), "receivers without rate were left out");
  return out;
}

}  // namespace selmcast
