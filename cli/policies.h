// `selmcast policies`: axes, their values, names and what the names stand for.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_policies_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
