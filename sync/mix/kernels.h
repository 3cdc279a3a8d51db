// Elementwise loops of the reduction, on payloads as they lie in receive buffers.
//
// Vector code for whatever the machine has, chosen at run time; every instruction set gives the
// same bits, with one exception: which NaN comes out of adding two NaNs. Nothing is fused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/highway_targets.h"
#include "base/wire_element.h"

namespace selmcast {

namespace kernels {

// `update` and `sent` point to `count` elements as they travel, at any alignment: what another rank
// sent and what this rank itself sends at the same place. Nothing else overlaps.

/// to = from in the type that travels: to nearest, ties to even; beyond the largest number
/// infinity; a NaN stays one, made quiet, with its sign and the upper bits of its payload.
/// `to` holds count * bytes_of(element) bytes.
void encode(WireElement element, std::byte* to, const float* from, std::size_t count) noexcept;

/// sum = update - sent
void assign_difference(WireElement element, float* sum, const std::byte* update,
                       const std::byte* sent, std::size_t count) noexcept;
/// sum += update - sent
void add_difference(WireElement element, float* sum, const std::byte* update, const std::byte* sent,
                    std::size_t count) noexcept;
/// sum = update; exact, so this is also how to decode.
void assign(WireElement element, float* sum, const std::byte* update, std::size_t count) noexcept;
/// sum += update
void add(WireElement element, float* sum, const std::byte* update, std::size_t count) noexcept;
/// sum = (update - sent) * scale
void assign_scaled_difference(WireElement element, float* sum, const std::byte* update,
                              const std::byte* sent, float scale, std::size_t count) noexcept;
/// sum += (update - sent) * scale
void add_scaled_difference(WireElement element, float* sum, const std::byte* update,
                           const std::byte* sent, float scale, std::size_t count) noexcept;
/// own += sum * scale; where that is 0 `own` keeps its bits, a negative zero too.
void finish_difference(float* own, const float* sum, float scale, std::size_t count) noexcept;
/// sum -= times * (own - sent), float32: a sum of `times` differences from `sent` becomes one of
/// differences from `own`.
void move_differences(float* sum, const float* own, const std::byte* sent, float times,
                      std::size_t count) noexcept;
/// own = (sent + sum) * scale. With f32 `sent` may be `own` itself.
void finish_mean(WireElement element, float* own, const std::byte* sent, const float* sum,
                 float scale, std::size_t count) noexcept;

// The same in fixed point, independent of the order of additions: units of 2^-32, each contribution
// cut towards zero and clamped to +-2^28, the sum to +-(2^31 - 2^28). (The order counts only where
// a sum on its way meets that bound, which takes 8 contributions of 2^28.) A contribution that is
// not finite makes the sum, and what is finished with it, a NaN.
void fixed_add_difference(WireElement element, std::int64_t* sum, const std::byte* update,
                          const std::byte* sent, std::size_t count) noexcept;
void fixed_add_scaled_difference(WireElement element, std::int64_t* sum, const std::byte* update,
                                 const std::byte* sent, double scale, std::size_t count) noexcept;
void fixed_add(WireElement element, std::int64_t* sum, const std::byte* update,
               std::size_t count) noexcept;
void fixed_finish_difference(float* own, const std::int64_t* sum, double scale,
                             std::size_t count) noexcept;
/// Except with f32, `sent` is cut and clamped like the others' contributions, so that all who added
/// the same set get the same bits.
void fixed_finish_mean(WireElement element, float* own, const std::byte* sent,
                       const std::int64_t* sum, double scale, std::size_t count) noexcept;

}  // namespace kernels
}  // namespace selmcast
