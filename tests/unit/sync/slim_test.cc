// What Slim-DP is for: a quadratic with few bytes, no coordinate forgotten, nothing lost, and what
// its explorer is worth.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "sync/steps/delta_exchange.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

constexpr std::uint32_t kRanks = 4, kCoordinates = 10'000;

/// Rank i minimises |w - target_i|^2 / 2 by gradient steps of .1, a round after each.
class Quadratic {
 public:
  explicit Quadratic(std::optional<SlimShares> slim)
      : models_(kRanks, Floats(kCoordinates, 0.0F)), targets_(models_), best_(kCoordinates, 0.0) {
    SplitMix64 random(12);
    for (std::uint32_t c = 0; c < kCoordinates; ++c) {
      const auto common = static_cast<float>(random.unit() * 2 - 1);
      for (auto& target : targets_) {
        target[c] = common + static_cast<float>(random.unit() - 0.5);
        best_[c] += static_cast<double>(target[c]) / kRanks;
      }
    }
    exchanges_.reserve(kRanks);
    for (auto& model : models_) exchanges_.emplace_back(model, 1.0, slim, 3);
  }

  void round() {
    for (std::uint32_t i = 0; i < kRanks; ++i) {
      for (std::uint32_t c = 0; c < kCoordinates; ++c) {
        models_[i][c] -= 0.1F * (models_[i][c] - targets_[i][c]);
      }
      exchanges_[i].depart(false);
    }
    const auto size = exchanges_[0].stream().size();
    for (std::size_t i = 0; i < size; ++i) {
      double sum = 0.0;
      for (auto& exchange : exchanges_) sum += static_cast<double>(exchange.stream()[i]);
      for (auto& exchange : exchanges_) exchange.stream()[i] = static_cast<float>(sum / kRanks);
    }
    for (auto& exchange : exchanges_) exchange.arrive();
    bytes_ += 4 * static_cast<double>(size);
  }

  /// Of the agreed parameters, above the least possible, as a share of that at the start.
  double loss() const {
    double now = 0.0, start = 0.0;
    for (std::uint32_t c = 0; c < kCoordinates; ++c) {
      const double off = static_cast<double>(exchanges_[0].agreed()[c]) - best_[c];
      now += off * off;
      start += best_[c] * best_[c];
    }
    return now / start;
  }
  /// Bytes that a rank has sent when the loss is down to 1e-3; infinite when it never is.
  double bytes_to_a_thousandth() {
    for (int r = 0; r < 500; ++r) {
      round();
      if (loss() <= 1e-3) return bytes_;
    }
    return INFINITY;
  }

 private:
  std::vector<Floats> models_, targets_;
  std::vector<double> best_;
  std::vector<DeltaExchange> exchanges_;
  double bytes_ = 0.0;
};

TEST(Slim, ReachesAThousandthWithHalfOfTheBytes) {
  const double full = Quadratic(std::nullopt).bytes_to_a_thousandth();
  const double slim = Quadratic(SlimShares{0.3, 0.15, 20}).bytes_to_a_thousandth();
  // Exact: the loss is .81 to the power of the rounds; 33 are needed, of 10 002 float32.
  EXPECT_EQ(full, 33 * 4 * 10'002.0);
  EXPECT_LE(slim, 0.5 * full) << slim / full;
}

TEST(Slim, WithoutAnExplorerMostCoordinatesNeverMove) {
  Quadratic explores(SlimShares{0.3, 0.15, 20}), core_only(SlimShares{0.3, 0.3, 20});
  for (int r = 0; r < 100; ++r) {
    explores.round();
    core_only.round();
  }
  EXPECT_LT(explores.loss(), 1e-6);
  // A core chosen by magnitude and movement stays with what has moved: 70 % do not.
  EXPECT_GT(core_only.loss(), 0.5);
}

TEST(Slim, EveryCoordinateTravelsWithinItsBoundWhateverTheCore) {
  const SlimShares shares{0.3, 0.15, 3};
  SlimCoordinates slim(kCoordinates, shares, 5);
  EXPECT_EQ(slim.rounds_per_walk(), 14U);  // Twice 10 000 / 1500.
  // The bound of a random explorer, in order: ln d / (alpha - beta).
  EXPECT_LT(slim.rounds_per_walk(), std::log(kCoordinates) / 0.15);
  SplitMix64 random(9);
  std::vector<std::uint32_t> last(kCoordinates, 0);
  Floats agreed(kCoordinates), change(kCoordinates);
  for (std::uint32_t round = 1; round <= 120; ++round) {
    for (auto& x : agreed) x = static_cast<float>(random.unit());
    for (auto& x : change) x = static_cast<float>(random.unit());
    slim.next(agreed, change);
    for (const auto c : slim.indices()) last[c] = round;
    for (std::uint32_t c = 0; c < kCoordinates; ++c) {
      ASSERT_LE(round - last[c], slim.rounds_per_walk()) << "coordinate " << c;
    }
  }
}

/// Largest difference, over coordinates, of agreed + mean of own from the mean of what was done.
double lost() {
  constexpr std::uint32_t n = 4, elements = 60;
  std::vector<Floats> models(n, Floats(elements, 0.0F));
  std::vector<DeltaExchange> exchanges;
  exchanges.reserve(n);
  for (auto& model : models) exchanges.emplace_back(model, 1.0, SlimShares{0.3, 0.1, 4}, 8);
  std::vector<double> done(elements, 0.0);
  SplitMix64 random(6);
  double worst = 0.0;
  for (int round = 0; round < 40; ++round) {
    for (auto& model : models) {
      for (std::uint32_t c = 0; c < elements; ++c) {
        const float step = static_cast<float>(random.below(65)) / 1024.0F;  // Sums are exact.
        model[c] += step;
        done[c] += static_cast<double>(step) / n;
      }
    }
    for (auto& exchange : exchanges) exchange.depart(false);
    for (std::size_t i = 0; i < exchanges[0].stream().size(); ++i) {
      float sum = 0.0F;
      for (auto& exchange : exchanges) sum += exchange.stream()[i];
      for (auto& exchange : exchanges) exchange.stream()[i] = sum / n;
    }
    for (auto& exchange : exchanges) exchange.arrive();
    for (std::uint32_t c = 0; c < elements; ++c) {
      double sum = 0.0;
      for (std::uint32_t i = 0; i < n; ++i) {
        sum += static_cast<double>(exchanges[i].agreed()[c] + exchanges[i].own()[c]) / n;
      }
      worst = std::max(worst, std::abs(sum - done[c]));
    }
  }
  return worst;
}

TEST(Slim, WhatDoesNotTravelYetIsConserved) {
  EXPECT_LT(lost(), 1e-6);
}

}  // namespace
}  // namespace selmcast
