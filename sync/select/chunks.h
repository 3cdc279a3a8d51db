// Multicasts of unequal sizes, cut into chunks of one size.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sync/select/selection.h"

namespace selmcast {

struct ChunkProblem {
  std::vector<std::uint64_t> bytes;  ///< Size of each sender's multicast, >= 1; its size is n.
  std::uint64_t chunk_bytes = 0;     ///< >= 1; each sender has at most 2^16 chunks.
  std::vector<std::uint32_t> p;      ///< Least receivers of each chunk, 1 to n-1.
  Fanout fanout = Fanout::multicast;
  std::vector<Kbps> tx_kbps, rx_kbps;  ///< Available rates, below 2^53.
};

/// Whole multicasts of unequal sizes are NP-hard to select (IEEE TSC 2024, theorem 1). With the
/// chunk as the unit all multicasts are equal again, and chunks of one sender may go to different
/// receivers: exact by flows.
struct ChunkPlan {
  std::vector<std::uint32_t> chunks;  ///< ceil(bytes / chunk_bytes) per sender.
  /// A chunk at this rate takes as long as the whole plan: receiver j takes floor(rx_j / rate)
  /// chunks one after the other at its full rate. The highest at which a plan exists.
  RateFraction rate;
  /// deliveries[i][j] = chunks of sender i that receiver j takes, at most chunks[i].
  std::vector<std::vector<std::uint32_t>> deliveries;
  /// The time of the plan (the last chunk of a sender counts as a full one) and a lower bound on
  /// every plan, whole multicasts or any chunks, in seconds. For reports; decisions are exact.
  double seconds = 0.0, lower_bound_seconds = 0.0;

  /// The p[i] receivers of one chunk of sender i, ascending: deliveries are dealt to the sender's
  /// chunks in turn, so that no receiver gets a chunk twice.
  std::vector<Rank> receivers(Rank sender, std::uint32_t chunk) const;
};

/// The shortest plan in which every chunk reaches p receivers. Errors (bad_input) name the field or
/// the reason, as select_exact(). The bound is the largest of max_i S_i / tx_i (unicast:
/// p_i S_i / tx_i) and, for each sender alone and for those with the largest p together (a set I),
///   the least t with sum_j min(t rx_j, sum of S_i over i in I without j) >= sum over I of p_i S_i.
/// O(log(n chunks)) maximum flows on n^2 arcs: for hundreds of members, not for every round.
Result<ChunkPlan> plan_chunks(const ChunkProblem& problem);

}  // namespace selmcast
