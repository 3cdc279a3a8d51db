// `selmcast worker`: one rank, started by `run` or by hand.
#include <algorithm>
#include <cstdio>

#include "cli/common.h"
#include "cli/rank_result.h"
#include "cli/run.h"
#include "cli/run_options.h"
#include "cli/run_rank.h"
#include "store/keys.h"
#include "sync/hosted_store.h"

namespace selmcast {

namespace {

struct WorkerCommand {
  RankPlace place;
  bool external_store = false;
  RunOptions options;
};

nlohmann::ordered_json collect(const StoreServer& server, std::uint32_t world) {
  std::map<Rank, RankResult> results;
  std::vector<Rank> failed_ranks;
  for (Rank rank = 0; rank < world; ++rank) {
    if (server.lost(rank)) failed_ranks.push_back(rank);
    const auto bytes = server.get(keys::result(rank, "run"));
    if (!bytes) continue;
    auto result = parse_rank_result(*bytes);
    if (result) {
      results.emplace(rank, std::move(result).value());
    } else {
      failed_ranks.push_back(rank);
    }
  }
  return job_document(world, results, failed_ranks);
}

/// Who starts ranks by hand has no launcher that tells of the dead.
void print_losses(const RankResult& result) {
  for (const Rank lost : result.failed_ranks) {
    const auto round = std::ranges::find_if(result.rounds, [lost](const RoundReport& report) {
      return std::ranges::find(report.given_up, lost) != report.given_up.end();
    });
    const bool known = round != result.rounds.end();
    print_notice("rank " + std::to_string(lost) + " was evicted (dead or silent)" +
                 (known ? " in round " + std::to_string(round->round) : std::string()) +
                 "; this rank went on without it");
  }
}

Result<void> run_worker(WorkerCommand& command) {
  const RankPlace& place = command.place;
  if (place.world == 0 || place.rank >= place.world) {
    return bad_input("--rank: " + std::to_string(place.rank) + " does not exist in --world " +
                     std::to_string(place.world));
  }
  if (command.options.transport == "sim") {
    return bad_input(
        "--transport: sim runs in one process; use auto, shm, uring or verbs, or `selmcast run`");
  }
  std::vector<std::string> interfaces;
  if (!place.interface.empty()) interfaces.push_back(place.interface);
  if (auto ok = check_transport_name(command.options, interfaces, SimAllowed::no); !ok) return ok;
  if (auto ok = read_policy(command.options, place.world); !ok) return ok;
  if (auto ok = check_rounds(command.options.policy); !ok) return ok;
  if (auto ok = check_run_options(command.options, place.world, 1); !ok) return ok;
  auto address = parse_rendezvous(place.rendezvous);
  if (!address) return std::move(address).error();
  if (place.rank == 0 && command.external_store && !command.options.json.empty()) {
    return bad_input(
        "--json: the ranks' results are in the store, which another process hosts "
        "(--external-store); leave one of the two out");
  }
  auto json = JsonOutput::open(command.options.json);
  if (!json) return std::move(json).error();
  std::unique_ptr<StoreServer> server;
  if (place.rank == 0 && !command.external_store) {
    auto started = host_store(*address, place.world, "add --external-store");
    if (!started) return std::move(started).error();
    server = std::move(started).value();
    if (auto ok = json->drop_old(); !ok) return ok;
  } else if (!command.options.json.empty()) {
    print_notice("--json: rank 0 writes the job's result, this rank writes none");
  }
  auto result = run_rank(command.options, place);
  if (result && !command.external_store) print_losses(*result);
  if (server != nullptr) {
    // After a failure too, for a while: the others hear from the store why the job ends.
    const Duration patience = timeout_of(command.options);
    wait_for_departure(*server, place.world,
                       result ? patience : std::min<Duration>(patience, kLastWords));
  }
  if (server != nullptr && result) {
    const auto document = collect(*server, place.world);
    if (json->human() != nullptr) std::fputs(job_table(document).c_str(), json->human());
    if (auto ok = json->write(document); !ok) return ok;
    if (!document["verified"].get<bool>()) {
      return failed(why_unverified(document));
    }
  }
  if (!result) return std::move(result).error();
  return {};
}

}  // namespace

void add_worker_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<WorkerCommand>();
  auto* sub = app.add_subcommand(
      "worker", "Run one rank of a job that is started by hand, for example one on each host");
  sub->add_option("--rank", command->place.rank, "This rank, from 0")->required();
  sub->add_option("--world", command->place.world, "Number of ranks")->required();
  sub->add_option("--rendezvous", command->place.rendezvous,
                  "tcp://HOST:PORT or file:PATH; rank 0 serves it there")
      ->required();
  sub->add_option(
      "--interface,--device", command->place.interface,
      "Network interface or RDMA device; the default is the one that leads to the rendezvous");
  sub->add_flag("--external-store", command->external_store,
                "Another process serves the rendezvous: `selmcast store` or a launcher");
  add_run_options(*sub, command->options);
  sub->get_option("--transport")
      ->description(
          "auto, shm, uring or verbs. auto takes shm if all ranks are on one host and name no "
          "interface or MTU, else verbs if all ranks have a device, else uring");
  sub->footer(
      "Example, on two hosts:\n"
      "  selmcast worker --rank 0 --world 2 --rendezvous tcp://10.0.0.1:7000 \\\n"
      "    --model resnet50 --policy select=all --json result.json\n"
      "  selmcast worker --rank 1 --world 2 --rendezvous tcp://10.0.0.1:7000 \\\n"
      "    --model resnet50 --policy select=all");
  sub->callback([command, &exit_status] {
    if (auto ok = run_worker(*command); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace selmcast
