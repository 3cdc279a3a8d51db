// Every instruction set that this machine has against scalar references, which are written from the
// definitions of the formats: IEEE 754-2019 binary16, and bfloat16 as the upper half of binary32.
#include "sync/mix/kernels.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace selmcast {
namespace {

constexpr WireElement kElements[] = {WireElement::f32, WireElement::bf16, WireElement::f16};

/// Runs `body` once per instruction set.
template <class Body>
void on_every_target(const Body& body) {
  const auto targets = hwy::SupportedAndGeneratedTargets();
#if defined(__x86_64__)
  // Built for one machine alone (-march=native) there may be one.
  constexpr bool kSeveral = (HWY_TARGETS & (HWY_TARGETS - 1)) != 0;
  EXPECT_GE(targets.size(), kSeveral ? 2U : 1U) << "nothing to compare";
#endif
  for (const auto target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// --- the formats ---------------------------------------------------------------------------------

struct Format16 {
  WireElement element;
  int mantissa_bits, bias;

  std::uint32_t infinity() const { return 0x7FFFU >> mantissa_bits << mantissa_bits; }
  bool is_nan(std::uint32_t pattern) const { return (pattern & 0x7FFFU) > infinity(); }
  /// Value of a pattern without sign that is no NaN; that of infinity is where numbers would go on.
  double magnitude(std::uint32_t pattern) const {
    const auto exponent = static_cast<int>(pattern >> mantissa_bits);
    const double mantissa = pattern & ((1U << mantissa_bits) - 1);
    const double one = std::ldexp(1.0, mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                         : std::ldexp(one + mantissa, exponent - bias - mantissa_bits);
  }
};

constexpr Format16 kFormats[] = {{WireElement::bf16, 7, 127}, {WireElement::f16, 10, 15}};

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
std::uint32_t to_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

std::uint32_t decoded_bits(const Format16& format, std::uint32_t pattern) {
  const std::uint32_t sign = pattern >> 15U << 31U, magnitude = pattern & 0x7FFFU;
  if (format.is_nan(pattern)) {
    if (format.element == WireElement::bf16) return pattern << 16U;
    return sign | 0x7FC00000U | (magnitude & 0x3FFU) << 13U;
  }
  if (magnitude == format.infinity()) return sign | 0x7F800000U;
  return sign | to_bits(static_cast<float>(format.magnitude(magnitude)));
}

/// Magnitudes of the patterns without sign up to infinity, ascending.
std::vector<double> magnitudes(const Format16& format) {
  std::vector<double> out;
  for (std::uint32_t p = 0; p <= format.infinity(); ++p) out.push_back(format.magnitude(p));
  return out;
}

/// The nearest by comparing with both neighbours in `all`, the format's magnitudes.
std::uint32_t encoded(const Format16& format, const std::vector<double>& all, float value) {
  const std::uint32_t bits = to_bits(value), sign = bits >> 31U << 15U;
  if (std::isnan(value)) {
    const auto payload = (bits & 0x7FFFFFU) >> (23 - format.mantissa_bits);
    return sign | format.infinity() | 1U << (format.mantissa_bits - 1) | payload;
  }
  const double magnitude = std::abs(static_cast<double>(value));
  const auto next = std::upper_bound(all.begin(), all.end(), magnitude);
  if (next == all.end()) return sign | format.infinity();
  const auto high = static_cast<std::uint32_t>(next - all.begin()), low = high - 1;
  const double below = magnitude - all[low], above = all[high] - magnitude;
  if (below != above) return sign | (below < above ? low : high);
  return sign | (low % 2 == 0 ? low : high);
}

TEST(Kernels, DecodeGivesEveryPatternItsValue) {
  std::vector<std::uint16_t> patterns(0x10000);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(patterns.data());
  on_every_target([&] {
    for (const auto& format : kFormats) {
      std::vector<float> got(patterns.size());
      kernels::assign(format.element, got.data(), bytes, got.size());
      for (std::uint32_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(to_bits(got[i]), decoded_bits(format, i)) << std::hex << i;
      }
    }
  });
}

/// Every pattern's value, the points halfway to the next one, the neighbours of all these, and what
/// else is worth trying.
std::vector<float> hard_inputs(const Format16& format) {
  std::vector<float> out;
  for (std::uint32_t pattern = 0; pattern < 0x8000; ++pattern) {
    if (pattern > format.infinity()) {
      out.push_back(from_bits(0x7F800000U | pattern << (23 - format.mantissa_bits)));
      continue;
    }
    const double at = format.magnitude(pattern);
    const double next = pattern == format.infinity() ? at : format.magnitude(pattern + 1);
    for (const double point : {at, (at + next) / 2}) {
      const auto value = static_cast<float>(point);
      EXPECT_TRUE(static_cast<double>(value) == point || std::isinf(value));
      out.push_back(value);
      out.push_back(std::nextafter(value, 0.0F));
      out.push_back(std::nextafter(value, INFINITY));
    }
  }
  // NaNs whose payload lies below what is kept, signalling ones among them; subnormals; extremes.
  for (const std::uint32_t bits : {0x7F800001U, 0x7F801FFFU, 0x7FC00001U, 0x7FFFFFFFU, 0x00000001U,
                                   0x007FFFFFU, 0x00800000U, 0x7F7FFFFFU, 0x7F800000U}) {
    out.push_back(from_bits(bits));
  }
  SplitMix64 random(5);
  for (int i = 0; i < 20'000; ++i) out.push_back(from_bits(static_cast<std::uint32_t>(random())));
  const auto positive = out.size();
  for (std::size_t i = 0; i < positive; ++i) out.push_back(from_bits(to_bits(out[i]) ^ 1U << 31U));
  return out;
}

TEST(Kernels, EncodeTakesTheNearestTiesToEven) {
  for (const auto& format : kFormats) {
    const auto inputs = hard_inputs(format);
    const auto all = magnitudes(format);
    std::vector<std::uint16_t> want(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      want[i] = static_cast<std::uint16_t>(encoded(format, all, inputs[i]));
    }
    on_every_target([&] {
      std::vector<std::uint16_t> got(inputs.size());
      kernels::encode(format.element, reinterpret_cast<std::byte*>(got.data()), inputs.data(),
                      got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], want[i]) << std::hex << to_bits(inputs[i]);
      }
    });
  }
}

// --- the loops -----------------------------------------------------------------------------------

float decoded(WireElement element, const std::byte* from, std::size_t i) {
  if (element == WireElement::f32) {
    float value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    return value;
  }
  std::uint16_t pattern;
  std::memcpy(&pattern, from + i * sizeof pattern, sizeof pattern);
  return from_bits(decoded_bits(kFormats[element == WireElement::bf16 ? 0 : 1], pattern));
}

/// Equal bits; of two NaNs added either may come out.
bool same(float a, float b) {
  return to_bits(a) == to_bits(b) || (std::isnan(a) && std::isnan(b));
}

constexpr std::size_t kMost = 67, kGuard = 20;

/// What one call works on. Beyond `count` elements nothing may change.
struct Operands {
  Operands(SplitMix64& random, std::size_t update_shift, std::size_t sent_shift)
      : update_bytes(4 * kMost + update_shift), sent_bytes(4 * kMost + sent_shift) {
    const auto number = [&] { return static_cast<float>(random.unit() * 4 - 2); };
    for (auto* bytes : {&update_bytes, &sent_bytes}) {
      for (auto& b : *bytes) b = static_cast<std::byte>(random());
    }
    update = update_bytes.data() + update_shift;
    sent = sent_bytes.data() + sent_shift;
    for (auto& x : sum) x = number();
    for (auto& x : own) x = number();
    for (auto& x : fixed) x = static_cast<std::int64_t>(random()) >> 4;
    fixed[2] = fixed[20] = std::numeric_limits<std::int64_t>::min();                 // A NaN.
    fixed[6] = std::numeric_limits<std::int64_t>::max() - (std::int64_t{1} << 60U);  // The most.
    fixed[7] = -fixed[6];
    sum[3] = own[5] = INFINITY;
    sum[4] = own[9] = from_bits(1);
    own[11] = std::numeric_limits<float>::max();
  }
  std::vector<std::byte> update_bytes, sent_bytes;
  const std::byte *update, *sent;
  float sum[kMost + kGuard], own[kMost + kGuard];
  std::int64_t fixed[kMost + kGuard];
};

constexpr std::int64_t kNotANumber = std::numeric_limits<std::int64_t>::min();

std::int64_t reference_fixed(double value) {
  if (!std::isfinite(value)) return kNotANumber;
  const double bounded = value > -0x1p28 ? std::min(value, 0x1p28) : -0x1p28;
  return static_cast<std::int64_t>(bounded * 0x1p32);
}

std::int64_t reference_sum(std::int64_t sum, double value) {
  const std::int64_t part = reference_fixed(value);
  if (sum == kNotANumber || part == kNotANumber) return kNotANumber;
  // A unit below 2^31 - 2^28, so that one more contribution of at most 2^28 has place.
  const std::int64_t most = (std::int64_t{7} << 60U) - 1;
  return std::clamp(sum + part, -most, most);
}

double reference_number(std::int64_t fixed) {
  return fixed == kNotANumber ? std::nan("") : static_cast<double>(fixed) / 0x1p32;
}

/// Applies `kernel` to the operands and `element_wise` to each of the first `count` elements of a
/// copy, for every element type, size, alignment and instruction set.
template <class Kernel, class ElementWise>
void expect_same(const Kernel& kernel, const ElementWise& element_wise) {
  on_every_target([&] {
    SplitMix64 random(17);
    for (const auto element : kElements) {
      for (std::size_t count = 0; count <= kMost; ++count) {
        for (std::size_t shift = 0; shift < 8; ++shift) {
          Operands got(random, shift, (3 * shift + count) % 8), want = got;
          kernel(element, got, count);
          for (std::size_t i = 0; i < count; ++i) {
            element_wise(element, want, i, decoded(element, got.update, i),
                         decoded(element, got.sent, i));
          }
          for (std::size_t i = 0; i < kMost + kGuard; ++i) {
            ASSERT_TRUE(same(got.sum[i], want.sum[i]) && same(got.own[i], want.own[i]) &&
                        got.fixed[i] == want.fixed[i])
                << "element " << i << " of " << count << ", shift " << shift << ", type "
                << static_cast<int>(element) << ": " << got.sum[i] << ' ' << want.sum[i] << ' '
                << got.own[i] << ' ' << want.own[i] << ' ' << got.fixed[i] << ' ' << want.fixed[i];
          }
        }
      }
    }
  });
}

TEST(Kernels, SumsOfDifferencesAtAnySizeAndAlignment) {
  expect_same([](WireElement e, Operands& x,
                 std::size_t n) { kernels::assign_difference(e, x.sum, x.update, x.sent, n); },
              [](WireElement, Operands& x, std::size_t i, float u, float s) { x.sum[i] = u - s; });
  expect_same([](WireElement e, Operands& x,
                 std::size_t n) { kernels::add_difference(e, x.sum, x.update, x.sent, n); },
              [](WireElement, Operands& x, std::size_t i, float u, float s) { x.sum[i] += u - s; });
}

TEST(Kernels, ScaledDifferencesRoundEachProductAndEachSum) {
  // volatile: a fused product and sum would have other bits.
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) {
        kernels::assign_scaled_difference(e, x.sum, x.update, x.sent, 0.3F, n);
      },
      [](WireElement, Operands& x, std::size_t i, float u, float s) { x.sum[i] = (u - s) * 0.3F; });
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) {
        kernels::add_scaled_difference(e, x.sum, x.update, x.sent, 0.3F, n);
      },
      [](WireElement, Operands& x, std::size_t i, float u, float s) {
        const volatile float change = (u - s) * 0.3F;
        x.sum[i] += change;
      });
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) {
        kernels::fixed_add_scaled_difference(e, x.fixed, x.update, x.sent, 0.3, n);
      },
      [](WireElement, Operands& x, std::size_t i, float u, float s) {
        x.fixed[i] =
            reference_sum(x.fixed[i], (static_cast<double>(u) - static_cast<double>(s)) * 0.3);
      });
}

