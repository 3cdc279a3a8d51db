#include "sync/steps/cumulative_mix.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace selmcast {

CumulativeMix::CumulativeMix(std::span<float> parameters, std::uint32_t world, Rank self)
    : parameters_(parameters),
      world_(world),
      self_(self),
      start_(parameters.begin(), parameters.end()),
      base_(start_),
      table_(std::make_shared<SenderTable>(world, parameters.size())),
      done_(parameters.size(), 0.0) {
  SELMCAST_CHECK(self < world, "one of the job's ranks");
}

void CumulativeMix::depart() noexcept {
  const auto own = stream();
  for (std::size_t i = 0; i < own.size(); ++i) {
    done_[i] += static_cast<double>(parameters_[i]) - static_cast<double>(base_[i]);
    own[i] = static_cast<float>(done_[i]);
  }
}

// Row by row within a block that stays in the first cache: the sums of a block are vectors, the
// order of each sum is still that of the ranks.
void CumulativeMix::arrive() noexcept {
  constexpr std::size_t kBlock = 1024;
  std::array<double, kBlock> sums;
  for (std::size_t begin = 0; begin < parameters_.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, parameters_.size() - begin);
    std::fill_n(sums.begin(), count, 0.0);
    for (Rank rank = 0; rank < world_; ++rank) {
      const float* const row = table_->row(rank).data() + begin;
      for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(row[i]);
    }
    const double world = world_;
    for (std::size_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(start_[begin + i]) + sums[i] / world;
      parameters_[begin + i] = base_[begin + i] = static_cast<float>(value);
    }
  }
}

}  // namespace selmcast
