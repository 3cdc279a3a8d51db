// The papers' BSP heuristic (ICC'22 Algorithms 1 and 2; TSC 2024 Algorithm 1) in its general form:
// a volume per sender, ties by index or at random, senders by forced receivers or by size.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/select/selection.h"

namespace selmcast {

/// The time volume/rate as an exact fraction, rate > 0. Volumes in any unit V give V per kbit/s:
/// bits give milliseconds.
struct TransferTime {
  std::uint64_t volume = 0;
  std::uint64_t rate = 1;
  double value() const noexcept { return static_cast<double>(volume) / static_cast<double>(rate); }
};
/// Exact comparison by 128-bit cross multiplication.
bool operator<(const TransferTime& a, const TransferTime& b) noexcept;

/// What decides between equally loaded receivers, senders with equally many forced receivers and
/// pairs of equal age; the papers leave it open. `random` draws from SelectionProblem::seed.
enum class Ties : std::uint8_t { by_index, random };

/// `forced_first` is the papers' order of senders; `largest_first` puts larger volumes before it
/// (longest processing time first).
enum class SenderOrder : std::uint8_t { forced_first, largest_first };

/// select_published() with a choice of ties. O(n^2) for ages up to n^2.
Result<Selection> select_published(const SelectionProblem& problem, Ties ties);

struct VolumeSelection {
  std::vector<std::vector<Rank>> receivers;  ///< Ascending, per sender.
  TransferTime time;                         ///< Until the last delivery ends.
  TransferTime lower_bound;                  ///< No selection is faster than this.

  std::uint64_t total_receivers() const noexcept;
};

/// One round in which sender i has volume[i] > 0 to deliver. Choosing the receivers so that the
/// round is shortest is NP-hard (TSC Theorem 1), so there is the heuristic and a bound: the total
/// p_i v_i against the total receive rate, and for each sender its own transmit rate and the
/// p_i-th fastest other receiver. With equal volumes the receivers are those of
/// select_published(). Errors as select_exact(), and when n times the sum of the volumes or the
/// sum of the rates reaches 2^53.
Result<VolumeSelection> select_published_volumes(const SelectionProblem& problem,
                                                 const std::vector<std::uint64_t>& volume,
                                                 SenderOrder order, Ties ties);

/// The pairs that were not served in the last k rounds, to be forced now, so that each pair is
/// served once in k+1 rounds (TSC; ICC counts one round less). age[i][j] = rounds since i last
/// reached j; pairs to a receiver with rx_kbps 0 are left out. k = 0: none.
std::vector<std::pair<Rank, Rank>> overdue_pairs(const std::vector<std::vector<std::uint32_t>>& age,
                                                 const std::vector<Kbps>& rx_kbps, std::uint32_t k);

}  // namespace selmcast
