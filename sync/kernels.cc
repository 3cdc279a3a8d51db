#include "sync/kernels.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sync/kernels.cc"
#include <hwy/foreach_target.h>
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

// --- float32 -------------------------------------------------------------------------------------

void Encode(WireElement element, std::byte* to, const float* from, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i)
                           HWY_ATTR { wire.store(hn::LoadU(d, from + i), d, to, i); });
  });
}

void AssignDifference(WireElement element, float* sum, const std::byte* update,
                      const std::byte* sent, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Sub(wire.load(d, update, i), wire.load(d, sent, i)), d, sum + i);
    });
  });
}

void AddDifference(WireElement element, float* sum, const std::byte* update, const std::byte* sent,
                   std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const auto difference = hn::Sub(wire.load(d, update, i), wire.load(d, sent, i));
      hn::StoreU(hn::Add(hn::LoadU(d, sum + i), difference), d, sum + i);
    });
  });
}

template <class Wire, class D>
HWY_INLINE hn::VFromD<D> scaled_difference(Wire wire, D d, const std::byte* update,
                                           const std::byte* sent, float scale, std::size_t i) {
  return hn::Mul(hn::Sub(wire.load(d, update, i), wire.load(d, sent, i)), hn::Set(d, scale));
}

void AssignScaledDifference(WireElement element, float* sum, const std::byte* update,
                            const std::byte* sent, float scale, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(scaled_difference(wire, d, update, sent, scale, i), d, sum + i);
    });
  });
}

void AddScaledDifference(WireElement element, float* sum, const std::byte* update,
                         const std::byte* sent, float scale, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const auto change = scaled_difference(wire, d, update, sent, scale, i);
      hn::StoreU(hn::Add(hn::LoadU(d, sum + i), change), d, sum + i);
    });
  });
}

void Assign(WireElement element, float* sum, const std::byte* update, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i)
                           HWY_ATTR { hn::StoreU(wire.load(d, update, i), d, sum + i); });
  });
}

void Add(WireElement element, float* sum, const std::byte* update, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, sum + i), wire.load(d, update, i)), d, sum + i);
    });
  });
}

/// from + change, but `from` itself, with its sign, when the change is a zero.
template <class D>
HWY_INLINE hn::VFromD<D> moved(D d, hn::VFromD<D> from, hn::VFromD<D> change) {
  return hn::Sub(from, hn::Sub(hn::Zero(d), change));
}

void FinishDifference(float* own, const float* sum, float scale, std::size_t count) {
  each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto change = hn::Mul(hn::LoadU(d, sum + i), hn::Set(d, scale));
    hn::StoreU(moved(d, hn::LoadU(d, own + i), change), d, own + i);
  });
}

void FinishMean(WireElement element, float* own, const std::byte* sent, const float* sum,
                float scale, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const auto total = hn::Add(wire.load(d, sent, i), hn::LoadU(d, sum + i));
      hn::StoreU(hn::Mul(total, hn::Set(d, scale)), d, own + i);
    });
  });
}

// --- fixed point ---------------------------------------------------------------------------------

/// Elements i and following in double precision.
template <class Wire, class D>
HWY_INLINE hn::VFromD<D> load_double(Wire wire, D d, const std::byte* from, std::size_t i) {
  const hn::Rebind<float, D> single;
  return hn::PromoteTo(d, wire.load(single, from, i));
}

/// A whole number below 2^51, as in the mantissa of 1.5 * 2^52: no instruction converts before
/// AVX-512.
template <class D>
HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> to_integer(D d, hn::VFromD<D> whole) {
  const hn::RebindToSigned<D> s;
  const auto magic = hn::Set(d, 0x1.8p52);
  return hn::Sub(hn::BitCast(s, hn::Add(whole, magic)), hn::BitCast(s, magic));
}

