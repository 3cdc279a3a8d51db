// An application whose result is easy to bound, for jobs in which ranks die.
#pragma once

#include <vector>

#include "simulate/sim_job.h"

namespace selmcast::testing_jobs {

/// Adds one to every parameter in each of `steps` steps, then merges what is left.
inline SimJob::Application adding_ones(std::vector<float>& parameters, std::uint32_t steps) {
  return [&parameters, steps](SimRank&, Stepper& stepper) -> Result<void> {
    for (std::uint32_t s = 0; s < steps; ++s) {
      for (auto& w : parameters) w += 1.0F;
      if (auto closed = stepper.step(); !closed) return closed.error();
    }
    auto rest = stepper.finish();
    return rest ? Result<void>() : rest.error();
  };
}

}  // namespace selmcast::testing_jobs
