#include "sync/mix/accumulator.h"

#include <algorithm>

#include "base/check.h"

namespace selmcast {

Accumulator::Accumulator(const StreamShape& shape, MixKind mix, bool deterministic,
                         WireElement element, std::optional<PairCredit> credit)
    : shape_(shape),
      stream_bytes_(shape.bytes),
      mix_(mix),
      deterministic_(deterministic),
      element_(element),
      credit_(std::move(credit)),
      sums_(deterministic ? 0 : shape.bytes / bytes_of(element)),
      fixed_sums_(deterministic ? shape.bytes / bytes_of(element) : 0),
      counts_(shape.frames()),
      weights_(shape.frames()) {
  SELMCAST_CHECK(credit_.has_value() == (mix == MixKind::age), "age is what needs credit");
}

void Accumulator::begin(std::uint64_t bytes) noexcept {
  shape_.bytes = bytes;
  std::fill_n(counts_.begin(), shape_.frames(), std::uint16_t{0});
  std::fill_n(weights_.begin(), shape_.frames(), std::uint16_t{0});
}

void Accumulator::begin(std::uint64_t bytes, std::uint32_t epoch, std::size_t members,
                        std::span<const Rank> senders) noexcept {
  begin(bytes);
  if (credit_) credit_->begin(epoch, members, senders);
}

void Accumulator::add_floating(float* sum, bool fresh, Rank sender,
                               std::span<const std::byte> payload, const std::byte* own) noexcept {
  const std::size_t count = payload.size() / bytes_of(element_);
  const std::byte* update = payload.data();
  switch (mix_) {
    case MixKind::average:
      return (fresh ? kernels::assign_difference : kernels::add_difference)(element_, sum, update,
                                                                            own, count);
    case MixKind::age: {
      const auto weight = static_cast<float>(credit_->weight(sender)) / PairCredit::kUnit;
      return (fresh ? kernels::assign_scaled_difference : kernels::add_scaled_difference)(
          element_, sum, update, own, weight, count);
    }
    default:
      return (fresh ? kernels::assign : kernels::add)(element_, sum, update, count);
  }
}

void Accumulator::add_fixed(std::int64_t* sum, Rank sender, std::span<const std::byte> payload,
                            const std::byte* own) noexcept {
  const std::size_t count = payload.size() / bytes_of(element_);
  const std::byte* update = payload.data();
  switch (mix_) {
    case MixKind::average:
      return kernels::fixed_add_difference(element_, sum, update, own, count);
    case MixKind::age: {
      const double weight = static_cast<double>(credit_->weight(sender)) / PairCredit::kUnit;
      return kernels::fixed_add_scaled_difference(element_, sum, update, own, weight, count);
    }
    default:
      return kernels::fixed_add(element_, sum, update, count);
  }
}

void Accumulator::add(std::uint32_t frame, Rank sender, std::span<const std::byte> payload,
                      const std::byte* sent, std::uint32_t weight) noexcept {
  weights_[frame] = static_cast<std::uint16_t>(weights_[frame] + std::min(weight, 0xFFFFU));
  const std::byte* own = sent + shape_.offset_of(frame);
  const std::size_t first = shape_.offset_of(frame) / bytes_of(element_);
  const bool fresh = counts_[frame]++ == 0;
  if (!deterministic_) return add_floating(sums_.data() + first, fresh, sender, payload, own);
  std::int64_t* sum = fixed_sums_.data() + first;
  if (fresh) std::fill_n(sum, payload.size() / bytes_of(element_), 0);
  add_fixed(sum, sender, payload, own);
}

void Accumulator::complete(Rank sender) noexcept {
  if (credit_) credit_->delivered(sender);
}

void Accumulator::finish_frame(std::uint32_t frame, float* own, const std::byte* sent) noexcept {
  const std::size_t first = shape_.offset_of(frame) / bytes_of(element_);
  const std::size_t count = shape_.length_of(frame) / bytes_of(element_);
  const double scale = mix_ == MixKind::age ? 1.0 : 1.0 / (1.0 + weights_[frame]);
  const auto scale32 = static_cast<float>(scale);
  float* to = own + first;
  const std::byte* mine = sent + shape_.offset_of(frame);
  if (deterministic_) {
    const std::int64_t* sum = fixed_sums_.data() + first;
    if (mix_ == MixKind::sgd) {
      kernels::fixed_finish_mean(element_, to, mine, sum, scale, count);
    } else {
      kernels::fixed_finish_difference(to, sum, scale, count);
    }
    return;
  }
  const float* sum = sums_.data() + first;
  if (mix_ == MixKind::sgd) {
    kernels::finish_mean(element_, to, mine, sum, scale32, count);
  } else {
    kernels::finish_difference(to, sum, scale32, count);
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

void Accumulator::sum_up(std::uint32_t frame, const std::byte* sent) noexcept {
  const std::uint64_t at = shape_.offset_of(frame);
  const std::size_t count = shape_.length_of(frame) / sizeof(float);
  float* sum = sums_.data() + at / sizeof(float);
  (counts_[frame] == 0 ? kernels::assign : kernels::add)(element_, sum, sent + at, count);
  ++weights_[frame];
  counts_[frame] = 0;
}

void Accumulator::finish(std::uint32_t frame, float* own, const std::byte* sent) noexcept {
  if (counts_[frame] > 0) finish_frame(frame, own, sent);
  counts_[frame] = 0;
}

void Accumulator::finish(float* own, const std::byte* sent) noexcept {
  for (std::uint32_t frame = 0; frame < shape_.frames(); ++frame) {
    if (counts_[frame] > 0) finish_frame(frame, own, sent);
  }
}

}  // namespace selmcast
