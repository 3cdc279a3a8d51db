#include "sync/steps/coordinates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/shuffle.h"

namespace selmcast {

SlimCoordinates::SlimCoordinates(std::uint32_t elements, const SlimShares& shares,
                                 std::uint64_t seed)
    : elements_(elements),
      size_(static_cast<std::uint32_t>(std::lround(shares.alpha * elements))),
      core_size_(static_cast<std::uint32_t>(std::lround(shares.beta * elements))),
      every_(shares.every),
      random_(seed),
      order_(elements),
      ranked_(elements),
      significance_(elements),
      taken_(elements, 0) {
  SELMCAST_CHECK(elements > 0 && shares.every > 0, "a set of parameters and a period");
  SELMCAST_CHECK(shares.beta >= 0.0 && shares.beta <= shares.alpha && shares.alpha <= 1.0,
                 "shares: 0 <= beta <= alpha <= 1");
  size_ = std::clamp(size_, 1U, elements_);
  // Rounding must not take the explorer away that was asked for.
  core_size_ = shares.beta < shares.alpha ? std::min(core_size_, size_ - 1) : size_;
  indices_.reserve(size_);
  restart(seed);
}

std::uint32_t SlimCoordinates::rounds_per_walk() const noexcept {
  const auto explorers = size_ - core_size_;
  if (explorers == 0) return 0;
  return 2 * ((elements_ + explorers - 1) / explorers);
}

void SlimCoordinates::restart(std::uint64_t seed) {
  random_ = SplitMix64(seed);
  until_core_ = 0;
  std::iota(order_.begin(), order_.end(), 0U);
  reshuffle();
}

void SlimCoordinates::reshuffle() {
  shuffle(order_, random_);
  at_ = 0;
}

void SlimCoordinates::choose_core(std::span<const float> agreed, std::span<const float> change) {
  double magnitude = 0.0, movement = 0.0;
  for (std::uint32_t c = 0; c < elements_; ++c) {
    magnitude += std::abs(static_cast<double>(agreed[c]));
    movement += std::abs(static_cast<double>(change[c]));
  }
  // Each measured in units of its own mean: the paper leaves the weight of the two open.
  const double by_magnitude = magnitude > 0.0 ? 1.0 / magnitude : 0.0;
  const double by_movement = movement > 0.0 ? 1.0 / movement : 0.0;
  for (std::uint32_t c = 0; c < elements_; ++c) {
    significance_[c] = std::abs(static_cast<double>(agreed[c])) * by_magnitude +
                       std::abs(static_cast<double>(change[c])) * by_movement;
  }
  std::iota(ranked_.begin(), ranked_.end(), 0U);
  const auto end = ranked_.begin() + core_size_;
  std::nth_element(ranked_.begin(), end, ranked_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return significance_[a] != significance_[b] ? significance_[a] > significance_[b] : a < b;
  });
  // Which of the first come first depends on the library; their order does not after this.
  std::sort(ranked_.begin(), end);
}

void SlimCoordinates::next(std::span<const float> agreed, std::span<const float> change) {
  if (until_core_ == 0) {
    choose_core(agreed, change);
    until_core_ = every_;
  }
  --until_core_;
  indices_.assign(ranked_.begin(), ranked_.begin() + core_size_);
  explore();
}

void SlimCoordinates::explore() {
  for (const auto c : indices_) taken_[c] = 1;
  while (indices_.size() < size_) {
    if (at_ == elements_) reshuffle();
    const auto c = order_[at_++];
    if (taken_[c] != 0) continue;
    taken_[c] = 1;
    indices_.push_back(c);
  }
  for (const auto c : indices_) taken_[c] = 0;
}

void SlimCoordinates::block(std::uint32_t turn) {
  const auto from = static_cast<std::uint64_t>(turn) * size_;
  indices_.resize(size_);
  for (std::uint32_t i = 0; i < size_; ++i) {
    indices_[i] = static_cast<std::uint32_t>((from + i) % elements_);
  }
}

std::uint32_t SlimCoordinates::fingerprint() const noexcept {
  std::uint64_t mixed = 0;
  for (const auto c : indices_) mixed = mix_seed(mixed ^ c);
  return static_cast<std::uint32_t>(mixed >> 42U);
}

}  // namespace selmcast
