// The best common rate, fast and exact: capped D'Hondt apportionment over all receivers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "plan/select/selection.h"
#include "plan/select/slot_kernels.h"

namespace selmcast {

/// Rates of all receivers and a warm start from the last search. Allocates in its constructor only.
/// One thread at a time.
///
/// Doubles decide here, and exactly: with rates below kFastRateLimit = 2^32 and at most 65 535
/// members two different quotients rate/k differ by at least 2^-48 of their value, and a product in
/// doubles is wrong by less than 2^-51 of its value; so every count below is the exact one or takes
/// one of two *equal* quotients for the other, on every machine, with or without fused operations.
class RateSearch {
 public:
  static constexpr Kbps kFastRateLimit = Kbps{1} << 32U;

  explicit RateSearch(std::uint32_t capacity);

  /// Takes the rates over. False when one is kFastRateLimit or more: then nothing below may be
  /// called before the next load().
  bool load(std::span<const Kbps> rates);

  const slot_kernels::RateSummary& summary() const noexcept { return summary_; }
  const double* rates() const noexcept { return rates_.data(); }

  /// The highest rate y with sum of min(floor(rate / y), cap) >= target: the target-th largest of
  /// all quotients rate/k, 1 <= k <= cap. Needs 1 <= target <= cap * positive rates.
  RateFraction best(std::uint64_t target, std::uint32_t cap);

  /// min(floor(rate / y), cap) of every receiver into `slots` (padded). Needs y.num below
  /// kFastRateLimit and y > 0.
  slot_kernels::SlotSummary slots_at(const RateFraction& y, std::uint32_t cap,
                                     std::uint32_t* slots) const;

 private:
  RateFraction fraction(const slot_kernels::Quotient& quotient) const;
  RateFraction pick(std::uint64_t rank, std::uint64_t count);

  std::uint32_t n_ = 0;
  std::vector<double> rates_;
  slot_kernels::RateSummary summary_;
  std::vector<slot_kernels::Quotient> collected_;
  double last_scale_ = 0.0, last_sum_ = 0.0;  ///< 1/y of the last search and its sum of rates.
  std::uint64_t last_target_ = 0;
};

}  // namespace selmcast
