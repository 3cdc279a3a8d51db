#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace selmcast {
namespace {

// First outputs of the reference C program of Vigna (prng.di.unimi.it/splitmix64.c), as published
// for seed 1234567 by Rosetta Code, and for seed 0 in the test suites of several languages.
TEST(SplitMix64, PublishedValues) {
  SplitMix64 a(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317U, 3203168211198807973U, 9817491932198370423U, 4593380528125082431U,
        16408922859458223821U})
    EXPECT_EQ(a(), expected);
  SplitMix64 zero(0);
  for (const std::uint64_t expected :
       {0xE220A8397B1DCDAFU, 0x6E789E6AA1B965F4U, 0x06C45D188009454FU, 0xF88BB8A8724C81ECU})
    EXPECT_EQ(zero(), expected);
}

TEST(SplitMix64, MixSeedIsTheFirstOutput) {
  static_assert(mix_seed(0) == 0xE220A8397B1DCDAFU);
  EXPECT_EQ(mix_seed(1234567), 6457827717110365317U);
}

TEST(SplitMix64, BelowStaysBelowAndIsUniform) {
  SplitMix64 random(5);
  EXPECT_EQ(random.below(0), 0U);
  EXPECT_EQ(random.below(1), 0U);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(0xFFFFFFFFU), 0xFFFFFFFFU);
  constexpr int kDraws = 70'000;
  std::array<int, 7> seen{};
  for (int i = 0; i < kDraws; ++i) ++seen[random.below(7)];
  // Each count is binomial(70000, 1/7): five standard deviations either side.
  const double mean = kDraws / 7.0, deviation = std::sqrt(kDraws * (1.0 / 7.0) * (6.0 / 7.0));
  for (const int count : seen) EXPECT_NEAR(count, mean, 5 * deviation);
}

TEST(SplitMix64, UnitIsInTheHalfOpenInterval) {
  SplitMix64 random(9);
  double sum = 0.0;
  constexpr int kDraws = 50'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.unit();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12.0 / kDraws));
}

TEST(SplitMix64, ChanceOfZeroAndOneAreCertain) {
  SplitMix64 random(1);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(random.chance(0.0));
    EXPECT_TRUE(random.chance(1.0));
  }
}

}  // namespace
}  // namespace selmcast
