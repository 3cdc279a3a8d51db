// Ring plan: a schedule in which multicast groups never change while every pair of ranks meets.
//
// The columns (receivers) are laid end to end on the ring of rows; in round t sender i uses row
// (i - b_t) mod n, so the receiver set of a row is constant and a receiver joins c_j groups once
// per epoch. A sender that is in its own row serves one other receiver by unicast instead (a
// *patch*), where its transmit rate allows, and otherwise stays one receiver short.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/select/pair_age.h"
#include "plan/select/patch_matching.h"
#include "plan/select/rate_search.h"
#include "plan/select/selection.h"

namespace selmcast {

/// Whom one member reaches and hears in one round. Indices are member indices 0..n-1.
struct RingRound {
  std::uint32_t row = 0;                     ///< The group it sends to.
  std::span<const std::uint32_t> receivers;  ///< By multicast, ascending, without itself.
  std::optional<std::uint32_t> patch;        ///< One more receiver, by unicast.
  std::span<const std::uint32_t> senders;    ///< Whom it hears, ascending (patches included).
  bool below_p = false;                      ///< It reaches p-1: in its own row and no patch.
};

/// Memory for deriving rounds; holds the arrays of the last RingRound. One thread at a time.
class RingWork {
 public:
  explicit RingWork(std::uint32_t capacity);

 private:
  friend class RingPlan;
  friend class RowPlan;
  std::vector<std::uint32_t> self_, row_, first_row_, slots_;  ///< Of the self members.
  std::vector<std::uint8_t> may_send_;
  std::vector<std::uint32_t> receivers_, senders_;
  std::vector<std::uint32_t> listed_receivers_, listed_senders_;  ///< Of an edited layout.
  PatchMatching matching_;
};

/// Const methods are thread-safe.
class RingPlan {
 public:
  /// For up to `capacity` members (CHECK: 2 to 65 535): all memory that replan() needs.
  explicit RingPlan(std::uint32_t capacity);

  /// Plans for n = tx.size() members (at most the capacity), uniform p. `k_bound` = 0 or the most
  /// rounds until every ordered pair was served: where slow receivers would need more, the rate is
  /// lowered until period() <= k_bound, by the least amount that this layout allows. A row has
  /// floor or ceil(sum of slots / n) >= p members. With unicast fan-out (every receiver gets a copy
  /// of its own) slots are given back until a row has at most p members, or as many as k_bound
  /// makes necessary, because each costs its sender the rate once more. Errors as select_exact(),
  /// and when no rate satisfies k_bound, with the smallest k that works; the plan is then unusable
  /// until the next replan().
  ///
  /// O(n), starting from the last plan's rate. Allocates nothing unless it fails, a rate is 2^32
  /// kbit/s or more, or unicast slots must be levelled.
  Result<void> replan(std::uint32_t p, std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps,
                      std::uint32_t k_bound, Fanout fanout = Fanout::multicast);
  /// A new plan; memory for exactly n members.
  static Result<RingPlan> make(std::uint32_t p, std::span<const Kbps> tx_kbps,
                               std::span<const Kbps> rx_kbps, std::uint32_t k_bound,
                               Fanout fanout = Fanout::multicast);

  std::uint32_t members() const noexcept { return n_; }
  const RateFraction& rate() const noexcept { return rate_; }
  /// The rate that would hold without k_bound.
  const RateFraction& rate_without_bound() const noexcept { return rate_free_; }
  /// O(n).
  Bottleneck bottleneck() const;
  /// Rounds after which the schedule repeats and every pair with a receiver that has slots was
  /// served: ceil((n-1)/c) when all receivers have c slots, otherwise ceil(n/min c).
  std::uint32_t period() const noexcept { return k_; }
  /// Slots c_j: how many senders each member hears per round, at most (one less when it is in its
  /// own row and nobody patches it).
  std::span<const std::uint32_t> slots() const noexcept { return {slots_.data(), n_}; }
  /// All receivers have equally many slots; then nobody is ever in its own row.
  bool equal_slots() const noexcept { return equal_slots_; }
  /// Whether all pairs of one period are few enough for pair_age() and senders_below_p(), which
  /// list them. O(n).
  bool may_list() const noexcept;
  /// The first of the slots() rows that a member hears, in ring order.
  std::uint32_t first_row(std::uint32_t member) const noexcept { return first_row_[member]; }
  /// Whether a member's transmit rate carries a patch beside its multicast.
  bool can_patch(std::uint32_t member) const noexcept { return tx_[member] >= patch_rate_; }

  /// The round of one member; `round` counts from 0 and wraps. The spans point into `work` (made
  /// for at least members()) and hold until its next use. Allocates nothing. O(n), and
  /// O(h log h) more for h members in their own rows (about p) when this member is one of them.
  RingRound round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const;
  /// Receivers of every member in one round, patches merged in, ascending. With `everyone`, senders
  /// whose transmit rate does not allow a second copy are patched too (for groups that are made per
  /// sender, where a patch costs nothing).
  std::vector<std::vector<std::uint32_t>> edges_of(std::uint64_t round,
                                                   bool everyone = false) const;
  /// The (sender, receiver) patches of one round, ascending by sender: a maximum matching.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> patches_of(std::uint64_t round,
                                                                  bool everyone = false) const;
  /// Rows that a member joins, in ring order: slots()[member] of them.
  std::vector<std::uint32_t> rows_of(std::uint32_t member) const;
  /// Of the steady schedule. O(n^2 k).
  PairAge pair_age() const;
  /// Sender-rounds of one period that stay at p-1 receivers. O(n k).
  std::uint32_t senders_below_p() const;

 private:
  Result<void> explain(std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps) const;
  Result<void> plan_at_free_rate();
  RateFraction unbounded_rate();
  void lay_out(std::uint32_t floor);
  slot_kernels::SlotSummary fill_slots();
  std::uint32_t shift_of(std::uint64_t round) const noexcept;
  /// Members of each row.
  std::vector<std::uint32_t> row_sizes() const;
  bool in_own_row(std::uint32_t member, std::uint32_t shift) const noexcept;
  std::uint32_t match_patches(std::uint32_t shift, bool everyone, RingWork& work) const;

  std::uint32_t capacity_;
  std::uint32_t n_ = 0, p_ = 0, k_bound_ = 0, k_ = 1, copies_ = 1;
  Fanout fanout_ = Fanout::multicast;
  bool equal_slots_ = false, fast_ = true;
  std::uint32_t step_ = 1;         ///< Rows that the senders move per round.
  RateFraction rate_, rate_free_;  ///< Without k_bound the rate is rate_free_.
  RateSearch search_;              ///< Receive rates.
  std::vector<double> tx_;         ///< Transmit rates, exact.
  double least_tx_ = 0.0;
  double patch_rate_ = 0.0;  ///< Least transmit rate that carries a patch beside the multicast.
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint32_t> first_row_;  ///< S_j
};

}  // namespace selmcast
