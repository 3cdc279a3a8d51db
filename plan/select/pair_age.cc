#include "plan/select/pair_age.h"

#include <algorithm>

namespace selmcast {

PairAge pair_age_of(const std::vector<std::vector<std::vector<std::uint32_t>>>& cycle) {
  PairAge out;
  if (cycle.empty()) return out;
  const auto n = cycle.front().size();
  const auto rounds = static_cast<std::uint32_t>(cycle.size());
  std::uint64_t served = 0, waited = 0;
  const auto close_gap = [&](std::uint64_t gap) {
    out.worst = std::max(out.worst, static_cast<std::uint32_t>(gap));
    waited += gap * (gap - 1) / 2;  // Ages 0, 1, .., gap-1 between the two services.
  };
  std::vector<std::uint32_t> first(n), last(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::fill(first.begin(), first.end(), rounds);
    for (std::uint32_t t = 0; t < rounds; ++t) {
      for (const auto j : cycle[t][i]) {
        if (first[j] == rounds) {
          first[j] = t;
        } else {
          close_gap(t - last[j]);
        }
        last[j] = t;
      }
    }
    for (std::size_t j = 0; j < n; ++j) {
      if (j == i) continue;
      if (first[j] == rounds) {
        ++out.unserved;
      } else {
        ++served;
        close_gap(first[j] + rounds - last[j]);
      }
    }
  }
  if (served > 0) {
    out.mean = static_cast<double>(waited) / (static_cast<double>(served) * rounds);
  }
  return out;
}

}  // namespace selmcast
