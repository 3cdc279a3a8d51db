// `selmcast probe`: what every rank's link can carry.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_probe_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
