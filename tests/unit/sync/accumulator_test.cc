#include "sync/accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/random.h"

namespace selmcast {
namespace {

constexpr StreamShape kShape{4 * 1003, 400, 4};  // The last frame is short.

std::vector<float> random_values(std::uint64_t seed, std::size_t count = 1003) {
  SplitMix64 rng(seed);
  std::vector<float> out(count);
  for (auto& v : out) v = static_cast<float>(rng.unit() * 2 - 1);
  return out;
}

/// Adds every frame of `update`, from memory at an odd address as in a receive buffer.
void add_all(Accumulator& accumulator, const std::vector<float>& update, const float* own) {
  std::vector<std::byte> buffer(kShape.bytes + 1);
  std::memcpy(buffer.data() + 1, update.data(), kShape.bytes);
  for (std::uint32_t f = 0; f < kShape.frames(); ++f) {
    accumulator.add(f, {buffer.data() + 1 + kShape.offset_of(f), kShape.length_of(f)}, own);
  }
}

class Mixes : public testing::TestWithParam<std::tuple<MixKind, bool>> {};

TEST_P(Mixes, GivesTheMeanOfOwnAndReceived) {
  const auto [mix, deterministic] = GetParam();
  Accumulator accumulator(kShape, mix, deterministic);
  for (const int senders : {1, 2, 5}) {  // The second use must not remember the first.
    auto own = random_values(1);
    std::vector<double> want(own.begin(), own.end());
    accumulator.begin();
    for (int s = 0; s < senders; ++s) {
      const auto update = random_values(static_cast<std::uint64_t>(10 + s));
      add_all(accumulator, update, own.data());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(update[i]);
    }
    accumulator.finish(own.data());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(own[i]), want[i] / (senders + 1), 1e-6) << i;
    }
  }
}

TEST_P(Mixes, FramesNobodySentStay) {
  const auto [mix, deterministic] = GetParam();
  Accumulator accumulator(kShape, mix, deterministic);
  auto own = random_values(1);
  const auto before = own;
  const auto update = random_values(2);
  accumulator.begin();
  accumulator.add(3, std::as_bytes(std::span(update)).subspan(kShape.offset_of(3), 400),
                  own.data());
  accumulator.finish(own.data());
  EXPECT_EQ(accumulator.contributors(3), 1U);
  EXPECT_EQ(accumulator.contributors(4), 0U);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (i >= 300 && i < 400) {
      ASSERT_NEAR(own[i], (before[i] + update[i]) / 2, 1e-6);
    } else {
      ASSERT_EQ(own[i], before[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mixes,
                         testing::Combine(testing::Values(MixKind::average, MixKind::sgd),
                                          testing::Bool()));

TEST(Accumulator, EqualInputsStayEqualBitForBit) {
  // selection-study: the reason for the difference form.
  for (const bool deterministic : {false, true}) {
    Accumulator accumulator(kShape, MixKind::average, deterministic);
    auto own = random_values(7);
    const auto before = own;
    accumulator.begin();
    for (int s = 0; s < 5; ++s) add_all(accumulator, before, own.data());
    accumulator.finish(own.data());
    EXPECT_EQ(own, before);
  }
}

TEST(Accumulator, FixedPointDoesNotDependOnTheOrder) {
  std::vector<int> order(6);
  std::iota(order.begin(), order.end(), 0);
  std::vector<float> first;
  SplitMix64 rng(3);
  bool float_differs = false;
  std::vector<float> first_float;
  for (int attempt = 0; attempt < 20; ++attempt) {
    for (const bool deterministic : {true, false}) {
      Accumulator accumulator(kShape, MixKind::average, deterministic);
      auto own = random_values(1);
      accumulator.begin();
      for (const int s : order) {
        add_all(accumulator, random_values(static_cast<std::uint64_t>(20 + s)), own.data());
      }
      accumulator.finish(own.data());
      auto& reference = deterministic ? first : first_float;
      if (attempt == 0) reference = own;
      if (deterministic) {
        ASSERT_EQ(own, reference);
      }
      float_differs |= own != reference;
    }
    std::shuffle(order.begin(), order.end(), rng);
  }
  EXPECT_TRUE(float_differs) << "the inputs are too tame to show anything";
}

TEST(Accumulator, FixedPointClampsWhatHasNoPlace) {
  Accumulator accumulator({8, 400, 1}, MixKind::sgd, true);
  float own[2] = {0, 0};
  const float update[2] = {std::nanf(""), INFINITY};
  accumulator.begin();
  accumulator.add(0, std::as_bytes(std::span(update)), own);
  accumulator.finish(own);
  EXPECT_EQ(own[0], -0x1p27F);
  EXPECT_EQ(own[1], 0x1p27F);
}

}  // namespace
}  // namespace selmcast
