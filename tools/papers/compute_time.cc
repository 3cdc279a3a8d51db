#include "tools/papers/compute_time.h"

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace selmcast {
namespace {

/// Box and Muller's transform; 1 - unit() is never zero.
double standard_normal(SplitMix64& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.unit()));
  return radius * std::cos(2.0 * std::numbers::pi * random.unit());
}

double lognormal(SplitMix64& random, double sigma) {
  return std::exp(sigma * standard_normal(random) - sigma * sigma / 2.0);
}

}  // namespace

const char* to_string(ComputeModel model) noexcept {
  switch (model) {
    case ComputeModel::lstm:
      return "LSTM";
    case ComputeModel::transformer:
      return "Transformer";
    case ComputeModel::resnet50:
      return "ResNet-50";
    case ComputeModel::constant:
      break;
  }
  return "constant";
}

double compute_time(ComputeModel model, std::uint64_t seed, Rank worker, std::uint32_t round) {
  SplitMix64 random(mix_seed(mix_seed(seed) + ((std::uint64_t{worker} << 32U) | round)));
  switch (model) {
    case ComputeModel::lstm:
      return lognormal(random, 0.55);
    case ComputeModel::transformer:
      return lognormal(random, 0.30);
    case ComputeModel::resnet50: {
      const double work = 0.85 - 0.12 * std::log(1.0 - random.unit());
      return work + (random.chance(0.05) ? 0.6 : 0.0);
    }
    case ComputeModel::constant:
      break;
  }
  return 1.0;
}

}  // namespace selmcast
