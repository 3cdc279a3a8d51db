// `selmcast train`: trains a small network on real data across worker processes.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

/// Adds `train`, and hidden from the help `train-worker`, which is one rank of it.
void add_train_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
