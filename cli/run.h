// `selmcast run` and `selmcast worker`.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_run_command(CLI::App& app, int& exit_status);
void add_worker_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
