#include "sync/mix/pair_credit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace selmcast {

PairCredit::PairCredit(std::uint32_t world, double gamma)
    : gamma_(static_cast<std::uint64_t>(std::llround(gamma * static_cast<double>(kUnit)))),
      spent_(world, 0),
      weights_(world, 0) {
  SELMCAST_CHECK(gamma > 0.0 && gamma <= 1.0, "0 < gamma <= 1");
}

void PairCredit::begin(std::uint32_t epoch, std::size_t members,
                       std::span<const Rank> senders) noexcept {
  if (epoch != epoch_ || rounds_ == 0) {
    epoch_ = epoch;
    rounds_ = 0;
    before_epoch_ = earned_;
  }
  ++rounds_;
  earned_ = before_epoch_ + gamma_ * rounds_ / members;
  // Each clamped first: below 2^24, so that sums (2^16 ranks) and products stay below 2^48.
  const std::uint64_t cap = kUnit * (members - 1) / members;
  std::uint64_t sum = 0;
  for (const Rank sender : senders) {
    const auto weight = std::min(outstanding(sender), cap);
    weights_[sender] = static_cast<std::uint32_t>(weight);
    sum += weight;
  }
  if (sum <= cap) return;
  for (const Rank sender : senders) {
    weights_[sender] = static_cast<std::uint32_t>(weights_[sender] * cap / sum);
  }
}

}  // namespace selmcast
