// `selmcast perf`: bandwidth, message rate and latency of one transport between two hosts.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_perf_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
