#include "sync/steps/delta_exchange.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace selmcast {
namespace {

// What follows the values in the stream. Means of 0/1 and of small integers.
constexpr std::uint32_t kWords = 2;
constexpr std::uint32_t kLastWord = 0, kFingerprintWord = 1;
// Values rounded at a time, on the stack.
constexpr std::size_t kBlock = 256;

/// The largest number of the type.
float largest(WireElement element) noexcept {
  return element == WireElement::f16 ? 65504.0F : std::bit_cast<float>(0x7F7F'0000U);
}

}  // namespace

DeltaExchange::DeltaExchange(std::span<float> parameters, double gamma,
                             std::optional<SlimShares> slim, std::uint64_t seed,
                             WireElement element)
    : parameters_(parameters),
      gamma_(static_cast<float>(gamma)),
      element_(element),
      seed_(mix_seed(seed)),
      values_(static_cast<std::uint32_t>(parameters.size())),
      agreed_(parameters.begin(), parameters.end()),
      own_(parameters.size(), 0.0F),
      base_(parameters.begin(), parameters.end()) {
  SELMCAST_CHECK(!parameters.empty() && parameters.size() < 0xFFFFFFFFU, "1 to 2^32 - 2 elements");
  SELMCAST_CHECK(element == WireElement::f32 || !slim, "fingerprints need float32");
  if (slim) {
    coordinates_.emplace(values_, *slim, seed_);
    under_way_.resize(coordinates_->size());
    change_.resize(parameters.size());
    values_ = coordinates_->size();
  }
  stream_.resize(std::size_t{values_} + kWords);
}

/// The round merges nothing.
void DeltaExchange::give_back() {
  const auto indices = coordinates_->indices();
  for (std::uint32_t i = 0; i < indices.size(); ++i) own_[indices[i]] += under_way_[i];
}

void DeltaExchange::take_over() {
  for (std::size_t c = 0; c < parameters_.size(); ++c) {
    own_[c] += parameters_[c] - base_[c];
    base_[c] = parameters_[c];
  }
}

/// Leaves in the stream what its type can hold, and in `own` the rest.
void DeltaExchange::round_off() {
  std::array<std::byte, kBlock * sizeof(float)> travels;
  std::array<float, kBlock> rounded;
  const float limit = largest(element_);
  for (std::size_t first = 0; first < values_; first += kBlock) {
    const auto count = std::min(kBlock, values_ - first);
    float* const values = stream_.data() + first;
    for (std::size_t i = 0; i < count; ++i) {
      // What is too large for the type waits as well, instead of becoming infinite.
      rounded[i] = std::isfinite(values[i]) ? std::clamp(values[i], -limit, limit) : values[i];
    }
    kernels::encode(element_, travels.data(), rounded.data(), count);
    kernels::assign(element_, rounded.data(), travels.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      own_[first + i] = values[i] - rounded[i];
      values[i] = rounded[i];
    }
  }
}

void DeltaExchange::hand_back() {
  for (std::size_t c = 0; c < parameters_.size(); ++c) {
    parameters_[c] = agreed_[c] + gamma_ * own_[c];
    base_[c] = parameters_[c];
  }
}

void DeltaExchange::choose() {
  if (blocks_left_ > 0) {
    coordinates_->block(--blocks_left_);
    // The set after the last block depends on nothing that differed before it.
    if (blocks_left_ == 0) {
      coordinates_->restart(seed_);
      std::fill(change_.begin(), change_.end(), 0.0F);
    }
    return;
  }
  coordinates_->next(agreed_, change_);
}

void DeltaExchange::depart(bool last) {
  take_over();
  if (coordinates_) {
    choose();
    const auto indices = coordinates_->indices();
    for (std::uint32_t i = 0; i < values_; ++i) {
      const auto c = indices[i];
      stream_[i] = agreed_[c] + own_[c];
      under_way_[i] = std::exchange(own_[c], 0.0F);
    }
  } else {
    for (std::uint32_t c = 0; c < values_; ++c) {
      stream_[c] = agreed_[c] + own_[c];
      own_[c] = 0.0F;
    }
    if (element_ != WireElement::f32) round_off();
  }
  says_all_last_ = says_all_last_ && last;
  stream_[values_ + kLastWord] = !last ? 0.0F : says_all_last_ ? 2.0F : 1.0F;
  // What this rank lacks others may have: as if the sets differed, nobody merges, and everything is
  // exchanged again.
  const float doubt = std::exchange(doubts_, false) ? 1.0F : 0.0F;
  stream_[values_ + kFingerprintWord] =
      coordinates_ ? static_cast<float>(coordinates_->fingerprint()) + doubt : 0.0F;
}

void DeltaExchange::arrive() {
  take_over();
  // Half of the least that one rank out of 65 535 can change a mean by.
  constexpr float kOne = 0.5F / 65'536.0F;
  const float last = stream_[values_ + kLastWord];
  all_last_ = last > 1.0F - kOne;
  ended_ = says_all_last_ || last > 1.0F + kOne;
  if (!coordinates_) {
    std::copy_n(stream_.begin(), values_, agreed_.begin());
    return hand_back();
  }
  const auto indices = coordinates_->indices();
  if (stream_[values_ + kFingerprintWord] != static_cast<float>(coordinates_->fingerprint())) {
    give_back();
    ++mismatches_;
    blocks_left_ = coordinates_->blocks();
    all_last_ = false;
    return hand_back();
  }
  for (std::uint32_t i = 0; i < values_; ++i) {
    const auto c = indices[i];
    change_[c] = stream_[i] - agreed_[c];
    agreed_[c] = stream_[i];
  }
  hand_back();
}

std::uint32_t DeltaExchange::flush_rounds() const noexcept {
  return coordinates_ ? coordinates_->blocks() : 0;
}

void DeltaExchange::begin_flush() noexcept {
  blocks_left_ = flush_rounds();
}

}  // namespace selmcast
