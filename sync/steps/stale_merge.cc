#include "sync/steps/stale_merge.h"

#include <algorithm>

namespace selmcast {

StaleMerge::StaleMerge(std::span<float> parameters)
    : parameters_(parameters), stream_(parameters.begin(), parameters.end()) {}

void StaleMerge::depart() noexcept {
  std::copy(parameters_.begin(), parameters_.end(), stream_.begin());
}

void StaleMerge::arrive(std::uint32_t ranks, std::uint32_t steps) noexcept {
  const double own = 2.0 * static_cast<double>(steps);
  const auto weight = static_cast<float>(static_cast<double>(ranks) / (own + ranks));
  for (std::size_t i = 0; i < stream_.size(); ++i) {
    const float change = weight * (stream_[i] - parameters_[i]);
    // Adding a zero would turn a negative zero into a positive one.
    if (change != 0.0F) parameters_[i] += change;
  }
}

void StaleMerge::replace() noexcept {
  std::copy(stream_.begin(), stream_.end(), parameters_.begin());
}

}  // namespace selmcast
