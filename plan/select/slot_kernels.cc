#include "plan/select/slot_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plan/select/slot_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace selmcast::slot_kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Words = hn::ScalableTag<std::uint32_t>;
/// min(floor(rate * scale + bias), cap).
template <class V>
HWY_INLINE V slots_of(V rates, V scale, V bias, V cap) {
  return hn::Min(hn::Floor(hn::MulAdd(rates, scale, bias)), cap);
}

/// (a - b) mod n for a, b < n: a borrow makes a huge number, and adding n a small one.
template <class V>
HWY_INLINE V minus_mod(V a, V b, V n) {
  const auto difference = hn::Sub(a, b);
  return hn::Min(difference, hn::Add(difference, n));
}
/// (a + b) mod n for a, b < n.
template <class V>
HWY_INLINE V plus_mod(V a, V b, V n) {
  const auto sum = hn::Add(a, b);
  return hn::Min(sum, hn::Sub(sum, n));
}
/// a < b for numbers below 2^31, where signed comparison is one instruction.
template <class V>
HWY_INLINE auto below(V a, V b) {
  const hn::RebindToSigned<hn::DFromV<V>> d;
  return hn::Lt(hn::BitCast(d, a), hn::BitCast(d, b));
}

/// The same one by one; also for numbers of 2^52 and more.
RateSummary LoadRatesSlowly(const std::uint64_t* from, double* to, std::uint32_t n) {
  RateSummary out;
  out.least = static_cast<double>(from[0]);
  for (std::uint32_t at = 0; at < n; ++at) {
    to[at] = static_cast<double>(from[at]);
    out.sum += to[at];
    out.least = std::min(out.least, to[at]);
    out.most = std::max(out.most, to[at]);
    if (from[at] == 0) continue;
    out.least_positive = out.positive++ == 0 ? to[at] : std::min(out.least_positive, to[at]);
  }
  return out;
}

RateSummary LoadRates(const std::uint64_t* from, double* to, std::uint32_t n) {
  const Doubles d;
  const hn::RebindToUnsigned<Doubles> u;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto vectors_end = n / lanes * lanes;
  // A number below 2^52 in the mantissa of 2^52 is that number above 2^52.
  const auto magic = hn::Set(u, 0x4330000000000000U), too_high = hn::Set(u, ~0xFFFFFFFFFFFFFU);
  const auto magic_value = hn::Set(d, 0x1p52), one = hn::Set(d, 1.0);
  const auto none = hn::Set(d, std::numeric_limits<double>::max());
  auto sum = hn::Zero(d), most = hn::Zero(d), positive = hn::Zero(d);
  auto least = none, least_positive = none;
  auto high = hn::Zero(u);
  for (std::uint32_t at = 0; at < vectors_end; at += lanes) {
    const auto bits = hn::LoadU(u, from + at);
    high = hn::Or(high, hn::And(bits, too_high));
    const auto rates = hn::Sub(hn::BitCast(d, hn::Or(bits, magic)), magic_value);
    hn::StoreU(rates, d, to + at);
    sum = hn::Add(sum, rates);
    least = hn::Min(least, rates);
    most = hn::Max(most, rates);
    positive = hn::Add(positive, hn::Min(rates, one));
    least_positive = hn::Min(least_positive, hn::IfThenElse(hn::Lt(rates, one), none, rates));
  }
  std::fill(to + n, to + padded(n), 0.0);
  if (vectors_end == 0 || !hn::AllTrue(u, hn::Eq(high, hn::Zero(u)))) {
    return LoadRatesSlowly(from, to, n);
  }
  RateSummary out;
  out.sum = hn::GetLane(hn::SumOfLanes(d, sum));
  out.least = hn::GetLane(hn::MinOfLanes(d, least));
  out.most = hn::GetLane(hn::MaxOfLanes(d, most));
  out.positive = static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d, positive)));
  const auto lowest = hn::GetLane(hn::MinOfLanes(d, least_positive));
  if (out.positive > 0) out.least_positive = lowest;
  if (vectors_end == n) return out;
  const auto rest = LoadRatesSlowly(from + vectors_end, to + vectors_end, n - vectors_end);
  out.sum += rest.sum;
  out.least = std::min(out.least, rest.least);
  out.most = std::max(out.most, rest.most);
  if (rest.positive > 0) {
    out.least_positive =
        out.positive == 0 ? rest.least_positive : std::min(out.least_positive, rest.least_positive);
  }
  out.positive += rest.positive;
  return out;
}

