#include "sync/steps/importance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace selmcast {

namespace {
constexpr std::size_t kBlockMin = 16;
constexpr std::size_t kBlocksMax = 1024;
}  // namespace

ImportantBlocks::ImportantBlocks(std::size_t elements)
    : elements_(elements),
      block_(std::max(kBlockMin, (elements + kBlocksMax - 1) / kBlocksMax)),
      order_((elements + block_ - 1) / block_),
      weight_(order_.size()) {
  SELMCAST_CHECK(elements > 0, "nothing to divide");
  choose_all();
}

void ImportantBlocks::choose_all() {
  std::iota(order_.begin(), order_.end(), 0U);
  chosen_ = order_.size();
}

void ImportantBlocks::choose(std::span<const float> agreed, std::span<const float> change,
                             double share) {
  std::iota(order_.begin(), order_.end(), 0U);
  for (std::uint32_t b = 0; b < order_.size(); ++b) {
    double sum = 0.0;
    const std::size_t first = b * block_, end = first + size_of(b);
    for (std::size_t c = first; c < end; ++c) {
      sum += std::abs(static_cast<double>(agreed[c]) * static_cast<double>(change[c]));
    }
    weight_[b] = sum / static_cast<double>(end - first);
  }
  chosen_ = static_cast<std::size_t>(std::lround(share * static_cast<double>(order_.size())));
  const auto middle = order_.begin() + static_cast<std::ptrdiff_t>(chosen_);
  if (middle != order_.end()) {
    std::nth_element(order_.begin(), middle, order_.end(), [this](auto a, auto b) {
      return weight_[a] != weight_[b] ? weight_[a] > weight_[b] : a < b;
    });
  }
  std::sort(order_.begin(), middle);
  std::sort(middle, order_.end());
}

std::uint32_t ImportantBlocks::fingerprint() const noexcept {
  std::uint64_t mixed = chosen_;
  for (std::size_t b = 0; b < chosen_; ++b) mixed = mix_seed(mixed ^ order_[b]);
  return static_cast<std::uint32_t>(mixed >> 42U);
}

}  // namespace selmcast
