// Jobs whose layers are handed over one by one, and the steps of a trainer in them.
#pragma once

#include "tests/sim/random_job.h"

namespace selmcast::testing_jobs {

inline SimJobConfig layered(const std::string& policy, std::size_t ranks, Kbps rate,
                            std::vector<std::size_t> layers) {
  auto out = config(policy, ranks, rate);
  out.layers = std::move(layers);
  return out;
}

/// The gradient of a rank, known without the parameters: eighths, so that sums are exact.
inline float gradient(Rank rank, std::uint32_t step, std::size_t element) {
  return static_cast<float>((rank * 31 + step * 17 + element * 7) % 64) / 8.0F;
}

/// Forward and backward pass of one step, as a trainer does them: the forward pass of a layer waits
/// for the layer, the backward pass hands it over.
struct Timing {
  Duration forward, backward;  ///< Of one layer.
};
template <class Forward, class Backward>
Result<void> steps(SimRank& rank, std::uint32_t count, std::size_t layers, const Timing& timing,
                   Forward forward, Backward backward) {
  for (std::uint32_t step = 0; step < count; ++step) {
    for (std::size_t l = 0; l < layers; ++l) {
      if (step > 0) {
        if (auto ok = rank.wait_layer(l); !ok) return ok;
      }
      forward(step, l);
      rank.compute(timing.forward);
    }
    if (step > 0) {
      if (auto all = rank.wait(); !all) return all.error();
    }
    for (std::size_t l = layers; l-- > 0;) {
      rank.compute(timing.backward);
      backward(step, l);
      rank.push_layer(l);
    }
  }
  auto all = rank.wait();
  return all ? Result<void>() : all.error();
}

}  // namespace selmcast::testing_jobs
