// `selmcast sim`: published experiments and jobs of one's own in virtual time.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_sim_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
