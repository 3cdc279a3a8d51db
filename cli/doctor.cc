#include "cli/doctor.h"

#include <memory>

#include "cli/common.h"
#include "transport/open.h"

namespace selmcast {
namespace {

int run_doctor(const std::string& json_path) {
  Result<JsonOutput> json = JsonOutput::open(json_path);
  if (!json) return print_error(json.error());
  auto transports = nlohmann::ordered_json::array();
  for (const BackendState& state : backend_states()) {
    if (json->human() != nullptr) {
      std::fprintf(json->human(), "%-8s %-10s %s\n", state.name.c_str(),
                   state.usable ? "usable" : "not usable", state.reason.c_str());
    }
    transports.push_back(
        {{"name", state.name}, {"usable", state.usable}, {"reason", state.reason}});
  }
  const Result<void> written = json->write({{"transports", std::move(transports)}});
  return written ? 0 : print_error(written.error());
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("doctor", "Show what this machine offers and what to mend");
  auto json_path = std::make_shared<std::string>();
  command
      ->add_option("--json", *json_path, "Write the report as JSON to FILE (- for standard output)")
      ->type_name("FILE");
  command->callback([json_path, &exit_status] { exit_status = run_doctor(*json_path); });
}

}  // namespace selmcast