TEST(Kernels, NoChangeKeepsEveryBit) {
  on_every_target([] {
    const float values[] = {-0.0F, 0.0F, from_bits(1), -1.5F, INFINITY};
    float own[std::size(values)];
    const float sum[std::size(values)] = {};
    const std::int64_t fixed[std::size(values)] = {};
    std::copy(std::begin(values), std::end(values), own);
    kernels::finish_difference(own, sum, 0.5F, std::size(own));
    kernels::fixed_finish_difference(own, fixed, 0.5, std::size(own));
    for (std::size_t i = 0; i < std::size(own); ++i) EXPECT_EQ(to_bits(own[i]), to_bits(values[i]));
  });
}

TEST(Kernels, SumsAtAnySizeAndAlignment) {
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) { kernels::assign(e, x.sum, x.update, n); },
      [](WireElement, Operands& x, std::size_t i, float u, float) { x.sum[i] = u; });
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) { kernels::add(e, x.sum, x.update, n); },
      [](WireElement, Operands& x, std::size_t i, float u, float) { x.sum[i] += u; });
}

TEST(Kernels, FinishingRoundsTwice) {
  // volatile: a fused product and sum would have other bits.
  expect_same([](WireElement, Operands& x,
                 std::size_t n) { kernels::finish_difference(x.own, x.sum, 1.0F / 3, n); },
              [](WireElement, Operands& x, std::size_t i, float, float) {
                const volatile float change = x.sum[i] * (1.0F / 3);
                x.own[i] += change;
              });
  expect_same([](WireElement e, Operands& x,
                 std::size_t n) { kernels::finish_mean(e, x.own, x.sent, x.sum, 1.0F / 7, n); },
              [](WireElement, Operands& x, std::size_t i, float, float s) {
                const volatile float total = s + x.sum[i];
                x.own[i] = total * (1.0F / 7);
              });
}

