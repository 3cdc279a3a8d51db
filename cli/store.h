// `selmcast store`.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_store_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