double TotalSlots(const double* rates, std::uint32_t padded, double scale, double cap) {
  const Doubles d;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto s = hn::Set(d, scale), b = hn::Zero(d), c = hn::Set(d, cap);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  for (std::uint32_t at = 0; at < padded; at += 2 * lanes) {
    even = hn::Add(even, slots_of(hn::LoadU(d, rates + at), s, b, c));
    odd = hn::Add(odd, slots_of(hn::LoadU(d, rates + at + lanes), s, b, c));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

#if HWY_TARGET == HWY_SCALAR
SlotSummary WriteSlots(const double* rates, std::uint32_t n, double scale, double bias, double cap,
                       std::uint32_t* slots) {
  SlotSummary out;
  out.least = static_cast<std::uint32_t>(cap);
  for (std::uint32_t at = 0; at < padded(n); ++at) {
    const auto count = std::min(std::floor(rates[at] * scale + bias), cap);
    slots[at] = static_cast<std::uint32_t>(count);
    if (at >= n) continue;
    out.total += slots[at];
    out.least = std::min(out.least, slots[at]);
    out.most = std::max(out.most, slots[at]);
    if (slots[at] == 0) continue;
    out.least_positive =
        out.least_positive == 0 ? slots[at] : std::min(out.least_positive, slots[at]);
  }
  return out;
}
#else
SlotSummary WriteSlots(const double* rates, std::uint32_t n, double scale, double bias, double cap,
                       std::uint32_t* slots) {
  const Doubles d;
  const Words w;
  const auto half = static_cast<std::uint32_t>(hn::Lanes(d));
  // Between 2^52 and 2^53 the low half of a double is the number, and adding rounds to the nearest
  // one: half a slot less makes that the floor. The bias keeps all products off the ties.
  const auto s = hn::Set(d, scale), b = hn::Set(d, bias - 0.5), c = hn::Set(d, cap);
  const auto magic = hn::Set(d, 0x1.8p52);
  const auto one = hn::Set(w, 1U);
  const auto write = [&](std::uint32_t at) HWY_ATTR {
    const auto from = [&](const double* pair) HWY_ATTR {
      return hn::BitCast(w, hn::Add(hn::Min(hn::MulAdd(hn::LoadU(d, pair), s, b), c), magic));
    };
    const auto count = hn::ConcatEven(w, from(rates + at + half), from(rates + at));
    hn::StoreU(count, w, slots + at);
    return count;
  };
  // Sums fit: n * (n - 1) is below 2^32. One less makes 0 the largest number.
  auto total = hn::Zero(w), most = hn::Zero(w), least = hn::Set(w, ~0U), one_less = least;
  const auto whole = n / (2 * half) * (2 * half);
  for (std::uint32_t at = 0; at < whole; at += 2 * half) {
    const auto count = write(at);
    total = hn::Add(total, count);
    most = hn::Max(most, count);
    least = hn::Min(least, count);
    one_less = hn::Min(one_less, hn::Sub(count, one));
  }
  for (std::uint32_t at = whole; at < padded(n); at += 2 * half) write(at);
  HWY_ALIGN std::uint32_t sums[HWY_MAX_BYTES / sizeof(std::uint32_t)];
  SlotSummary out;
  hn::StoreU(total, w, sums);
  for (std::uint32_t lane = 0; lane < 2 * half; ++lane) out.total += sums[lane];
  out.most = hn::GetLane(hn::MaxOfLanes(w, most));
  out.least = hn::GetLane(hn::MinOfLanes(w, least));
  auto positive = hn::GetLane(hn::MinOfLanes(w, one_less));
  for (auto at = whole; at < n; ++at) {
    out.total += slots[at];
    out.most = std::max(out.most, slots[at]);
    out.least = std::min(out.least, slots[at]);
    positive = std::min(positive, slots[at] - 1);
  }
  out.least_positive = positive + 1;
  return out;
}
#endif

Quotient LeastQuotient(const double* rates, std::uint32_t padded, double scale, double cap) {
  const Doubles d;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto s = hn::Set(d, scale), b = hn::Zero(d), c = hn::Set(d, cap);
  auto highest = hn::Zero(d), where = hn::Zero(d);
  auto index = hn::Iota(d, 0.0);
  for (std::uint32_t at = 0; at < padded; at += lanes) {
    const auto r = hn::LoadU(d, rates + at);
    const auto count = slots_of(r, s, b, c);
    const auto inverse = hn::IfThenZeroElse(hn::Eq(count, hn::Zero(d)), hn::Div(count, r));
    const auto higher = hn::Gt(inverse, highest);
    highest = hn::IfThenElse(higher, inverse, highest);
    where = hn::IfThenElse(higher, index, where);
    index = hn::Add(index, hn::Set(d, static_cast<double>(lanes)));
  }
  const auto found = hn::GetLane(hn::MaxOfLanes(d, highest));
  if (found == 0) return {};
  const auto none = hn::Set(d, std::numeric_limits<double>::max());
  const auto first = hn::IfThenElse(hn::Eq(highest, hn::Set(d, found)), where, none);
  const auto receiver = static_cast<std::uint32_t>(hn::GetLane(hn::MinOfLanes(d, first)));
  const auto k =
      std::min(static_cast<double>(static_cast<std::uint64_t>(rates[receiver] * scale)), cap);
  return {found, receiver, static_cast<std::uint32_t>(k)};
}

std::uint64_t CollectQuotients(const double* rates, std::uint32_t padded, double near, double far,
                               double cap, Quotient* out, std::uint32_t capacity) {
  const Doubles d;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto vnear = hn::Set(d, near), vfar = hn::Set(d, far), c = hn::Set(d, cap);
  const auto zero = hn::Zero(d);
  std::uint64_t count = 0;
  HWY_ALIGN double from[HWY_MAX_BYTES / sizeof(double)], to[HWY_MAX_BYTES / sizeof(double)];
  for (std::uint32_t at = 0; at < padded; at += lanes) {
    const auto r = hn::LoadU(d, rates + at);
    const auto many = slots_of(r, vnear, zero, c), few = slots_of(r, vfar, zero, c);
    if (HWY_LIKELY(hn::AllTrue(d, hn::Eq(many, few)))) continue;
    hn::StoreU(few, d, from);
    hn::StoreU(many, d, to);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const auto rate = rates[at + lane];
      const auto more = static_cast<std::uint32_t>(to[lane] - from[lane]);
      auto k = from[lane];
      // Mostly a few each: writing some too many costs less than guessing their number wrong.
      if (HWY_LIKELY(more <= 3 && count + 3 <= capacity)) {
        auto* const next = out + count;
        for (std::uint32_t i = 0; i < 3; ++i) {
          ++k;
          next[i] = {k / rate, at + lane, static_cast<std::uint32_t>(k)};
        }
        count += more;
        continue;
      }
      while (k < to[lane]) {
        ++k;
        if (count++ >= capacity) continue;
        out[count - 1] = {k / rate, at + lane, static_cast<std::uint32_t>(k)};
      }
    }
  }
  return count;
}

void LayOut(const std::uint32_t* slots, std::uint32_t n, std::uint32_t* first_row) {
#if HWY_TARGET == HWY_SCALAR
  std::uint32_t next = 0;
  for (std::uint32_t j = 0; j < padded(n); ++j) {
    first_row[j] = next;
    next = std::min(next + slots[j], next + slots[j] - n);
  }
#else
  // Running sums inside a vector, then the carry from vector to vector. A sum that includes its own
  // column is the next one's first row.
  const hn::CappedTag<std::uint32_t, 8> d;
  constexpr auto kLanes =
      static_cast<std::uint32_t>(hn::MaxLanes(hn::CappedTag<std::uint32_t, 8>()));
  const auto vn = hn::Set(d, n);
  auto carry = hn::Zero(d);
  first_row[0] = 0;
  for (std::uint32_t at = 0; at < padded(n); at += kLanes) {
    const auto count = hn::LoadU(d, slots + at);
    auto sum = plus_mod(count, hn::ShiftLeftLanes<1>(d, count), vn);
    sum = plus_mod(sum, hn::ShiftLeftLanes<2>(d, sum), vn);
    auto total = hn::Broadcast<3>(sum);
    if constexpr (kLanes == 8) {
      // Both halves have summed on their own: the upper one still lacks the lower one's total.
      sum = plus_mod(sum, hn::ConcatLowerLower(d, total, hn::Zero(d)), vn);
      total = hn::Broadcast<3>(sum);
      total = hn::ConcatUpperUpper(d, total, total);
    }
    hn::StoreU(plus_mod(carry, sum, vn), d, first_row + at + 1);
    carry = plus_mod(carry, total, vn);
  }
#endif
}

/// Indices j for which distance(j's vector, j's first row) is below j's slots. Masks are gathered
/// into 64-bit words and the words read bit by bit: Highway 1.0's Compress copies its table to the
/// stack under g++.
template <class Distance>
HWY_INLINE std::uint32_t IndicesInside(const std::uint32_t* first_row, const std::uint32_t* slots,
                                       std::uint32_t n, std::uint32_t* out,
                                       const Distance& distance) {
  const Words d;
  const hn::RebindToSigned<Words> s;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  auto index = hn::Iota(d, 0);
  std::uint32_t count = 0;
  for (std::uint32_t block = 0; block < padded(n); block += 64) {
    std::uint64_t word = 0;
    for (std::uint32_t at = 0; at < 64; at += lanes) {
      const auto inside = below(distance(index, hn::LoadU(d, first_row + block + at)),
                                hn::LoadU(d, slots + block + at));
      std::uint8_t bytes[8] = {};
      hn::StoreMaskBits(s, inside, bytes);
      std::uint64_t bits = 0;
      std::memcpy(&bits, bytes, sizeof bits);
      word |= bits << at;
      index = hn::Add(index, hn::Set(d, lanes));
    }
    for (; word != 0; word &= word - 1) {
      out[count++] = block + static_cast<std::uint32_t>(std::countr_zero(word));
    }
  }
  return count;
}

std::uint32_t RowMembers(const std::uint32_t* first_row, const std::uint32_t* slots,
                         std::uint32_t n, std::uint32_t row, std::uint32_t* out) {
  const Words d;
  const auto vn = hn::Set(d, n), vrow = hn::Set(d, row);
  return IndicesInside(first_row, slots, n, out,
                       [&](auto, auto first) HWY_ATTR { return minus_mod(vrow, first, vn); });
}

std::uint32_t SelfMembers(const std::uint32_t* first_row, const std::uint32_t* slots,
                          std::uint32_t n, std::uint32_t shift, std::uint32_t* out) {
  const Words d;
  const auto vn = hn::Set(d, n), vshift = hn::Set(d, shift);
  return IndicesInside(first_row, slots, n, out, [&](auto index, auto first) HWY_ATTR {
    return minus_mod(minus_mod(index, vshift, vn), first, vn);
  });
}

/// all_outside() for `count` members without wrap-around.
HWY_INLINE bool StretchOutside(const std::uint32_t* row, const std::uint32_t* first_row,
                               const std::uint32_t* slots, std::uint32_t count, std::uint32_t n) {
  const Words d;
  const auto lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto vn = hn::Set(d, n);
  std::uint32_t at = 0;
  for (; at + lanes <= count; at += lanes) {
    const auto distance = minus_mod(hn::LoadU(d, row + at), hn::LoadU(d, first_row + at), vn);
    const hn::RebindToSigned<Words> s;
    if (!hn::AllFalse(s, below(distance, hn::LoadU(d, slots + at)))) return false;
  }
  for (; at < count; ++at) {
    const auto distance = row[at] - first_row[at];
    if (std::min(distance, distance + n) < slots[at]) return false;
  }
  return true;
}

bool AllOutside(const std::uint32_t* row, const std::uint32_t* first_row,
                const std::uint32_t* slots, std::uint32_t count, std::uint32_t turn,
                std::uint32_t n) {
  const auto straight = count - turn;
  return StretchOutside(row, first_row + turn, slots + turn, straight, n) &&
         StretchOutside(row + straight, first_row, slots, turn, n);
}

void RingTurn(std::uint32_t turn, std::uint32_t n, std::uint32_t* out) {
  for (std::uint32_t i = 0; i < n - turn; ++i) out[i] = i + turn;
  for (std::uint32_t i = n - turn; i < n; ++i) out[i] = i + turn - n;
}

void RingInterval(std::uint32_t first, std::uint32_t count, std::uint32_t n, std::uint32_t* out) {
  const auto wrapped = first + count > n ? first + count - n : 0;
  for (std::uint32_t i = 0; i < wrapped; ++i) out[i] = i;
  for (std::uint32_t i = wrapped; i < count; ++i) out[i] = first + (i - wrapped);
}

}  // namespace selmcast::slot_kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace selmcast::slot_kernels {

