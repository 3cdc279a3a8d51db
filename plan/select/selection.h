// The selection problem and its explicit solutions: who sends to whom, at which common rate.
//
// Notation of the SELMCAST papers (ICC'22, IEEE TSC 2024): every selected transfer of a round runs
// at the common rate y; a sender with rate U pays y once (multicast) or per receiver (unicast), a
// receiver with rate D pays y per sender it hears.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace selmcast {

/// A rate in kbit/s as an exact fraction in lowest terms; den > 0.
struct RateFraction {
  std::uint64_t num = 0;
  std::uint64_t den = 1;
  bool operator==(const RateFraction&) const = default;
};
/// Exact comparison by 128-bit cross multiplication.
bool operator<(const RateFraction& a, const RateFraction& b) noexcept;
RateFraction reduced(std::uint64_t num, std::uint64_t den) noexcept;
/// In kbit/s, rounded: for reports only.
inline double value_of(const RateFraction& rate) noexcept {
  return static_cast<double>(rate.num) / static_cast<double>(rate.den);
}

enum class Fanout : std::uint8_t { multicast, unicast };

struct SelectionProblem {
  std::vector<std::uint32_t> p;  ///< Least receivers of each sender; its size is n.
  Fanout fanout = Fanout::multicast;
  std::vector<Kbps> tx_kbps;  ///< Available, background load already subtracted.
  std::vector<Kbps> rx_kbps;
  std::vector<std::vector<std::uint32_t>> age;   ///< age[i][j]; empty = all equal.
  std::vector<std::pair<Rank, Rank>> forced;     ///< (sender, receiver) pairs that must be served.
  std::vector<std::pair<Rank, Rank>> forbidden;  ///< Pairs that must not; none is forced as well.
  std::uint32_t k = 0;     ///< Each receiver with rate gets >= ceil((n-1)/k) slots; 0 = none.
  std::uint64_t seed = 1;  ///< For random choices only.
};

struct Bottleneck {
  bool is_sender = false;
  Rank rank = 0;
  std::uint32_t slots = 0;  ///< Transfers that this side carries at the rate.
};

struct Selection {
  RateFraction rate;
  std::vector<std::vector<Rank>> receivers;  ///< Ascending, per sender.
  Bottleneck bottleneck;

  std::uint64_t total_receivers() const noexcept;
  std::uint32_t out_degree_min() const noexcept;
};

/// Checks shapes and ranges (2 <= n <= 65 535, rates < 2^53, 1 <= p <= n-1, forced and forbidden
/// pairs in range, no self pair, no pair in both). Errors are bad_input and name the field.
Result<void> check_problem(const SelectionProblem& problem);

/// Up to this many ranks select_exact() also maximises the total age.
inline constexpr std::uint32_t kOldestExactMembers = 64;

/// The optimum, lexicographically:
///  1. the highest rate y at which every sender can have at least p receivers, forced pairs
///     included and forbidden ones left out, and (k > 0) every receiver with rate has
///     ceil((n-1)/k) slots;
///  2. the most receivers in total at y (unicast: within each sender's rate);
///  3. the lexicographically largest sorted vector of out-degrees; of equally few receivers, the
///     sender whose row has the largest sum of ages gets the next one, then the lowest index;
///  4. with these out-degrees, the largest sum of ages over the chosen pairs: exact for n up to
///     kOldestExactMembers, above that a preference among receivers with equally many slots left.
/// Ties beyond that are broken by index, the same way on every machine.
/// A receiver without rate is never chosen. The bottleneck is a sender whose transmit rate is used
/// up, otherwise a receiver whose receive rate is.
///
/// Errors (bad_input) say why there is no solution: p > n-1, a sender without transmit rate, too
/// few receivers that have rate and are not forbidden, a forced pair to a receiver without rate.
///
/// The rate is a capped D'Hondt apportionment of the n*p deliveries among the receivers (equal p),
/// or the highest quotient that passes the Gale-Ryser condition with Fulkerson's forbidden diagonal
/// (p per sender) or a flow (forced or forbidden pairs). Degrees by water-filling on a
/// polymatroid; pairs by Kleitman-Wang order. O(n^2) expected and n^2 bytes without ages; forced
/// and forbidden pairs may need augmenting paths of O(n^2) each, ages of up to kOldestExactMembers
/// ranks O(pairs n^2).
Result<Selection> select_exact(const SelectionProblem& problem);

/// The papers' heuristic (ICC'22 Algorithms 1 and 2), ties by index; `k` is not used. Rate and
/// bottleneck are those of the finished selection. Errors as select_exact().
Result<Selection> select_published(const SelectionProblem& problem);

/// The Orpheus baseline (SoCC'18): exactly p receivers each, uniformly at random among those with
/// receive rate that are not forbidden; forced pairs first (more than p of them stay). `k` is not
/// used. The same seed gives the same selection on every machine. Errors as select_exact().
Result<Selection> select_random(const SelectionProblem& problem);

}  // namespace selmcast
