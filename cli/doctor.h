// `selmcast doctor`: what this machine offers, which transports open, and what to do where not.
#pragma once

#include <CLI/CLI.hpp>

namespace selmcast {

void add_doctor_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
