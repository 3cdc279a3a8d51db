// The best common rate, fast and exact: capped D'Hondt apportionment over all receivers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "sync/select/selection.h"
#include "sync/select/slot_kernels.h"

namespace selmcast {

/// The quotients around the last answer, in cells of equal width in 1/y, so that a changed rate
/// moves few of them and nothing is ever sorted. A quotient's cell is a monotone function of its
/// correctly rounded inverse, hence cells are in order and equal quotients share one. Allocates in
/// its constructor only.
class QuotientWindow {
 public:
  explicit QuotientWindow(std::uint32_t capacity);

  bool empty() const noexcept { return cells_ == 0; }
  void clear() noexcept { cells_ = 0; }
  std::uint32_t cap() const noexcept { return cap_; }

  /// Lists the quotients around `centre`; the sum of rates is their density. Empty if there are
  /// more than expected.
  void build(const double* rates, std::uint32_t n, double sum, std::uint32_t cap,
             const RateFraction& centre);
  /// Puts one receiver's quotients at another rate. May leave the window empty.
  void change(std::uint32_t receiver, double before, double after);
  /// The target-th largest of all quotients, or nothing when it is outside. `rates` are those of
  /// build() with all changes. Needs a window that is not empty.
  std::optional<slot_kernels::Quotient> find(const double* rates, std::uint64_t target);

 private:
  struct Entry {
    std::uint16_t receiver = 0, k = 0;
    bool operator==(const Entry&) const = default;
  };
  struct Cell {
    std::uint32_t start = 0, size = 0;  ///< In entries_; room up to the next cell's start.
  };

  std::uint64_t cell_of(double scale) const noexcept {
    // At most cap * sum / 4, below 2^62; signed conversion is one instruction.
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(scale * per_scale_));
  }
  template <class Visit>
  std::uint32_t visit(std::uint32_t receiver, double rate, const Visit& quotient) const;
  slot_kernels::Quotient nth_of(const Cell& cell, std::uint32_t rank, const double* rates);
  void distribute(std::span<const slot_kernels::Quotient> listed);

  double per_scale_ = 0.0;   ///< Cells per unit of 1/y.
  std::uint64_t first_ = 0;  ///< Number of the first cell.
  std::uint32_t cells_ = 0;  ///< None: empty.
  std::uint32_t cap_ = 0;
  std::uint32_t at_ = 0;      ///< The cell of the last answer,
  std::uint64_t before_ = 0;  ///< and all quotients before that cell.
  std::vector<Cell> cell_;    ///< And one behind the last.
  std::vector<Entry> entries_;
  std::vector<slot_kernels::Quotient> listed_;
};

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
  /// Changes one rate (below kFastRateLimit).
  void change(std::uint32_t receiver, Kbps rate);

  const slot_kernels::RateSummary& summary() const noexcept { return summary_; }
  const double* rates() const noexcept { return rates_.data(); }

  /// The highest rate y with sum of min(floor(rate / y), cap) >= target: the target-th largest of
  /// all quotients rate/k, 1 <= k <= cap. Needs 1 <= target <= cap * positive rates.
  RateFraction best(std::uint64_t target, std::uint32_t cap);
  /// change() and best() in one, in time that hardly depends on n while the answer stays among the
  /// n or so quotients on either side of an earlier one; those are kept at hand.
  RateFraction best_after(std::uint32_t receiver, Kbps rate, std::uint64_t target,
                          std::uint32_t cap);

  /// min(floor(rate / y), cap) of every receiver into `slots` (padded). Needs y.num below
  /// kFastRateLimit and y > 0.
  slot_kernels::SlotSummary slots_at(const RateFraction& y, std::uint32_t cap,
                                     std::uint32_t* slots) const;

 private:
  void set_rate(std::uint32_t receiver, double rate);
  RateFraction fraction(const slot_kernels::Quotient& quotient) const;
  RateFraction pick(std::uint64_t rank, std::uint64_t count);

  std::uint32_t n_ = 0;
  std::vector<double> rates_;
  slot_kernels::RateSummary summary_;
  std::vector<slot_kernels::Quotient> collected_;
  double last_scale_ = 0.0, last_sum_ = 0.0;  ///< 1/y of the last search and its sum of rates.
  std::uint64_t last_target_ = 0;
  QuotientWindow window_;
};

}  // namespace selmcast
