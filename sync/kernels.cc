#include "sync/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace selmcast::kernels {

static_assert(std::endian::native == std::endian::little,
              "payloads carry little-endian float32 and are added in place");

namespace {
// memcpy is how an unaligned load is spelt; compilers turn the loops below into vector code.
inline float load(const std::byte* from, std::size_t i) noexcept {
  float value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

constexpr double kFixedUnit = 0x1p32;
constexpr double kFixedLimit = 0x1p28;

inline std::int64_t to_fixed(double value) noexcept {
  const double bounded = value > -kFixedLimit ? std::min(value, kFixedLimit) : -kFixedLimit;
  return static_cast<std::int64_t>(bounded * kFixedUnit);
}
}  // namespace

void assign_difference(float* sum, const std::byte* update, const float* own,
                       std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) sum[i] = load(update, i) - own[i];
}

void add_difference(float* sum, const std::byte* update, const float* own,
                    std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) sum[i] += load(update, i) - own[i];
}

void assign(float* sum, const std::byte* update, std::size_t count) noexcept {
  std::memcpy(sum, update, count * sizeof(float));
}

void add(float* sum, const std::byte* update, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) sum[i] += load(update, i);
}

void finish_difference(float* own, const float* sum, float scale, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) own[i] += sum[i] * scale;
}

void finish_mean(float* own, const float* sum, float scale, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) own[i] = (own[i] + sum[i]) * scale;
}

void fixed_add_difference(std::int64_t* sum, const std::byte* update, const float* own,
                          std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += to_fixed(static_cast<double>(load(update, i)) - static_cast<double>(own[i]));
  }
}

void fixed_add(std::int64_t* sum, const std::byte* update, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) sum[i] += to_fixed(static_cast<double>(load(update, i)));
}

void fixed_finish_difference(float* own, const std::int64_t* sum, double scale,
                             std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const double mean = static_cast<double>(sum[i]) / kFixedUnit * scale;
    own[i] = static_cast<float>(static_cast<double>(own[i]) + mean);
  }
}

void fixed_finish_mean(float* own, const std::int64_t* sum, double scale,
                       std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const double total = static_cast<double>(own[i]) + static_cast<double>(sum[i]) / kFixedUnit;
    own[i] = static_cast<float>(total * scale);
  }
}

}  // namespace selmcast::kernels
