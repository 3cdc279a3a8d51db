#include "sync/mix/kernels.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sync/mix/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "sync/mix/kernel_elements.h"

HWY_BEFORE_NAMESPACE();
namespace selmcast::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// --- float32 -------------------------------------------------------------------------------------

void Encode(WireElement element, std::byte* to, const float* from, std::size_t count) {
  // Two blocks at a time: one stream of reads alone does not keep the memory busy. (Measured: .8 of
  // STREAM's triad with one, .92 to 1.01 with two; wider stores and stores past the caches changed
  // nothing.)
  constexpr std::size_t kBlock = 4096;
  const auto paired = count / (2 * kBlock) * (2 * kBlock);
  with(element, [=](auto wire) HWY_ATTR {
    const hn::ScalableTag<float> wide;
    for (std::size_t block = 0; block < paired; block += 2 * kBlock) {
      for (std::size_t i = block; i < block + kBlock; i += hn::Lanes(wide)) {
        wire.store(hn::LoadU(wide, from + i), wide, to, i);
        wire.store(hn::LoadU(wide, from + kBlock + i), wide, to, kBlock + i);
      }
    }
    each<float>(count - paired, [=](auto d, std::size_t i) HWY_ATTR {
      wire.store(hn::LoadU(d, from + paired + i), d, to, paired + i);
    });
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

void MoveDifferences(float* sum, const float* own, const std::byte* sent, float times,
                     std::size_t count) {
  each<float>(count, [=](auto d, std::size_t i) HWY_ATTR {
    const auto moved = hn::Sub(hn::LoadU(d, own + i), F32::load(d, sent, i));
    const auto change = hn::Mul(moved, hn::Set(d, times));
    hn::StoreU(hn::Sub(hn::LoadU(d, sum + i), change), d, sum + i);
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

/// What stands for a NaN: no sum of numbers reaches it.
constexpr std::int64_t kFixedNan = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kFixedContribution = std::int64_t{1} << 60U;
/// Sums stop here, so that one more contribution does not overflow.
constexpr std::int64_t kFixedSum = std::numeric_limits<std::int64_t>::max() - kFixedContribution;

/// In units of 2^-32, clamped, towards zero; what is not finite becomes kFixedNan. Whole part and
/// fraction have one sign, so that cutting the fraction cuts the number.
template <class D>
HWY_INLINE hn::VFromD<hn::RebindToSigned<D>> to_fixed(D d, hn::VFromD<D> value) {
  const hn::RebindToSigned<D> s;
  const auto most = hn::Set(d, 0x1p28), least = hn::Set(d, -0x1p28);
  const auto above = hn::Gt(value, least);  // False for a NaN.
  const auto bounded = hn::IfThenElse(above, hn::Min(value, most), least);
  const auto whole = hn::Trunc(bounded);
  const auto fraction = hn::Trunc(hn::Mul(hn::Sub(bounded, whole), hn::Set(d, 0x1p32)));
  const auto fixed = hn::Add(hn::ShiftLeft<32>(to_integer(d, whole)), to_integer(d, fraction));
  const auto finite = hn::Le(hn::Abs(value), hn::Set(d, std::numeric_limits<double>::max()));
  return hn::IfThenElse(hn::RebindMask(s, finite), fixed, hn::Set(s, kFixedNan));
}

/// The sum of a sum and a contribution (or the reverse), within the bounds; a NaN stays one.
template <class S>
HWY_INLINE hn::VFromD<S> add_fixed(S s, hn::VFromD<S> sum, hn::VFromD<S> part) {
  const auto nan = hn::Set(s, kFixedNan);
  const auto most = hn::Set(s, kFixedSum), least = hn::Set(s, -kFixedSum);
  const auto bounded = hn::Max(hn::Min(hn::Add(sum, part), most), least);
  return hn::IfThenElse(hn::Or(hn::Eq(sum, nan), hn::Eq(part, nan)), nan, bounded);
}

template <class D>
HWY_INLINE hn::VFromD<D> from_fixed(D d, hn::VFromD<hn::RebindToSigned<D>> value) {
  const auto number = hn::Mul(hn::ConvertTo(d, value), hn::Set(d, 0x1p-32));
  const auto is_nan = hn::Eq(value, hn::Set(hn::RebindToSigned<D>(), kFixedNan));
  return hn::IfThenElse(hn::RebindMask(d, is_nan),
                        hn::Set(d, std::numeric_limits<double>::quiet_NaN()), number);
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
      hn::StoreU(add_fixed(s, hn::LoadU(s, sum + i), to_fixed(d, difference)), s, sum + i);
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
      hn::StoreU(add_fixed(s, hn::LoadU(s, sum + i), part), s, sum + i);
    });
  });
}

void FixedAdd(WireElement element, std::int64_t* sum, const std::byte* update, std::size_t count) {
  with(element, [=](auto wire) HWY_ATTR {
    each<double>(count, [=](auto d, std::size_t i) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> s;
      const auto value = to_fixed(d, load_double(wire, d, update, i));
      hn::StoreU(add_fixed(s, hn::LoadU(s, sum + i), value), s, sum + i);
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
        // An infinity of this rank's own is a NaN as it is for the others.
        total = hn::IfThenElse(hn::Eq(hn::Sub(total, total), hn::Zero(d)), total,
                               hn::Set(d, std::numeric_limits<double>::quiet_NaN()));
      } else {
        total = from_fixed(d, add_fixed(s, others, to_fixed(d, mine)));
      }
      store_single(hn::Mul(total, hn::Set(d, scale)), d, own + i);
    });
  });
}

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
HWY_EXPORT(MoveDifferences);
HWY_EXPORT(FinishMean);
HWY_EXPORT(FixedAddDifference);
HWY_EXPORT(FixedAddScaledDifference);
HWY_EXPORT(FixedAdd);
HWY_EXPORT(FixedFinishDifference);
HWY_EXPORT(FixedFinishMean);

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
void move_differences(float* sum, const float* own, const std::byte* sent, float times,
                      std::size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(MoveDifferences)(sum, own, sent, times, count);
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

}  // namespace selmcast::kernels
#endif
