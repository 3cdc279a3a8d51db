#include "sync/steps/coordinates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

namespace selmcast {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::uint32_t n, std::uint64_t seed) {
  SplitMix64 random(seed);
  Floats out(n);
  for (float& value : out) value = static_cast<float>(random.unit() - 0.5);
  return out;
}

std::set<std::uint32_t> set_of(std::span<const std::uint32_t> indices) {
  return {indices.begin(), indices.end()};
}

TEST(SlimCoordinates, SizesAreTheSharesOfTheParameters) {
  const SlimCoordinates usual(1000, {0.3, 0.15, 20}, 1);
  EXPECT_EQ(usual.size(), 300U);
  EXPECT_EQ(usual.core_size(), 150U);
  const SlimCoordinates tiny(3, {0.1, 0.05, 1}, 1);
  EXPECT_EQ(tiny.size(), 1U);
  EXPECT_EQ(tiny.core_size(), 0U);
  const SlimCoordinates core_only(1000, {0.3, 0.3, 20}, 1);
  EXPECT_EQ(core_only.core_size(), 300U);
  EXPECT_EQ(core_only.rounds_per_walk(), 0U);
  const SlimCoordinates everything(7, {1.0, 0.0, 1}, 1);
  EXPECT_EQ(everything.size(), 7U);
}

/// The core by a full sort of significance, as the header states it.
std::set<std::uint32_t> expected_core(const Floats& agreed, const Floats& change,
                                      std::uint32_t size) {
  double magnitude = 0.0, movement = 0.0;
  for (const float v : agreed) magnitude += std::abs(static_cast<double>(v));
  for (const float v : change) movement += std::abs(static_cast<double>(v));
  std::vector<std::pair<double, std::uint32_t>> ranked;
  for (std::uint32_t c = 0; c < agreed.size(); ++c) {
    const double s = std::abs(static_cast<double>(agreed[c])) / magnitude +
                     (movement > 0 ? std::abs(static_cast<double>(change[c])) / movement : 0.0);
    ranked.emplace_back(-s, c);
  }
  std::sort(ranked.begin(), ranked.end());
  std::set<std::uint32_t> out;
  for (std::uint32_t i = 0; i < size; ++i) out.insert(ranked[i].second);
  return out;
}

TEST(SlimCoordinates, CoreIsWhatMattersMostAndHoldsForItsRounds) {
  constexpr std::uint32_t n = 400, every = 5;
  SlimCoordinates slim(n, {0.3, 0.1, every}, 7);
  for (std::uint32_t round = 0; round < 4 * every; ++round) {
    const auto agreed = random_floats(n, round);
    const auto change = random_floats(n, 1000 + round);
    static std::set<std::uint32_t> expected;
    if (round % every == 0) expected = expected_core(agreed, change, slim.core_size());
    slim.next(agreed, change);
    const auto indices = slim.indices();
    EXPECT_EQ(set_of(indices.first(slim.core_size())), expected) << round;
    EXPECT_EQ(set_of(indices).size(), slim.size());
    EXPECT_LT(*std::max_element(indices.begin(), indices.end()), n);
  }
}

TEST(SlimCoordinates, EveryCoordinateHasItsTurn) {
  SplitMix64 random(3);
  for (std::uint32_t trial = 0; trial < 200; ++trial) {
    const auto n = static_cast<std::uint32_t>(1 + random.below(60));
    SlimShares shares;
    shares.alpha = 0.05 + 0.95 * random.unit();
    shares.beta = shares.alpha * random.unit() * 0.99;
    shares.every = 1'000'000;  // One core for all rounds.
    SlimCoordinates slim(n, shares, trial);
    const auto agreed = random_floats(n, trial);
    std::vector<std::uint32_t> last(n, 0);
    for (std::uint32_t round = 1; round <= 6 * slim.rounds_per_walk(); ++round) {
      slim.next(agreed, Floats(n, 0.0F));
      for (const auto c : slim.indices()) last[c] = round;
      for (std::uint32_t c = 0; c < n; ++c) {
        ASSERT_LE(round - last[c], slim.rounds_per_walk())
            << "coordinate " << c << " of " << n << ", trial " << trial;
      }
    }
  }
}

TEST(SlimCoordinates, ExplorersTakeTurnsEvenly) {
  constexpr std::uint32_t n = 100, rounds = 3000;
  SlimCoordinates slim(n, {0.2, 0.0, 20}, 11);
  std::vector<std::uint32_t> count(n, 0);
  for (std::uint32_t r = 0; r < rounds; ++r) {
    slim.next(Floats(n, 1.0F), Floats(n, 0.0F));
    for (const auto c : slim.indices()) ++count[c];
  }
  for (const auto c : count) EXPECT_NEAR(c, rounds / 5, 1);
}

TEST(SlimCoordinates, EqualRanksChooseEqually) {
  constexpr std::uint32_t n = 300;
  SlimCoordinates a(n, {0.3, 0.15, 3}, 5), b(n, {0.3, 0.15, 3}, 5), other(n, {0.3, 0.15, 3}, 6);
  std::uint32_t different = 0;
  for (std::uint32_t r = 0; r < 30; ++r) {
    const auto agreed = random_floats(n, r), change = random_floats(n, r + 77);
    a.next(agreed, change);
    b.next(agreed, change);
    other.next(agreed, change);
    EXPECT_THAT(a.indices(), testing::ElementsAreArray(b.indices()));
    EXPECT_EQ(a.fingerprint(), b.fingerprint());
    EXPECT_LT(a.fingerprint(), 1U << 22U);
    different += a.fingerprint() != other.fingerprint() ? 1 : 0;
  }
  EXPECT_EQ(different, 30U);
}

TEST(SlimCoordinates, BlocksCoverEverything) {
  for (const std::uint32_t n : {1U, 7U, 100U, 101U}) {
    SlimCoordinates slim(n, {0.3, 0.1, 3}, 5);
    std::set<std::uint32_t> seen;
    for (std::uint32_t turn = 0; turn < slim.blocks(); ++turn) {
      slim.block(turn);
      EXPECT_EQ(set_of(slim.indices()).size(), slim.size());
      for (const auto c : slim.indices()) seen.insert(c);
    }
    EXPECT_EQ(seen.size(), n);
  }
}

}  // namespace
}  // namespace selmcast
