// Elementwise loops of the reduction, on float32 payloads as they lie in receive buffers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace selmcast::kernels {

// `update` points to `count` float32 values of a received payload, at any alignment. All others are
// aligned. Results are the same for every vector width: each element is computed on its own.

/// sum = update - own
void assign_difference(float* sum, const std::byte* update, const float* own,
                       std::size_t count) noexcept;
/// sum += update - own
void add_difference(float* sum, const std::byte* update, const float* own,
                    std::size_t count) noexcept;
/// sum = update
void assign(float* sum, const std::byte* update, std::size_t count) noexcept;
/// sum += update
void add(float* sum, const std::byte* update, std::size_t count) noexcept;
/// own += sum * scale
void finish_difference(float* own, const float* sum, float scale, std::size_t count) noexcept;
/// own = (own + sum) * scale
void finish_mean(float* own, const float* sum, float scale, std::size_t count) noexcept;

// The same in fixed point, independent of the order of additions: units of 2^-32, each contribution
// cut towards zero and clamped to +-2^28 (a NaN counts as the lower bound).
void fixed_add_difference(std::int64_t* sum, const std::byte* update, const float* own,
                          std::size_t count) noexcept;
void fixed_add(std::int64_t* sum, const std::byte* update, std::size_t count) noexcept;
void fixed_finish_difference(float* own, const std::int64_t* sum, double scale,
                             std::size_t count) noexcept;
void fixed_finish_mean(float* own, const std::int64_t* sum, double scale,
                       std::size_t count) noexcept;

}  // namespace selmcast::kernels
