// `selmcast plan`: a selection problem in JSON in, the selection out.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace selmcast {

/// Solves the problem in `text` (fields: see `selmcast plan --help`) and returns the answer as one
/// JSON document without a line end. Pure but for the time it measures. Errors (bad_input) name the
/// field, its value and what is allowed, or why the problem has no solution.
Result<std::string> plan_json(std::string_view text);

void add_plan_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
