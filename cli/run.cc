#include "cli/run.h"

#include <array>
#include <cstdio>

#include "cli/common.h"
#include "cli/launch.h"
#include "cli/rank_result.h"
#include "cli/run_options.h"
#include "cli/run_rank.h"
#include "store/keys.h"

namespace selmcast {

namespace {

struct RunCommand {
  std::uint32_t workers = 8;
  std::vector<std::string> interfaces;
  RunOptions options;
};

LaunchSpec launch_spec(const RunCommand& command, Progress& progress) {
  LaunchSpec spec;
  spec.workers = command.workers;
  spec.timeout = timeout_of(command.options);
  spec.child_arguments = as_arguments(command.options);
  spec.child_arguments.insert(spec.child_arguments.begin(), "worker");
  spec.child_arguments.emplace_back("--external-store");
  spread_interfaces(command.interfaces, spec);
  spec.on_progress = [&progress](std::string_view, std::span<const std::byte> value) {
    WireReader in(value);
    if (const auto done = in.get<std::uint32_t>()) progress.update(*done, "rounds");
  };
  return spec;
}

Result<nlohmann::ordered_json> run_processes(const RunCommand& command, std::FILE* human) {
  Progress progress(human, "run", command.options.rounds);
  auto outcome = launch(launch_spec(command, progress));
  if (!outcome) return std::move(outcome).error();
  if (outcome->exit_status == 0) progress.update(command.options.rounds, "rounds");
  progress.finish();
  if (outcome->exit_status != 0) return error_of(*outcome);
  for (const auto& line : outcome->child_errors) print_notice(line);
  std::map<Rank, RankResult> results;
  for (Rank rank = 0; rank < command.workers; ++rank) {
    const auto found = outcome->results.find(keys::published(rank, "run"));
    if (found == outcome->results.end()) continue;
    auto result = parse_rank_result(found->second);
    if (!result) return std::move(result).error();
    results.emplace(rank, std::move(result).value());
  }
  return job_document(command.workers, results, outcome->failed_ranks);
}

Result<void> run(RunCommand& command) {
  if (auto ok = read_policy(command.options, command.workers); !ok) return ok;
  const RunOptions& options = command.options;
  if (auto ok = check_rounds(options.policy); !ok) return ok;
  if (auto ok = check_run_options(options, command.workers, command.workers); !ok) return ok;
  if (options.transport == "sim") {
    if (auto ok = check_simulated(options.policy); !ok) return ok;
  }
  if (auto ok = check_transport_name(options, command.interfaces, SimAllowed::yes); !ok) return ok;
  if (auto ok = check_transport(options, command.interfaces); !ok) return ok;
  const std::array<NamedFile, 1> outputs{NamedFile{"--json", options.json}};
  const std::array<NamedFile, 2> inputs{NamedFile{"--links", options.links_file},
                                        NamedFile{"--params", options.params_file}};
  if (auto ok = check_distinct(outputs, inputs); !ok) return ok;
  auto json = JsonOutput::open(options.json);
  if (!json) return std::move(json).error();
  for (const auto& notice : options.policy.notices) print_notice(notice);
  if (auto ok = json->drop_old(); !ok) return ok;
  Result<nlohmann::ordered_json> document = nlohmann::ordered_json();
  if (options.transport == "sim") {
    auto results = run_simulated(options, command.workers);
    if (!results) return std::move(results).error();
    document = job_document(command.workers, *results, {});
  } else {
    document = run_processes(command, json->human());
  }
  if (!document) return std::move(document).error();
  if (json->human() != nullptr) std::fputs(job_table(*document).c_str(), json->human());
  const bool verified = document->at("verified").get<bool>();
  const std::string why = verified ? std::string() : why_unverified(*document);
  if (auto ok = json->write(std::move(document).value()); !ok) return ok;
  if (!verified) return failed(why);
  return {};
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<RunCommand>();
  auto* sub = app.add_subcommand("run", "Synchronise parameters across local worker processes");
  sub->add_option("--workers", command->workers, "Number of worker processes to start")
      ->capture_default_str();
  sub->add_option("--interface,--interfaces,--device,--devices", command->interfaces,
                  "Network interfaces or RDMA devices; ranks are assigned to them round-robin")
      ->delimiter(',');
  add_run_options(*sub, command->options);
  sub->footer(
      "Example:\n  selmcast run --workers 8 --model resnet50 --rounds 10 --transport shm \\\n"
      "    --policy \"select=selmcast:3 pace=bsp mix=average\" --json result.json");
  sub->callback([command, &exit_status] {
    if (auto ok = run(*command); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace selmcast
