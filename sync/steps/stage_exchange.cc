#include "sync/steps/stage_exchange.h"

#include <algorithm>

namespace selmcast {
namespace {

constexpr std::uint32_t kEarlyWord = 0, kBlocksWord = 1, kLevelWord = 2;
// Half of the least that one rank out of 65 535 can change a mean by.
constexpr float kAny = 0.5F / 65'536.0F;

}  // namespace

StageExchange::StageExchange(std::span<float> parameters, std::optional<double> share)
    : parameters_(parameters),
      fixed_share_(share),
      blocks_(parameters.size()),
      agreed_(parameters.begin(), parameters.end()),
      own_(parameters.size(), 0.0F),
      base_(parameters.begin(), parameters.end()),
      change_(parameters.size(), 0.0F),
      under_way_(parameters.size(), 0.0F),
      stream_(kWords + blocks_.places()) {}

double StageExchange::share() const noexcept {
  return fixed_share_ ? *fixed_share_ : 1.0 - static_cast<double>(level_) / kLevels;
}

void StageExchange::take_over() {
  for (std::size_t c = 0; c < parameters_.size(); ++c) {
    own_[c] += parameters_[c] - base_[c];
    base_[c] = parameters_[c];
  }
}

void StageExchange::hand_back() {
  for (std::size_t c = 0; c < parameters_.size(); ++c) {
    parameters_[c] = agreed_[c] + own_[c] + under_way_[c];
    base_[c] = parameters_[c];
  }
}

void StageExchange::depart_first() {
  take_over();
  blocks_.choose(agreed_, change_, share());
  important_ = blocks_.important();
  stream_[kEarlyWord] = early_ ? 1.0F : 0.0F;
  stream_[kBlocksWord] = static_cast<float>(blocks_.fingerprint());
  stream_[kLevelWord] = static_cast<float>(next_level_);
  blocks_.for_each(true, [this](std::size_t first, std::size_t count, std::size_t at) {
    for (std::size_t i = 0; i < count; ++i) {
      stream_[kWords + at + i] = agreed_[first + i] + own_[first + i];
    }
  });
}

bool StageExchange::arrive_first() {
  if (stream_[kBlocksWord] != static_cast<float>(blocks_.fingerprint())) {
    ++mismatches_;
    return false;
  }
  blocks_.for_each(true, [this](std::size_t first, std::size_t count, std::size_t at) {
    for (std::size_t i = 0; i < count; ++i) {
      const float mean = stream_[kWords + at + i];
      change_[first + i] = mean - agreed_[first + i];
      agreed_[first + i] = mean;
      own_[first + i] = 0.0F;
    }
  });
  const bool agreed_on = stream_[kLevelWord] == static_cast<float>(next_level_);
  level_ = agreed_on ? next_level_ : 0;
  early_ = true;  // Unless a rest says otherwise.
  adapt(stream_[kEarlyWord] > kAny);
  hand_back();
  return true;
}

void StageExchange::adapt(bool early) {
  constexpr std::uint32_t kLess = 2;
  next_level_ = early ? std::min(level_ + 1, kPutOffMax) : level_ - std::min(level_, kLess);
}

void StageExchange::depart_all() {
  take_over();
  for (std::size_t c = 0; c < parameters_.size(); ++c) stream_[kWords + c] = agreed_[c] + own_[c];
}

void StageExchange::arrive_all() {
  std::copy_n(stream_.begin() + kWords, agreed_.size(), agreed_.begin());
  // Nothing that differed decides about the next division.
  std::fill(change_.begin(), change_.end(), 0.0F);
  std::fill(own_.begin(), own_.end(), 0.0F);
  level_ = next_level_ = 0;
  early_ = true;
  hand_back();
}

void StageExchange::depart_rest() {
  blocks_.for_each(false, [this](std::size_t first, std::size_t count, std::size_t at) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = first + i;
      stream_[kWords + at + i] = agreed_[c] + own_[c];
      under_way_[c] = own_[c];
      own_[c] = 0.0F;
    }
  });
}

void StageExchange::arrive_rest(bool early) {
  early_ = early;
  take_over();
  blocks_.for_each(false, [this](std::size_t first, std::size_t count, std::size_t at) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = first + i;
      const float mean = stream_[kWords + at + i];
      change_[c] = mean - agreed_[c];
      agreed_[c] = mean;
      under_way_[c] = 0.0F;
    }
  });
  hand_back();
}

}  // namespace selmcast
