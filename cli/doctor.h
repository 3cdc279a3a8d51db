// `selmcast doctor`: what this machine offers, which transports open, and what to do where not.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hwconf/machine.h"
#include "transport/backends/open.h"

namespace selmcast {

/// Something that keeps a job from running, or from running well, and what to do about it.
struct Finding {
  std::string what;
  std::string remedy;
};

/// Judges the machine and the transports; pure. Empty when nothing is wrong.
std::vector<Finding> find_problems(const Machine& machine,
                                   const std::vector<BackendState>& transports);

struct MemoryState;

/// The `--json` form: machine, limits, memory, interfaces, transports, problems.
nlohmann::ordered_json doctor_json(const Machine& machine,
                                   const std::vector<BackendState>& transports,
                                   const std::vector<Finding>& problems, const MemoryState& memory);

/// The human form.
std::string doctor_text(const Machine& machine, const std::vector<BackendState>& transports,
                        const std::vector<Finding>& problems, const MemoryState& memory);

void add_doctor_command(CLI::App& app, int& exit_status);

}  // namespace selmcast