/// In units of 2^-32, clamped, towards zero. Whole part and fraction have one sign, so that cutting
/// the fraction cuts the number.
template <class D>
HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> to_fixed(D d, hn::VFromD<D> value) {
  const auto most = hn::Set(d, 0x1p28), least = hn::Set(d, -0x1p28);
  const auto above = hn::Gt(value, least);  // False for a NaN.
  const auto bounded = hn::IfThenElse(above, hn::Min(value, most), least);
  const auto whole = hn::Trunc(bounded);
  const auto fraction = hn::Trunc(hn::Mul(hn::Sub(bounded, whole), hn::Set(d, 0x1p32)));
  return hn::Add(hn::ShiftLeft<32>(to_integer(d, whole)), to_integer(d, fraction));
}

template <class D>
HWY_INLINE hn::VFromD<D> from_fixed(D d, hn::VFromD<hn::RebindToSigned<D>> value) {
  return hn::Mul(hn::ConvertTo(d, value), hn::Set(d, 0x1p-32));
}

template <class D>
HWY_INLINE void store_single(hn::VFromD<D> value, D d, float* to) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's own stops at the largest number instead of becoming infinite.
  double lanes[hn::MaxLanes(D())];
  hn::StoreU(value, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<float>(lanes[i]);
#else
  const hn::Rebind<float, D> single;
  hn::StoreU(hn::DemoteTo(single, value), single, to);
#endif
}

void FixedAddDifference(WireElement element, std::int64_t* sum, const std::byte* update,
                        const std::byte* sent, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> s;
      const auto difference =
          hn::Sub(load_double(wire, d, update, i), load_double(wire, d, sent, i));
      hn::StoreU(hn::Add(hn::LoadU(s, sum + i), to_fixed(d, difference)), s, sum + i);
    });
  });
}

void FixedAddScaledDifference(WireElement element, std::int64_t* sum, const std::byte* update,
                              const std::byte* sent, double scale, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> s;
      const auto difference =
          hn::Sub(load_double(wire, d, update, i), load_double(wire, d, sent, i));
      const auto part = to_fixed(d, hn::Mul(difference, hn::Set(d, scale)));
      hn::StoreU(hn::Add(hn::LoadU(s, sum + i), part), s, sum + i);
    });
  });
}

void FixedAdd(WireElement element, std::int64_t* sum, const std::byte* update, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> s;
      const auto value = to_fixed(d, load_double(wire, d, update, i));
      hn::StoreU(hn::Add(hn::LoadU(s, sum + i), value), s, sum + i);
    });
  });
}

void FixedFinishDifference(float* own, const std::int64_t* sum, double scale, std::size_t count) {
  each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> s;
    const hn::Rebind<float, decltype(d)> single;
    const auto mean = hn::Mul(from_fixed(d, hn::LoadU(s, sum + i)), hn::Set(d, scale));
    const auto before = hn::PromoteTo(d, hn::LoadU(single, own + i));
    store_single(moved(d, before, mean), d, own + i);
  });
}

void FixedFinishMean(WireElement element, float* own, const std::byte* sent,
                     const std::int64_t* sum, double scale, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> s;
      const auto others = hn::LoadU(s, sum + i);
      const auto mine = load_double(wire, d, sent, i);
      auto total = hn::Zero(d);
      if constexpr (decltype(wire)::kInPlace) {
        total = hn::Add(mine, from_fixed(d, others));
      } else {
        total = from_fixed(d, hn::Add(to_fixed(d, mine), others));
      }
      store_single(hn::Mul(total, hn::Set(d, scale)), d, own + i);
    });
  });
}

// --- int32 ---------------------------------------------------------------------------------------

void Int32Add(std::int64_t* sum, const std::byte* update, std::size_t count) {
  each<std::int64_t>(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::Rebind<std::int32_t, decltype(d)> half;
    const auto value = hn::PromoteTo(d, load(half, update + i * sizeof(std::int32_t)));
    hn::StoreU(hn::Add(hn::LoadU(d, sum + i), value), d, sum + i);
  });
}

