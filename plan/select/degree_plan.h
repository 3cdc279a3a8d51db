// Rate, slots and out-degrees of a round when every sender has a p of its own, without pairs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/select/fair_degrees.h"
#include "plan/select/feasible.h"
#include "plan/select/rate_search.h"
#include "plan/select/selection.h"

namespace selmcast {

/// The first three objectives of select_exact() (rate, receivers in total, fair out-degrees; no
/// forced or forbidden pairs, no ages, no k) for the same p and ever new rates: a few passes over
/// the members. Exact. Allocates in its constructor only, as long as all rates are below
/// RateSearch::kFastRateLimit (2^32 kbit/s); above, each plan() allocates. One thread at a time.
class DegreePlan {
 public:
  /// `p` of 2 to 65 535 senders, each 1 to n-1.
  static Result<DegreePlan> make(std::vector<std::uint32_t> p, Fanout fanout);

  /// Plans a round with these available rates in kbit/s, below 2^53, one per member. Errors are
  /// those of select_exact(); after one the results are not defined.
  Result<void> plan(std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps);

  const RateFraction& rate() const noexcept { return rate_; }
  /// Transfers that each receiver can carry at the rate, at most n-1.
  std::span<const std::uint32_t> slots() const noexcept { return {slots_.data(), n_}; }
  std::span<const std::uint32_t> out_degrees() const noexcept { return {degrees_.data(), n_}; }

 private:
  DegreePlan(std::vector<std::uint32_t> p, Fanout fanout);

  void set_most(std::span<const Kbps> tx, const RateFraction& y);
  Result<void> check(std::span<const Kbps> tx, std::span<const Kbps> rx) const;
  /// The highest rate at which all senders can have p receivers.
  RateFraction sender_bound(std::span<const Kbps> tx) const noexcept;
  void set_slots(std::span<const Kbps> rx, const RateFraction& y);
  bool admits(std::span<const Kbps> rx, const RateFraction& y);
  RateFraction search(std::span<const Kbps> rx, const RateFraction& upper);

  Fanout fanout_;
  std::uint32_t n_, most_p_ = 0;
  std::uint64_t total_p_ = 0;
  bool fast_ = false;  ///< The rates are in rates_.
  std::vector<std::uint32_t> p_, most_, slots_, degrees_;
  RateSearch rates_;
  DegreeTest test_;
  FairDegrees fair_;
  RateFraction rate_;
};

}  // namespace selmcast
