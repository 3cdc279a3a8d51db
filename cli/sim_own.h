// `selmcast sim --links --policy`: a job of one's own in virtual time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cli/run_options.h"

namespace selmcast {

/// Ranks that --level engine takes: each holds its parameters and a whole driver.
inline constexpr std::uint32_t kSimEngineMax = 256;
inline constexpr std::uint32_t kSimFlowMax = 10'000;

/// What the plan of the policy takes and reaches per round if every transfer runs at the planned
/// rate: no frame is simulated, so headers, repair and the share that is kept back cost nothing.
/// Reads links_file, policy, rounds, seed and the size. Errors: bad_input.
Result<nlohmann::ordered_json> simulate_flows(RunOptions options);

/// The same job through every rank's driver over the simulated network; adds the flow level's
/// document as "flow". Errors: bad_input, and failed when the job fails.
Result<nlohmann::ordered_json> simulate_engine(RunOptions options);

std::string own_text(const nlohmann::ordered_json& document);

}  // namespace selmcast
