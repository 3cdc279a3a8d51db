// A small seeded generator whose numbers are the same on every machine and compiler.
#pragma once

#include <cstdint>

namespace selmcast {

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): statistically sound, not for secrets. Usable as a
/// standard UniformRandomBitGenerator; the std distributions are avoided because their output is
/// implementation-defined.
class SplitMix64 {
 public:
  using result_type = std::uint64_t;
  explicit constexpr SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return ~std::uint64_t{0}; }

  constexpr result_type operator()() noexcept {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  /// Uniform in [0, bound) up to a bias below 2^-32 for bound < 2^32; 0 when bound is 0.
  constexpr std::uint64_t below(std::uint32_t bound) noexcept {
    return (((*this)() >> 32U) * bound) >> 32U;
  }
  /// Uniform in [0, 1) with 53 bits.
  constexpr double unit() noexcept { return static_cast<double>((*this)() >> 11U) * 0x1.0p-53; }
  constexpr bool chance(double probability) noexcept { return unit() < probability; }

 private:
  std::uint64_t state_;
};

/// One output of SplitMix64 for `seed`: mixes a counter or several xor-ed seeds into a fresh one.
constexpr std::uint64_t mix_seed(std::uint64_t seed) noexcept {
  return SplitMix64(seed)();
}

}  // namespace selmcast
