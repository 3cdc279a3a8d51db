// How long pairs wait for each other in a schedule that repeats.
#pragma once

#include <cstdint>
#include <vector>

namespace selmcast {

/// Pairs of a schedule that may be listed at once: 256 MiB of them.
inline constexpr std::uint64_t kMostListedPairs = std::uint64_t{1} << 26U;

struct PairAge {
  std::uint32_t worst = 0;     ///< Longest gap between two services of a pair, in rounds.
  double mean = 0.0;           ///< Rounds since the last service, over all served pairs and rounds.
  std::uint64_t unserved = 0;  ///< Ordered pairs that the cycle never serves; not in the other two.
};

/// `cycle[t][i]` = receivers of sender i in round t of the cycle. Exact. O(services + n^2).
PairAge pair_age_of(const std::vector<std::vector<std::vector<std::uint32_t>>>& cycle);

}  // namespace selmcast
