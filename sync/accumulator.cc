#include "sync/accumulator.h"

#include <algorithm>

namespace selmcast {

Accumulator::Accumulator(const StreamShape& shape, MixKind mix, bool deterministic,
                         WireElement element)
    : shape_(shape),
      mix_(mix),
      deterministic_(deterministic),
      element_(element),
      sums_(deterministic ? 0 : shape.bytes / bytes_of(element)),
      fixed_sums_(deterministic ? shape.bytes / bytes_of(element) : 0),
      counts_(shape.frames()) {}

void Accumulator::begin(std::uint64_t bytes) noexcept {
  shape_.bytes = bytes;
  std::fill_n(counts_.begin(), shape_.frames(), std::uint16_t{0});
}

void Accumulator::add(std::uint32_t frame, std::span<const std::byte> payload,
                      const std::byte* sent) noexcept {
  const std::byte* own = sent + shape_.offset_of(frame);
  const std::size_t first = shape_.offset_of(frame) / bytes_of(element_);
  const std::size_t count = payload.size() / bytes_of(element_);
  const bool fresh = counts_[frame]++ == 0;
  if (deterministic_) {
    std::int64_t* sum = fixed_sums_.data() + first;
    if (fresh) std::fill_n(sum, count, 0);
    if (mix_ == MixKind::average) {
      kernels::fixed_add_difference(element_, sum, payload.data(), own, count);
    } else {
      kernels::fixed_add(element_, sum, payload.data(), count);
    }
    return;
  }
  float* sum = sums_.data() + first;
  if (mix_ == MixKind::average) {
    (fresh ? kernels::assign_difference : kernels::add_difference)(element_, sum, payload.data(),
                                                                   own, count);
  } else {
    (fresh ? kernels::assign : kernels::add)(element_, sum, payload.data(), count);
  }
}

void Accumulator::finish_frame(std::uint32_t frame, float* own, const std::byte* sent) noexcept {
  const std::size_t first = shape_.offset_of(frame) / bytes_of(element_);
  const std::size_t count = shape_.length_of(frame) / bytes_of(element_);
  const double scale = 1.0 / (1.0 + counts_[frame]);
  const auto scale32 = static_cast<float>(scale);
  float* to = own + first;
  const std::byte* mine = sent + shape_.offset_of(frame);
  if (deterministic_) {
    const std::int64_t* sum = fixed_sums_.data() + first;
    if (mix_ == MixKind::average) {
      kernels::fixed_finish_difference(to, sum, scale, count);
    } else {
      kernels::fixed_finish_mean(element_, to, mine, sum, scale, count);
    }
    return;
  }
  const float* sum = sums_.data() + first;
  if (mix_ == MixKind::average) {
    kernels::finish_difference(to, sum, scale32, count);
  } else {
    kernels::finish_mean(element_, to, mine, sum, scale32, count);
  }
}

void Accumulator::move_to(const float* own, const std::byte* sent) noexcept {
  for (std::uint32_t frame = 0; frame < shape_.frames(); ++frame) {
    if (counts_[frame] == 0) continue;
    const std::uint64_t at = shape_.offset_of(frame);
    const std::size_t first = at / sizeof(float);
    kernels::move_differences(sums_.data() + first, own + first, sent + at,
                              static_cast<float>(counts_[frame]),
                              shape_.length_of(frame) / sizeof(float));
  }
}

void Accumulator::finish(float* own, const std::byte* sent) noexcept {
  for (std::uint32_t frame = 0; frame < shape_.frames(); ++frame) {
    if (counts_[frame] > 0) finish_frame(frame, own, sent);
  }
}

}  // namespace selmcast
