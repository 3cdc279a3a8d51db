#include "sync/accumulator.h"

#include <algorithm>

#include "sync/kernels.h"

namespace selmcast {

Accumulator::Accumulator(const StreamShape& shape, MixKind mix, bool deterministic)
    : shape_(shape),
      mix_(mix),
      deterministic_(deterministic),
      sums_(deterministic ? 0 : shape.bytes / sizeof(float)),
      fixed_sums_(deterministic ? shape.bytes / sizeof(float) : 0),
      counts_(shape.frames()) {}

void Accumulator::begin() noexcept {
  std::fill(counts_.begin(), counts_.end(), std::uint16_t{0});
}

void Accumulator::add(std::uint32_t frame, std::span<const std::byte> payload,
                      const float* own) noexcept {
  constexpr auto kElement = WireElement::f32;
  const auto* sent = reinterpret_cast<const std::byte*>(own) + shape_.offset_of(frame);
  const std::size_t first = shape_.offset_of(frame) / sizeof(float);
  const std::size_t count = payload.size() / sizeof(float);
  const bool fresh = counts_[frame]++ == 0;
  if (deterministic_) {
    std::int64_t* sum = fixed_sums_.data() + first;
    if (fresh) std::fill_n(sum, count, 0);
    if (mix_ == MixKind::average) {
      kernels::fixed_add_difference(kElement, sum, payload.data(), sent, count);
    } else {
      kernels::fixed_add(kElement, sum, payload.data(), count);
    }
    return;
  }
  float* sum = sums_.data() + first;
  if (mix_ == MixKind::average) {
    (fresh ? kernels::assign_difference : kernels::add_difference)(kElement, sum, payload.data(),
                                                                   sent, count);
  } else {
    (fresh ? kernels::assign : kernels::add)(kElement, sum, payload.data(), count);
  }
}

void Accumulator::finish_frame(std::uint32_t frame, float* own) noexcept {
  const std::size_t first = shape_.offset_of(frame) / sizeof(float);
  const std::size_t count = shape_.length_of(frame) / sizeof(float);
  const double scale = 1.0 / (1.0 + counts_[frame]);
  float* to = own + first;
  const auto* sent = reinterpret_cast<const std::byte*>(to);
  if (mix_ == MixKind::average) {
    if (deterministic_) {
      kernels::fixed_finish_difference(to, fixed_sums_.data() + first, scale, count);
    } else {
      kernels::finish_difference(to, sums_.data() + first, static_cast<float>(scale), count);
    }
  } else if (deterministic_) {
    kernels::fixed_finish_mean(WireElement::f32, to, sent, fixed_sums_.data() + first, scale,
                               count);
  } else {
    kernels::finish_mean(WireElement::f32, to, sent, sums_.data() + first,
                         static_cast<float>(scale), count);
  }
}

void Accumulator::finish(float* own) noexcept {
  for (std::uint32_t frame = 0; frame < shape_.frames(); ++frame) {
    if (counts_[frame] > 0) finish_frame(frame, own);
  }
}

}  // namespace selmcast
