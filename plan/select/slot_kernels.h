// The loops over all members that planning a round consists of, as vector code.
//
// One body for every instruction set, chosen at run time (Highway). Arrays are padded: `padded`
// elements may be read, a multiple of kSlotPadding, with rate 0 or 0 slots behind the last member.
// Nothing here allocates; all functions are thread-safe.
#pragma once

#include <cstdint>

#include "base/highway_targets.h"

namespace selmcast::slot_kernels {

inline constexpr std::uint32_t kSlotPadding = 64;
constexpr std::uint32_t padded(std::uint32_t n) noexcept {
  return (n + kSlotPadding - 1) / kSlotPadding * kSlotPadding;
}

/// Rates as doubles (exact below 2^53) with what a search needs to start.
struct RateSummary {
  double sum = 0.0, least = 0.0, most = 0.0;  ///< Over the first n.
  double least_positive = 0.0;                ///< 0 when none is.
  std::uint32_t positive = 0;                 ///< How many are above 0.
};
RateSummary load_rates(const std::uint64_t* from, double* to, std::uint32_t n) noexcept;

/// Sum of min(floor(rate * scale), cap).
double total_slots(const double* rates, std::uint32_t padded, double scale, double cap) noexcept;

/// The slots min(floor(rate * scale + bias), cap) and what the layout asks of them.
struct SlotSummary {
  std::uint64_t total = 0;
  std::uint32_t least = 0, most = 0;  ///< Over the first n.
  std::uint32_t least_positive = 0;   ///< 0 when no slot is positive.
};
SlotSummary write_slots(const double* rates, std::uint32_t n, double scale, double bias, double cap,
                        std::uint32_t* slots) noexcept;

/// A quotient rates[receiver] / k by its inverse, the scale at which it becomes a slot.
struct Quotient {
  double scale = 0.0;
  std::uint32_t receiver = 0, k = 0;
};
/// The least rate / min(floor(rate * scale), cap) over receivers with slots; k = 0 when none has.
Quotient least_quotient(const double* rates, std::uint32_t padded, double scale,
                        double cap) noexcept;

/// Writes the quotients rate/k for floor(rate * near) >= k > floor(rate * far), both capped;
/// near > far > 0. Stops writing at `capacity`, but counts on; returns how many there are.
std::uint64_t collect_quotients(const double* rates, std::uint32_t padded, double near, double far,
                                double cap, Quotient* out, std::uint32_t capacity) noexcept;

/// first_row[j] = sum of slots before j, mod n; also behind the last member. `first_row` has room
/// for padded(n) + 1.
void lay_out(const std::uint32_t* slots, std::uint32_t n, std::uint32_t* first_row) noexcept;

/// The indices j < n with (row - first_row[j]) mod n < slots[j], ascending; returns how many.
/// `out` has room for padded(n) + kSlotPadding.
std::uint32_t row_members(const std::uint32_t* first_row, const std::uint32_t* slots,
                          std::uint32_t n, std::uint32_t row, std::uint32_t* out) noexcept;
/// The indices h < n with (h - shift - first_row[h]) mod n < slots[h], ascending; returns how many.
std::uint32_t self_members(const std::uint32_t* first_row, const std::uint32_t* slots,
                           std::uint32_t n, std::uint32_t shift, std::uint32_t* out) noexcept;

/// Whether (row[q] - first_row[q + turn]) mod n >= slots[q + turn] for every q < count, indices
/// mod count. Needs no padding.
bool all_outside(const std::uint32_t* row, const std::uint32_t* first_row,
                 const std::uint32_t* slots, std::uint32_t count, std::uint32_t turn,
                 std::uint32_t n) noexcept;

/// out[i] = (i + turn) mod n for i < n; turn <= n.
void ring_turn(std::uint32_t turn, std::uint32_t n, std::uint32_t* out) noexcept;
/// The numbers (first + i) mod n for i < count <= n, sorted ascending.
void ring_interval(std::uint32_t first, std::uint32_t count, std::uint32_t n,
                   std::uint32_t* out) noexcept;

}  // namespace selmcast::slot_kernels
