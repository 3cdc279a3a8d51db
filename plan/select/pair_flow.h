// Integral flow from senders to receivers: which pairs can be served with given slots.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/select/selection.h"

namespace selmcast {

/// Each pair (i, j) carries 0 or 1; receiver j takes at most slots[j]; self pairs and
/// forbidden pairs are never used, forced pairs always. Senders' degrees only grow. Memory n^2
/// bytes.
class PairFlow {
 public:
  /// `forced` (within the slots) and `forbidden` as by_sender() gives them, without a pair in both.
  PairFlow(std::vector<std::uint32_t> slots, const std::vector<std::vector<Rank>>& forced,
           const std::vector<std::vector<Rank>>& forbidden);

  /// Raises every sender to at least `demand[i]` receivers; false when that is impossible. First
  /// the Kleitman-Wang order (each sender takes the receivers with the most slots left, among
  /// equals those with the largest demand left of their own, then the oldest pairs, then the lowest
  /// index), which alone is exact without forced and forbidden pairs; then augmenting paths.
  bool fill(const std::vector<std::uint32_t>& demand,
            const std::vector<std::vector<std::uint32_t>>& age);
  /// One more receiver for a sender by an augmenting path; the other degrees stay. On failure every
  /// sender that the search reached is tight as well (for good) and is marked in `tight`. O(n^2).
  bool raise(std::uint32_t sender, std::vector<bool>& tight);
  /// Keeps the degrees and finds the pairs with the largest total age (minimum-cost flow by
  /// successive shortest paths, exact). O(pairs * n^2).
  void prefer_oldest(const std::vector<std::vector<std::uint32_t>>& age);

  std::uint32_t degree(std::uint32_t sender) const noexcept { return degree_[sender]; }
  /// Slots of all receivers together that are not in use.
  std::uint64_t free_slots() const noexcept;
  std::vector<std::vector<Rank>> receivers() const;

 private:
  enum class Pair : std::uint8_t { unused, used, never, forced };

  Pair& at(std::size_t i, std::size_t j) noexcept { return pairs_[i * n_ + j]; }
  Pair at(std::size_t i, std::size_t j) const noexcept { return pairs_[i * n_ + j]; }
  void use(std::uint32_t sender, std::uint32_t receiver) noexcept;

  std::uint32_t n_;
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> free_, degree_;
};

}  // namespace selmcast
