#include "sync/steps/delta_exchange.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace selmcast {
namespace {

// What follows the values in the stream. Means of 0/1 and of small integers.
constexpr std::uint32_t kWords = 2;
constexpr std::uint32_t kLastWord = 0, kFingerprintWord = 1;

}  // namespace

DeltaExchange::DeltaExchange(std::span<float> parameters, double gamma,
                             std::optional<SlimShares> slim, std::uint64_t seed)
    : parameters_(parameters),
      gamma_(static_cast<float>(gamma)),
      keep_(!slim || slim->keep),
      seed_(seed),
      values_(static_cast<std::uint32_t>(parameters.size())),
      agreed_(parameters.begin(), parameters.end()),
      own_(parameters.size(), 0.0F),
      base_(parameters.begin(), parameters.end()) {
  SELMCAST_CHECK(!parameters.empty() && parameters.size() < 0xFFFFFFFFU, "1 to 2^32 - 2 elements");
  if (slim) {
    coordinates_.emplace(values_, *slim, mix_seed(seed_));
    values_ = coordinates_->size();
    under_way_.resize(values_);
    change_.resize(parameters.size());
  }
  stream_.resize(std::size_t{values_} + kWords);
}

void DeltaExchange::take_over() {
  for (std::size_t c = 0; c < parameters_.size(); ++c) {
    own_[c] += parameters_[c] - base_[c];
    base_[c] = parameters_[c];
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
      coordinates_->restart(mix_seed(seed_));
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
    if (!keep_) std::fill(own_.begin(), own_.end(), 0.0F);
  } else {
    for (std::uint32_t c = 0; c < values_; ++c) {
      stream_[c] = agreed_[c] + own_[c];
      own_[c] = 0.0F;
    }
  }
  stream_[values_ + kLastWord] = last ? 1.0F : 0.0F;
  stream_[values_ + kFingerprintWord] =
      coordinates_ ? static_cast<float>(coordinates_->fingerprint()) : 0.0F;
}

void DeltaExchange::arrive() {
  take_over();
  // Half of the least that one rank out of 65 535 can change a mean by.
  constexpr float kAll = 1.0F - 0.5F / 65'536.0F;
  all_last_ = stream_[values_ + kLastWord] > kAll;
  if (!coordinates_) {
    std::copy_n(stream_.begin(), values_, agreed_.begin());
    return hand_back();
  }
  const auto indices = coordinates_->indices();
  if (stream_[values_ + kFingerprintWord] != static_cast<float>(coordinates_->fingerprint())) {
    for (std::uint32_t i = 0; i < values_; ++i) own_[indices[i]] += under_way_[i];
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
