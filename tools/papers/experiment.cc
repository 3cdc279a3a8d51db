#include "tools/papers/experiment.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/random.h"

namespace selmcast {

std::uint64_t trial_seed(std::uint64_t seed, std::uint32_t trial) {
  return mix_seed(mix_seed(seed) + trial);
}

Sample sample_of(const std::vector<double>& values) {
  SELMCAST_CHECK(!values.empty(), "a sample has a value");
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), *min, *max};
}

double deviation_from(const PublishedNumber& published, double ours) {
  if (ours < published.low) return ours / published.low - 1.0;
  if (ours > published.high) return ours / published.high - 1.0;
  return 0.0;
}

std::vector<Experiment> experiments() {
  auto out = bsp_experiments();
  auto more = ssp_experiments();
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return out;
}

}  // namespace selmcast
