// Ring plan: a schedule in which multicast groups never change while every pair of ranks meets.
//
// The columns (receivers) are laid end to end on the ring of rows; in round t sender i uses row
// (i - b_t) mod n, so the receiver set of a row is constant and a receiver joins c_j groups once per
// epoch. A sender that is in its own row serves one other receiver by unicast instead (a *patch*),
// where its transmit rate allows, and otherwise stays one receiver short.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sync/select/selection.h"

namespace selmcast {

/// Whom one member reaches and hears in one round. Indices are member indices 0..n-1.
struct RingRound {
  std::uint32_t row = 0;                     ///< The group it sends to.
  std::vector<std::uint32_t> receivers;      ///< By multicast, ascending, without itself.
  std::optional<std::uint32_t> patch;        ///< One more receiver, by unicast.
  std::vector<std::uint32_t> senders;        ///< Whom it hears, ascending (patches included).
  bool below_p = false;                      ///< In its own row and without a patch.
};

class RingPlan {
 public:
  /// n = tx.size() members, uniform p, multicast fan-out. `k_bound` = 0 or the most rounds until
  /// every ordered pair was served (it lowers the rate when slow receivers would need more).
  /// Errors as select_exact(), and when no rate satisfies k_bound.
  static Result<RingPlan> make(std::uint32_t p, const std::vector<Kbps>& tx_kbps,
                               const std::vector<Kbps>& rx_kbps, std::uint32_t k_bound);

  std::uint32_t members() const noexcept { return n_; }
  const RateFraction& rate() const noexcept { return rate_; }
  /// The rate that would hold without k_bound.
  const RateFraction& rate_without_bound() const noexcept { return rate_free_; }
  const Bottleneck& bottleneck() const noexcept { return bottleneck_; }
  /// Rounds after which the schedule repeats and every pair with a receiver that has slots was
  /// served.
  std::uint32_t period() const noexcept { return k_; }
  /// Slots c_j: how many senders each member hears per round.
  const std::vector<std::uint32_t>& slots() const noexcept { return slots_; }

  /// The round of one member; `round` counts from 0 and wraps. O(n).
  RingRound round_of(std::uint32_t member, std::uint64_t round) const;
  /// Rows that a member joins, in ring order: slots()[member] of them.
  std::vector<std::uint32_t> rows_of(std::uint32_t member) const;
  /// Worst and mean age of a pair over the steady schedule: rounds between two services. Exact,
  /// over all ordered pairs with slots. O(n^2 k).
  struct PairAge {
    std::uint32_t worst = 0;
    double mean = 0.0;
  };
  PairAge pair_age() const;
  /// Sender-rounds of one period that stay at p-1 receivers.
  std::uint32_t senders_below_p() const;

 private:
  std::uint32_t n_ = 0, p_ = 0, k_ = 1;
  bool equal_slots_ = false;
  std::uint32_t step_ = 1;  ///< Rows that the senders move per round.
  RateFraction rate_, rate_free_;
  Bottleneck bottleneck_;
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint32_t> first_row_;  ///< S_j
  std::vector<bool> can_patch_;           ///< Transmit rate allows one more copy.
};

}  // namespace selmcast
