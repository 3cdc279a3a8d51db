// Slim-DP: which coordinates travel in a round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "plan/axes/policy.h"

namespace selmcast {

/// The communication set of Slim-DP (Sun, Chen, Bian, Liu: "Slim-DP: A Multi-Agent System for
/// Communication-Efficient Distributed Deep Learning", AAMAS 2018): a *core* of the coordinates
/// that matter most by magnitude and change, and an *explorer* of others. All ranks choose the same
/// set from equal parameters and one seed, so no index ever travels.
///
/// The explorer walks through all coordinates in a shuffled order instead of drawing each round
/// anew: as random, but every coordinate's turn comes (see rounds_per_walk()).
///
/// Allocates in its constructor only. One thread at a time.
class SlimCoordinates {
 public:
  SlimCoordinates(std::uint32_t elements, const SlimShares& shares, std::uint64_t seed);

  /// Coordinates of a round: round(alpha n), at least 1.
  std::uint32_t size() const noexcept { return size_; }
  std::uint32_t core_size() const noexcept { return core_size_; }
  /// A coordinate outside the core waits less than this many rounds, the core being as it is: two
  /// walks, because the order of the next one is drawn when the last one ends. 0 with beta = alpha:
  /// there is no explorer, and a coordinate may wait for ever.
  std::uint32_t rounds_per_walk() const noexcept;

  /// The next round's set. `agreed` and `change` (how far the last exchange moved each coordinate)
  /// have one value per coordinate and are equal on all ranks. O(n) in the rounds that choose the
  /// core, otherwise O(size()).
  void next(std::span<const float> agreed, std::span<const float> change);
  /// Instead: block `turn` of all coordinates in order; ceil(n / size()) turns cover everything.
  void block(std::uint32_t turn);
  std::uint32_t blocks() const noexcept { return (elements_ + size_ - 1) / size_; }
  /// Forgets the core and the walk, as all ranks do at the same time: equal from then on.
  void restart(std::uint64_t seed);

  /// Of the last next() or block(); no coordinate twice. The core comes first.
  std::span<const std::uint32_t> indices() const noexcept { return indices_; }
  /// Of the set, for comparing ranks: below 2^22, so that float32 means of it are exact enough.
  std::uint32_t fingerprint() const noexcept;

 private:
  void choose_core(std::span<const float> agreed, std::span<const float> change);
  void explore();
  void reshuffle();

  std::uint32_t elements_, size_, core_size_, every_;
  SplitMix64 random_;
  std::uint32_t until_core_ = 0;  ///< Rounds until the core is chosen anew.
  std::vector<std::uint32_t> order_, indices_, ranked_;
  std::uint32_t at_ = 0;  ///< Place of the walk in order_.
  std::vector<double> significance_;
  std::vector<std::uint8_t> taken_;  ///< In this round's set already.
};

}  // namespace selmcast
