// Element types of the reduction kernels and the loops over them, once per instruction set:
// included by kernels.cc from within Highway's foreach_target.h, which compiles that file anew for
// each.
#include <bit>
#include <cstring>

#include "sync/mix/kernels.h"

#if defined(SELMCAST_SYNC_KERNEL_ELEMENTS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SELMCAST_SYNC_KERNEL_ELEMENTS_H
#undef SELMCAST_SYNC_KERNEL_ELEMENTS_H
#else
#define SELMCAST_SYNC_KERNEL_ELEMENTS_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace selmcast::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little,
              "payloads carry little-endian numbers and are added in place");

/// Loads and stores at any alignment: as bytes, the only type that has none.
template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const std::byte* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> value;
  std::memcpy(&value, from, sizeof value);
  return hn::Set(d, value);
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
#endif
}
template <class D>
HWY_INLINE void store(hn::VFromD<D> value, D, std::byte* to) {
#if HWY_TARGET == HWY_SCALAR
  const hn::TFromD<D> lane = hn::GetLane(value);
  std::memcpy(to, &lane, sizeof lane);
#else
  const hn::Repartition<std::uint8_t, D> bytes;
  hn::StoreU(hn::BitCast(bytes, value), bytes, reinterpret_cast<std::uint8_t*>(to));
#endif
}

// --- element types -------------------------------------------------------------------------------

// Each has load(d, from, i): the float32 values of elements i and following, one per lane of d; and
// store(values, d, to, i).

struct F32 {
  static constexpr bool kInPlace = true;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const std::byte* from, std::size_t i) {
    return HWY_NAMESPACE::load(d, from + i * sizeof(float));
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, std::byte* to, std::size_t i) {
    HWY_NAMESPACE::store(v, d, to + i * sizeof(float));
  }
};

/// The lanes of `v`, each below 2^16, in half the width.
template <class D>
HWY_INLINE void store_low_halves(hn::VFromD<hn::RebindToSigned<D>> v, D, std::byte* to,
                                 std::size_t i) {
  const hn::Rebind<std::uint16_t, D> half;
  store(hn::DemoteTo(half, v), half, to + i * sizeof(std::uint16_t));
}

struct Bf16 {
  static constexpr bool kInPlace = false;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const std::byte* from, std::size_t i) {
    const hn::Rebind<std::uint16_t, D> half;
    const hn::RebindToUnsigned<D> bits;
    const auto upper = HWY_NAMESPACE::load(half, from + i * sizeof(std::uint16_t));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, upper)));
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, std::byte* to, std::size_t i) {
    const hn::RebindToUnsigned<D> u;
    const hn::RebindToSigned<D> s;
    const auto bits = hn::BitCast(u, v);
    const auto upper = hn::ShiftRight<16>(bits);
    // Just less than half a unit, and the rest if the last bit kept is odd. A carry out of the
    // mantissa goes where it should: into the exponent, from the largest number to infinity.
    const auto odd = hn::And(upper, hn::Set(u, 1));
    const auto nearest = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(u, 0x7FFF)), odd));
    const auto magnitude = hn::BitCast(s, hn::And(bits, hn::Set(u, 0x7FFFFFFF)));
    const auto is_nan = hn::Gt(magnitude, hn::Set(s, 0x7F800000));
    const auto quiet = hn::BitCast(s, hn::Or(upper, hn::Set(u, 0x40)));
    store_low_halves(hn::IfThenElse(is_nan, quiet, hn::BitCast(s, nearest)), d, to, i);
  }
};

// AVX2 and later convert binary16 by an instruction. Highway's substitute elsewhere knows neither
// infinities nor NaNs and truncates, hence the bit arithmetic.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define SELMCAST_CONVERTS_F16 1
#else
#define SELMCAST_CONVERTS_F16 0
#endif