TEST(Kernels, MovedDifferencesRoundThreeTimes) {
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) {
        if (e != WireElement::f32) return;
        kernels::move_differences(x.sum, x.own, x.sent, 3.0F, n);
      },
      [](WireElement e, Operands& x, std::size_t i, float, float s) {
        if (e != WireElement::f32) return;
        const volatile float moved = x.own[i] - s;
        const volatile float change = moved * 3.0F;
        x.sum[i] -= change;
      });
}

TEST(Kernels, FixedPointSums) {
  expect_same([](WireElement e, Operands& x,
                 std::size_t n) { kernels::fixed_add_difference(e, x.fixed, x.update, x.sent, n); },
              [](WireElement, Operands& x, std::size_t i, float u, float s) {
                x.fixed[i] =
                    reference_sum(x.fixed[i], static_cast<double>(u) - static_cast<double>(s));
              });
  expect_same([](WireElement e, Operands& x,
                 std::size_t n) { kernels::fixed_add(e, x.fixed, x.update, n); },
              [](WireElement, Operands& x, std::size_t i, float u, float) {
                x.fixed[i] = reference_sum(x.fixed[i], static_cast<double>(u));
              });
}

TEST(Kernels, FixedPointFinishes) {
  expect_same([](WireElement, Operands& x,
                 std::size_t n) { kernels::fixed_finish_difference(x.own, x.fixed, 1.0 / 3, n); },
              [](WireElement, Operands& x, std::size_t i, float, float) {
                const volatile double mean = reference_number(x.fixed[i]) * (1.0 / 3);
                x.own[i] = static_cast<float>(static_cast<double>(x.own[i]) + mean);
              });
  expect_same(
      [](WireElement e, Operands& x, std::size_t n) {
        kernels::fixed_finish_mean(e, x.own, x.sent, x.fixed, 1.0 / 3, n);
      },
      [](WireElement e, Operands& x, std::size_t i, float, float s) {
        double total = e == WireElement::f32
                           ? static_cast<double>(s) + reference_number(x.fixed[i])
                           : reference_number(reference_sum(x.fixed[i], static_cast<double>(s)));
        if (std::isinf(total)) total = std::nan("");
        x.own[i] = static_cast<float>(total * (1.0 / 3));
      });
}

TEST(Kernels, FinishMeanMayReadWhatItWrites) {
  on_every_target([] {
    float own[67], want[67], sum[67];
    for (int i = 0; i < 67; ++i) {
      own[i] = static_cast<float>(i);
      sum[i] = 0.5F;
      want[i] = (own[i] + sum[i]) * 0.5F;
    }
    kernels::finish_mean(WireElement::f32, own, reinterpret_cast<const std::byte*>(own), sum, 0.5F,
                         67);
    for (int i = 0; i < 67; ++i) ASSERT_EQ(own[i], want[i]);
  });
}

}  // namespace
}  // namespace selmcast