HWY_EXPORT(LoadRates);
HWY_EXPORT(TotalSlots);
HWY_EXPORT(WriteSlots);
HWY_EXPORT(LeastQuotient);
HWY_EXPORT(CollectQuotients);
HWY_EXPORT(LayOut);
HWY_EXPORT(RowMembers);
HWY_EXPORT(SelfMembers);
HWY_EXPORT(AllOutside);
HWY_EXPORT(RingTurn);
HWY_EXPORT(RingInterval);

RateSummary load_rates(const std::uint64_t* from, double* to, std::uint32_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(LoadRates)(from, to, n);
}
double total_slots(const double* rates, std::uint32_t padded, double scale, double cap) noexcept {
  return HWY_DYNAMIC_DISPATCH(TotalSlots)(rates, padded, scale, cap);
}
SlotSummary write_slots(const double* rates, std::uint32_t n, double scale, double bias, double cap,
                        std::uint32_t* slots) noexcept {
  return HWY_DYNAMIC_DISPATCH(WriteSlots)(rates, n, scale, bias, cap, slots);
}
Quotient least_quotient(const double* rates, std::uint32_t padded, double scale,
                        double cap) noexcept {
  return HWY_DYNAMIC_DISPATCH(LeastQuotient)(rates, padded, scale, cap);
}
std::uint64_t collect_quotients(const double* rates, std::uint32_t padded, double near, double far,
                                double cap, Quotient* out, std::uint32_t capacity) noexcept {
  return HWY_DYNAMIC_DISPATCH(CollectQuotients)(rates, padded, near, far, cap, out, capacity);
}
void lay_out(const std::uint32_t* slots, std::uint32_t n, std::uint32_t* first_row) noexcept {
  HWY_DYNAMIC_DISPATCH(LayOut)(slots, n, first_row);
}
std::uint32_t row_members(const std::uint32_t* first_row, const std::uint32_t* slots,
                          std::uint32_t n, std::uint32_t row, std::uint32_t* out) noexcept {
  return HWY_DYNAMIC_DISPATCH(RowMembers)(first_row, slots, n, row, out);
}
std::uint32_t self_members(const std::uint32_t* first_row, const std::uint32_t* slots,
                           std::uint32_t n, std::uint32_t shift, std::uint32_t* out) noexcept {
  return HWY_DYNAMIC_DISPATCH(SelfMembers)(first_row, slots, n, shift, out);
}
bool all_outside(const std::uint32_t* row, const std::uint32_t* first_row,
                 const std::uint32_t* slots, std::uint32_t count, std::uint32_t turn,
                 std::uint32_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(AllOutside)(row, first_row, slots, count, turn, n);
}
void ring_turn(std::uint32_t turn, std::uint32_t n, std::uint32_t* out) noexcept {
  HWY_DYNAMIC_DISPATCH(RingTurn)(turn, n, out);
}
void ring_interval(std::uint32_t first, std::uint32_t count, std::uint32_t n,
                   std::uint32_t* out) noexcept {
  HWY_DYNAMIC_DISPATCH(RingInterval)(first, count, n, out);
}

}  // namespace selmcast::slot_kernels
#endif