struct F16 {
  static constexpr bool kInPlace = false;
  template <class D>
  static HWY_INLINE hn::VFromD<D> load(D d, const std::byte* from, std::size_t i) {
    const hn::Rebind<std::uint16_t, D> half;
    const auto bits = HWY_NAMESPACE::load(half, from + i * sizeof(std::uint16_t));
#if SELMCAST_CONVERTS_F16
    const hn::Rebind<hwy::float16_t, D> f16;
    return hn::PromoteTo(d, hn::BitCast(f16, bits));
#else
    const hn::RebindToSigned<D> s;
    const auto wide = hn::PromoteTo(s, bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(s, 0x8000)));
    // Exponent and mantissa where binary32 has them, but with binary16's bias, 112 less.
    const auto narrow = hn::ShiftLeft<13>(hn::And(wide, hn::Set(s, 0x7FFF)));
    const auto bias = hn::Set(s, 112 << 23), infinity = hn::Set(s, 31 << 23);
    auto value = hn::Add(narrow, bias);
    const auto special = hn::Gt(narrow, hn::Set(s, (31 << 23) - 1));
    value = hn::IfThenElse(special, hn::Add(value, bias), value);
    const auto quiet = hn::Or(value, hn::Set(s, 1 << 22));
    value = hn::IfThenElse(hn::Gt(narrow, infinity), quiet, value);
    // Subnormal: the mantissa as that of a number from 2^-14 up, less 2^-14.
    const auto least = hn::Set(s, 113 << 23);
    const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(narrow, least)), hn::BitCast(d, least));
    value = hn::IfThenElse(hn::Lt(narrow, hn::Set(s, 1 << 23)), hn::BitCast(s, subnormal), value);
    return hn::BitCast(d, hn::Or(value, sign));
#endif
  }
  template <class D>
  static HWY_INLINE void store(hn::VFromD<D> v, D d, std::byte* to, std::size_t i) {
#if SELMCAST_CONVERTS_F16
    const hn::Rebind<hwy::float16_t, D> f16;
    const hn::Rebind<std::uint16_t, D> half;
    const auto bits = hn::BitCast(half, hn::DemoteTo(f16, v));
    HWY_NAMESPACE::store(bits, half, to + i * sizeof(std::uint16_t));
#else
    const hn::RebindToSigned<D> s;
    const auto bits = hn::BitCast(s, v);
    const auto magnitude = hn::And(bits, hn::Set(s, 0x7FFFFFFF));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(s, 0x8000));
    const auto infinity = hn::Set(s, 0x7C00);
    // As for bf16, after the change of bias; what is beyond the largest number becomes infinity.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(s, 1));
    const auto rounding = hn::Add(odd, hn::Set(s, 0xFFF - (112 << 23)));
    auto value = hn::Min(hn::ShiftRight<13>(hn::Add(magnitude, rounding)), infinity);
    // Subnormal: beside 1/2 the last place of a float32 is worth 2^-24, as in a subnormal here.
    const auto half = hn::Set(d, 0.5F);
    const auto moved = hn::BitCast(s, hn::Add(hn::BitCast(d, magnitude), half));
    const auto subnormal = hn::Sub(moved, hn::BitCast(s, half));
    value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(s, 113 << 23)), subnormal, value);
    const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(s, 0x3FF));
    const auto nan = hn::Or(payload, hn::Set(s, 0x7E00));
    value = hn::IfThenElse(hn::Gt(magnitude, hn::Set(s, 0x7F800000)), nan, value);
    store_low_halves(hn::Or(value, sign), d, to, i);
#endif
  }
};

/// Calls body(type) with the element type's struct.
template <class Body>
HWY_INLINE void with(WireElement element, const Body& body) {
  switch (element) {
    case WireElement::f32:
      return body(F32());
    case WireElement::bf16:
      return body(Bf16());
    case WireElement::f16:
      return body(F16());
  }
}

/// Calls body(d, i) for vectors of elements [i, i + lanes of d) that together are [0, count).
template <class T, class Body>
HWY_INLINE void each(std::size_t count, const Body& body) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 4> narrow;
  const hn::CappedTag<T, 1> one;
  std::size_t i = 0;
  for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) body(wide, i);
  for (; i + hn::Lanes(narrow) <= count; i += hn::Lanes(narrow)) body(narrow, i);
  for (; i < count; ++i) body(one, i);
}

#undef SELMCAST_CONVERTS_F16

}  // namespace selmcast::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
