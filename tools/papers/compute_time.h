// How long a worker computes in a round: stand-ins for measured training jobs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// TSC takes measured distributions of per-round compute times (Li et al., PPoPP 2020), scaled to a
/// mean of 1000 ms. They are not available here. Each model below is a formula of ours with that
/// mean and a similar shape; z is standard normal, e exponential with mean 1, all independent:
///  - lstm (videos of very unequal length): lognormal, exp(0.55 z - 0.55^2 / 2); deviation 0.59.
///  - transformer (sentences, batched by length): lognormal with 0.30; deviation 0.31.
///  - resnet50 (equal images on a shared cloud): 0.85 + 0.12 e, and 0.6 more in one round of
///    twenty; deviation 0.18.
///  - constant: 1.
enum class ComputeModel : std::uint8_t { lstm, transformer, resnet50, constant };

const char* to_string(ComputeModel model) noexcept;

/// The compute time of one worker's round, in units of the mean. Equal arguments give equal times.
double compute_time(ComputeModel model, std::uint64_t seed, Rank worker, std::uint32_t round);

}  // namespace selmcast
