// The types in which parameters travel.
#pragma once

#include <cstdint>

namespace selmcast {

/// How an element of the parameters (float32 in memory) travels, little-endian.
enum class WireElement : std::uint8_t {
  f32,   ///< As it is.
  bf16,  ///< Upper half of a float32: 8 bits of precision, the same range.
  f16,   ///< IEEE 754 binary16: 11 bits of precision, infinite from 65520 on.
};

constexpr std::uint32_t bytes_of(WireElement element) noexcept {
  return element == WireElement::f32 ? 4 : 2;
}

}  // namespace selmcast
