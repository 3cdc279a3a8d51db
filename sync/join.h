// Joining a job with a policy that is parsed already, for programs of this project.
#pragma once

#include <memory>

#include "base/result.h"
#include "plan/axes/policy.h"
#include "selmcast/worker.h"

namespace selmcast {

/// As Worker::join(), whose `config.policy` is a text: here it is not looked at. `policy` fits
/// `config.world` (fit_policy()).
Result<std::unique_ptr<Worker>> join_job(const WorkerConfig& config, Policy policy);

}  // namespace selmcast
