#include "sync/mix/accumulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"

namespace selmcast {
namespace {

constexpr std::size_t kCount = 1003;
constexpr WireElement kWireElements[] = {WireElement::f32, WireElement::bf16, WireElement::f16};

/// The last frame is short.
StreamShape shape_of(WireElement element) {
  return {kCount * bytes_of(element), 400, 4};
}

std::vector<float> random_values(std::uint64_t seed, std::size_t count = kCount) {
  SplitMix64 rng(seed);
  std::vector<float> out(count);
  for (auto& v : out) v = static_cast<float>(rng.unit() * 2 - 1);
  return out;
}

/// What a rank with these parameters sends: with f32 the parameters themselves, in place.
class Sent {
 public:
  Sent(WireElement element, const std::vector<float>& values)
      : in_place_(std::as_bytes(std::span(values)).data()) {
    if (element == WireElement::f32) return;
    encoded_.resize(values.size() * bytes_of(element));
    kernels::encode(element, encoded_.data(), values.data(), values.size());
  }
  const std::byte* data() const { return encoded_.empty() ? in_place_ : encoded_.data(); }

 private:
  const std::byte* in_place_;
  std::vector<std::byte> encoded_;
};

/// Adds every frame of `update`, from memory at an odd address as in a receive buffer.
void add_all(Accumulator& accumulator, WireElement element, const std::vector<float>& update,
             const Sent& sent) {
  const StreamShape shape = shape_of(element);
  std::vector<std::byte> buffer(shape.bytes + 1);
  std::memcpy(buffer.data() + 1, Sent(element, update).data(), shape.bytes);
  for (std::uint32_t f = 0; f < shape.frames(); ++f) {
    accumulator.add(f, 1, {buffer.data() + 1 + shape.offset_of(f), shape.length_of(f)},
                    sent.data());
  }
}

/// One round of a rank.
std::vector<float> mixed(const std::tuple<MixKind, bool, WireElement>& how, std::vector<float> own,
                         const std::vector<std::vector<float>>& updates) {
  const auto [mix, deterministic, element] = how;
  Accumulator accumulator(shape_of(element), mix, deterministic, element);
  const Sent sent(element, own);
  accumulator.begin(0, 2, {});
  for (const auto& update : updates) add_all(accumulator, element, update, sent);
  accumulator.finish(own.data(), sent.data());
  return own;
}

/// Half a unit in the last place of `x` in the type that travels: the most that rounding moves it.
/// 24, 8 or 11 bits of precision; binary16 has no units below 2^-24.
double half_unit(WireElement element, float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  if (element == WireElement::f32) return 0;
  if (element == WireElement::bf16) return std::ldexp(0.5, exponent - 8);
  return std::ldexp(0.5, std::max(exponent - 11, -24));
}

class Mixes : public testing::TestWithParam<std::tuple<MixKind, bool, WireElement>> {};

TEST_P(Mixes, GivesTheMeanOfOwnAndReceivedWithinTheRoundingOfWhatTravelled) {
  const auto [mix, deterministic, element] = GetParam();
  Accumulator accumulator(shape_of(element), mix, deterministic, element);
  double worst = 0;
  for (const int senders : {1, 2, 5}) {  // The second use must not remember the first.
    auto own = random_values(1);
    const Sent sent(element, own);
    const double weight = 1.0 / (senders + 1);
    std::vector<double> want(kCount), bound(kCount, 1e-6);
    for (std::size_t i = 0; i < kCount; ++i) {
      want[i] = static_cast<double>(own[i]) * weight;
      bound[i] += half_unit(element, own[i]) * weight * (mix == MixKind::average ? senders : 1);
    }
    accumulator.begin(0, 2, {});
    for (int s = 0; s < senders; ++s) {
      const auto update = random_values(static_cast<std::uint64_t>(10 + s));
      add_all(accumulator, element, update, sent);
      for (std::size_t i = 0; i < kCount; ++i) {
        want[i] += static_cast<double>(update[i]) * weight;
        bound[i] += half_unit(element, update[i]) * weight;
      }
    }
    accumulator.finish(own.data(), sent.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      const double off = std::abs(static_cast<double>(own[i]) - want[i]);
      ASSERT_LE(off, bound[i]) << i;
      worst = std::max(worst, off / bound[i]);
    }
  }
  if (element != WireElement::f32) {
    EXPECT_GT(worst, 0.5) << "nothing was rounded";
  }
}

TEST_P(Mixes, FramesNobodySentStay) {
  const auto [mix, deterministic, element] = GetParam();
  const StreamShape shape = shape_of(element);
  Accumulator accumulator(shape, mix, deterministic, element);
  auto own = random_values(1);
  const auto before = own;
  const auto update = random_values(2);
  const Sent sent(element, own), received(element, update);
  accumulator.begin(0, 2, {});
  accumulator.add(3, 1, {received.data() + shape.offset_of(3), 400}, sent.data());
  accumulator.finish(own.data(), sent.data());
  EXPECT_EQ(accumulator.contributors(3), 1U);
  EXPECT_EQ(accumulator.contributors(4), 0U);
  const std::size_t frame = 400 / bytes_of(element);
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (i >= 3 * frame && i < 4 * frame) {
      ASSERT_NEAR(own[i], (before[i] + update[i]) / 2,
                  1e-6 + half_unit(element, before[i]) + half_unit(element, update[i]));
    } else {
      ASSERT_EQ(own[i], before[i]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Mixes,
                         testing::Combine(testing::Values(MixKind::average, MixKind::sgd),
                                          testing::Bool(), testing::ValuesIn(kWireElements)));

TEST(Accumulator, EqualInputsStayEqualBitForBit) {
  // selection-study: the reason for the difference form. With 16 bits the parameters keep what does
  // not travel.
  const auto own = random_values(7);
  for (const bool deterministic : {false, true}) {
    for (const auto element : kWireElements) {
      EXPECT_EQ(mixed({MixKind::average, deterministic, element}, own, {own, own, own, own, own}),
                own);
    }
  }
}

TEST(Accumulator, MeansOfGradientsAreTheSameOnEveryRank) {
  const auto a = random_values(1), b = random_values(2), c = random_values(3);
  for (const auto element : {WireElement::bf16, WireElement::f16}) {
    const std::tuple<MixKind, bool, WireElement> fixed{MixKind::sgd, true, element};
    const auto mean = mixed(fixed, a, {b, c});
    EXPECT_EQ(mixed(fixed, b, {c, a}), mean);
    EXPECT_EQ(mixed(fixed, c, {a, b}), mean);
    const std::tuple<MixKind, bool, WireElement> floating{MixKind::sgd, false, element};
    EXPECT_EQ(mixed(floating, a, {b}), mixed(floating, b, {a}));
  }
}

TEST(Accumulator, FixedPointDoesNotDependOnTheOrder) {
  const auto own = random_values(1);
  std::vector<std::vector<float>> updates;
  for (std::uint64_t s = 0; s < 6; ++s) updates.push_back(random_values(20 + s));
  for (const auto element : kWireElements) {
    const std::tuple<MixKind, bool, WireElement> fixed{MixKind::average, true, element};
    const std::tuple<MixKind, bool, WireElement> floating{MixKind::average, false, element};
    const auto first = mixed(fixed, own, updates), first_floating = mixed(floating, own, updates);
    SplitMix64 rng(3);
    bool float_differs = false;
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::shuffle(updates.begin(), updates.end(), rng);
      ASSERT_EQ(mixed(fixed, own, updates), first);
      float_differs |= mixed(floating, own, updates) != first_floating;
    }
    // Few binary16 or bfloat16 add up exactly in float32 in any order.
    if (element == WireElement::f32) {
      EXPECT_TRUE(float_differs) << "the inputs are too tame to show anything";
    }
  }
}

/// What a rank at `own` has after so many others sent `update`, in fixed point.
float fixed_mean(MixKind mix, float own, float update, int others) {
  Accumulator accumulator({4, 400, 1}, mix, true);
  const auto* sent = std::as_bytes(std::span(&own, 1)).data();
  accumulator.begin(0, 2, {});
  for (int i = 0; i < others; ++i) {
    accumulator.add(0, 1, std::as_bytes(std::span(&update, 1)), sent);
  }
  accumulator.finish(&own, sent);
  return own;
}

TEST(Accumulator, FixedPointClampsWhatHasNoPlace) {
  EXPECT_EQ(fixed_mean(MixKind::sgd, 0, -1e30F, 1), -0x1p27F);
  EXPECT_EQ(fixed_mean(MixKind::sgd, 0, 1e30F, 1), 0x1p27F);
  // From the 8th on a sum of the largest stays at 7 * 2^28 less a unit, which float32 rounds away.
  for (const int others : {8, 9, 100}) {
    const double scale = 1.0 / (others + 1);
    EXPECT_EQ(fixed_mean(MixKind::sgd, 0, 1e30F, others), static_cast<float>(7 * 0x1p28 * scale));
    EXPECT_EQ(fixed_mean(MixKind::sgd, 0, -1e30F, others), static_cast<float>(-7 * 0x1p28 * scale));
  }
}

TEST(Accumulator, FixedPointShowsWhatIsNoNumber) {
  for (const auto mix : {MixKind::sgd, MixKind::average}) {
    for (const int others : {1, 2, 8, 9, 16, 17, 100}) {
      for (const float update : {std::nanf(""), INFINITY, -INFINITY}) {
        EXPECT_TRUE(std::isnan(fixed_mean(mix, 1, update, others))) << others << ' ' << update;
        EXPECT_TRUE(std::isnan(fixed_mean(mix, update, 1, others))) << others << ' ' << update;
      }
    }
  }
  // One among many, first or last.
  const float own = 0, one = 1, nan = std::nanf("");
  for (const int at : {0, 9}) {
    Accumulator accumulator({4, 400, 1}, MixKind::average, true);
    float result = own;
    accumulator.begin(0, 2, {});
    for (int i = 0; i < 10; ++i) {
      accumulator.add(0, 1, std::as_bytes(std::span(i == at ? &nan : &one, 1)),
                      std::as_bytes(std::span(&own, 1)).data());
    }
    accumulator.finish(&result, std::as_bytes(std::span(&own, 1)).data());
    EXPECT_TRUE(std::isnan(result)) << at;
  }
}

// Parameters that moved away from what updates were compared with: the same mean of own and
// received.
TEST(MovedAccumulator, GivesTheMeanWithTheParametersAsTheyAreNow) {
  const WireElement f32 = WireElement::f32;
  Accumulator accumulator(shape_of(f32), MixKind::average, false);
  const auto before = random_values(1);
  const auto updates = std::vector{random_values(2), random_values(3), random_values(4)};
  auto own = random_values(5);
  const Sent sent(f32, before);
  accumulator.begin(shape_of(f32).bytes);
  for (const auto& update : updates) add_all(accumulator, f32, update, sent);
  const auto now = own;
  accumulator.move_to(own.data(), sent.data());
  accumulator.finish(own.data(), sent.data());
  for (std::size_t i = 0; i < kCount; ++i) {
    double mean = static_cast<double>(now[i]) / 4;
    for (const auto& update : updates) mean += static_cast<double>(update[i]) / 4;
    ASSERT_NEAR(own[i], mean, 1e-6) << i;
  }
  // Updates that equal the parameters leave them alone, wherever both were before.
  accumulator.begin(shape_of(f32).bytes);
  add_all(accumulator, f32, own, sent);
  const auto equal = own;
  accumulator.move_to(own.data(), sent.data());
  accumulator.finish(own.data(), sent.data());
  EXPECT_EQ(own, equal);
}

}  // namespace
}  // namespace selmcast