void Int32FinishMean(std::int32_t* own, const std::int64_t* sum, std::uint32_t contributions,
                     std::size_t count) {
  each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> s;
    const hn::Rebind<std::int32_t, decltype(d)> half;
    const auto total = hn::Add(hn::LoadU(s, sum + i), hn::PromoteTo(s, hn::LoadU(half, own + i)));
    // At most 2^47, exact. A quotient that is no tie is at least 2^-17 from one and wrong by less
    // than 2^-21, so rounding it again is safe.
    const auto mean =
        hn::Div(hn::ConvertTo(d, total), hn::Set(d, static_cast<double>(contributions)));
    hn::StoreU(hn::DemoteTo(half, hn::Round(mean)), half, own + i);
  });
}

#undef SELMCAST_CONVERTS_F16

}  // namespace selmcast::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace selmcast::kernels {

HWY_EXPORT(Encode);
HWY_EXPORT(AssignDifference);
HWY_EXPORT(AddDifference);
HWY_EXPORT(AssignScaledDifference);
HWY_EXPORT(AddScaledDifference);
HWY_EXPORT(Assign);
HWY_EXPORT(Add);
HWY_EXPORT(FinishDifference);
HWY_EXPORT(FinishMean);
HWY_EXPORT(FixedAddDifference);
HWY_EXPORT(FixedAddScaledDifference);
HWY_EXPORT(FixedAdd);
HWY_EXPORT(FixedFinishDifference);
HWY_EXPORT(FixedFinishMean);
HWY_EXPORT(Int32Add);
HWY_EXPORT(Int32FinishMean);

void encode(WireElement element, std::byte* to, const float* from, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Encode)(element, to, from, count);
}
void assign_difference(WireElement element, float* sum, const std::byte* update,
                       const std::byte* sent, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(AssignDifference)(element, sum, update, sent, count);
}
void add_difference(WireElement element, float* sum, const std::byte* update, const std::byte* sent,
                    std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(AddDifference)(element, sum, update, sent, count);
}
void assign_scaled_difference(WireElement element, float* sum, const std::byte* update,
                              const std::byte* sent, float scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(AssignScaledDifference)(element, sum, update, sent, scale, count);
}
void add_scaled_difference(WireElement element, float* sum, const std::byte* update,
                           const std::byte* sent, float scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(AddScaledDifference)(element, sum, update, sent, scale, count);
}
void assign(WireElement element, float* sum, const std::byte* update, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Assign)(element, sum, update, count);
}
void add(WireElement element, float* sum, const std::byte* update, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Add)(element, sum, update, count);
}
void finish_difference(float* own, const float* sum, float scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FinishDifference)(own, sum, scale, count);
}
void finish_mean(WireElement element, float* own, const std::byte* sent, const float* sum,
                 float scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FinishMean)(element, own, sent, sum, scale, count);
}
void fixed_add_difference(WireElement element, std::int64_t* sum, const std::byte* update,
                          const std::byte* sent, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FixedAddDifference)(element, sum, update, sent, count);
}
void fixed_add_scaled_difference(WireElement element, std::int64_t* sum, const std::byte* update,
                                 const std::byte* sent, double scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FixedAddScaledDifference)(element, sum, update, sent, scale, count);
}
void fixed_add(WireElement element, std::int64_t* sum, const std::byte* update,
               std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FixedAdd)(element, sum, update, count);
}
void fixed_finish_difference(float* own, const std::int64_t* sum, double scale,
                             std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FixedFinishDifference)(own, sum, scale, count);
}
void fixed_finish_mean(WireElement element, float* own, const std::byte* sent,
                       const std::int64_t* sum, double scale, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(FixedFinishMean)(element, own, sent, sum, scale, count);
}
void int32_add(std::int64_t* sum, const std::byte* update, std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Int32Add)(sum, update, count);
}
void int32_finish_mean(std::int32_t* own, const std::int64_t* sum, std::uint32_t contributions,
                       std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(Int32FinishMean)(own, sum, contributions, count);
}

}  // namespace selmcast::kernels
#endif
