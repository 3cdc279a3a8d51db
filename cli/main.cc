// The program `selmcast`: one subcommand per file of this folder.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/doctor.h"
#include "cli/perf.h"
#include "cli/plan.h"
#include "cli/policies.h"
#include "cli/probe.h"
#include "cli/run.h"
#include "cli/sim.h"
#include "cli/store.h"
#include "cli/train.h"

namespace selmcast {
namespace {

void add_commands(CLI::App& app, int& exit_status) {
  add_doctor_command(app, exit_status);
  add_perf_command(app, exit_status);
  add_plan_command(app, exit_status);
  add_policies_command(app, exit_status);
  add_probe_command(app, exit_status);
  add_run_command(app, exit_status);
  add_sim_command(app, exit_status);
  add_store_command(app, exit_status);
  add_train_command(app, exit_status);
  add_worker_command(app, exit_status);
}

/// The parser reads counts with strtoull(), which takes a minus sign and too many digits for a
/// large number. The complaint, or nothing when the text is neither.
std::string count_complaint(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\n\v\f\r");
  if (first == std::string::npos) return {};
  if (text[first] == '-') return text + " is negative; a whole number from 0 is needed";
  errno = 0;
  static_cast<void>(std::strtoull(text.c_str(), nullptr, 0));
  return errno == ERANGE ? text + " is larger than 64 bits hold" : std::string();
}

/// The parser takes whatever follows an option that needs a value, also the next option's name.
std::string text_complaint(const std::string& text) {
  return text.starts_with("--") ? text + " is an option; a value is missing before it"
                                : std::string();
}

/// Has all options of a command, and of those below it, refuse such values.
void check_values(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (option->get_type_name() == "UINT") {
      option->check([](const std::string& text) { return count_complaint(text); });
    } else if (option->get_type_name() == "TEXT") {
      option->check([](const std::string& text) { return text_complaint(text); });
    }
  }
  for (CLI::App* below : command.get_subcommands({})) check_values(*below);
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;  // Internal.
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

/// The parser's complaint in one line, with the command whose help lists what is allowed.
Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    const std::vector<std::string> unknown = app.remaining();
    const std::string what = unknown.empty() ? "no command" : "unknown command " + unknown.front();
    return bad_input(what + "; allowed: " + command_names(app) + ", --help, --version");
  }
  const std::string command = chosen.back()->get_name();
  return bad_input(command + ": " + error.what() + "; \"selmcast " + command +
                   " --help\" lists what is allowed");
}

int run(int argc, char** argv) {
  int exit_status = 0;
  CLI::App app{"selmcast: synchronise the workers of a training job by selective multicast",
               "selmcast"};
  app.set_version_flag("--version", "selmcast " SELMCAST_VERSION);
  app.require_subcommand(1);
  add_commands(app, exit_status);
  check_values(app);
  app.footer("Example:\n  selmcast train --workers 8 --policy \"select=selmcast:3\"");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return print_error(usage_error(app, error));
  }
  if (exit_status == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    return print_error(failed("cannot write to standard output"));
  }
  return exit_status;
}

}  // namespace
}  // namespace selmcast

int main(int argc, char** argv) {
  // A reader that went away is an error of one write, not a reason to die without a word.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return selmcast::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return selmcast::print_error(selmcast::unavailable(
        "out of memory; use fewer ranks or a smaller set, or raise the limit (ulimit -v)"));
  } catch (const std::exception& error) {
    return selmcast::print_error(selmcast::failed(std::string("unexpected: ") + error.what()));
  }
}
