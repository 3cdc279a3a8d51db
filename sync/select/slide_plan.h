// Slide plan: one multicast group per sender, and from round to round no receiver joins or leaves
// more than a given number of them.
//
// Columns are those of a ring plan, but what a receiver is in is the groups of the senders that its
// column holds in this round. So the columns must move slowly: by at most `budget`
// rows per round, and evenly all the way round the ring, so that the cycle's end joins its start
// within the budget too. Columns of equal width move on the ring of the n-1 others of each receiver
// and nobody ever meets itself; of unequal width they move on the ring of all n, and senders in
// their own row are patched by unicast as in a ring plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sync/select/ring_plan.h"

namespace selmcast {

/// What the members join, all together or of the worst one.
struct SlideJoins {
  std::uint32_t at_start = 0;        ///< All members before the first round.
  std::uint32_t most_at_start = 0;   ///< Of one member.
  std::uint32_t most_per_round = 0;  ///< Of one member from one round to the next; as many leaves.
  std::uint32_t most_held = 0;       ///< Of one member, while it is in the groups of two rounds.
};

/// Methods are const and thread-safe.
class SlidePlan {
 public:
  /// As RingPlan::replan() with multicast fan-out; budget >= 1. `k_bound` = 0 or the most rounds
  /// until every ordered pair was served, to which the rate is lowered: wider columns need fewer
  /// moves.
  static Result<SlidePlan> make(std::uint32_t p, std::uint32_t k_bound, std::uint32_t budget,
                                std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps);

  /// Rate, slots, and who may patch.
  const RingPlan& ring() const noexcept { return ring_; }
  /// Rounds after which the schedule repeats: ceil(R/d) for a ring of R rows and columns that move
  /// by d = min(budget, least c) at most; 1 when everyone hears everyone.
  std::uint32_t cycle() const noexcept { return cycle_; }
  /// So many rounds, whichever, serve every pair whose receiver has slots:
  /// 1 + ceil((R - least c) cycle / R), never more than the cycle.
  std::uint32_t period() const noexcept { return period_; }

  /// As RingPlan::round_of(); `row` is the sender itself.
  RingRound round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const;
  std::vector<std::vector<std::uint32_t>> edges_of(std::uint64_t round) const;
  /// The senders that a member hears by multicast in a round, ascending. The difference between two
  /// rounds is what it joins and leaves.
  std::vector<std::uint32_t> groups_of(std::uint32_t member, std::uint64_t round) const;
  /// For a cycle that is begun with round `start`. O(n cycle).
  SlideJoins joins(std::uint64_t start = 0) const;
  /// Whether all pairs of one cycle are few enough for the next two, which list them.
  bool may_list() const noexcept;
  PairAge pair_age() const;
  /// Sender-rounds of one cycle that stay at p-1 receivers.
  std::uint32_t senders_below_p() const;

 private:
  SlidePlan(RingPlan ring, std::uint32_t p, std::uint32_t budget);
  void measure();
  std::uint32_t shift_of(std::uint64_t round) const noexcept;
  void list_column(std::uint32_t member, std::uint32_t shift, std::uint32_t width,
                   std::vector<std::uint32_t>& out) const;

  RingPlan ring_;
  std::uint32_t p_, budget_;
  std::uint32_t rows_ = 1;  ///< R
  std::uint32_t cycle_ = 1, period_ = 1;
};

}  // namespace selmcast
