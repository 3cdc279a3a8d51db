// `selmcast store`: serves a job's rendezvous alone, where no rank and no launcher does.
#include "cli/store.h"

#include <csignal>
#include <cstdio>

#include "cli/common.h"
#include "sync/hosted_store.h"

namespace selmcast {

namespace {

struct StoreCommand {
  std::string address;
  std::uint32_t world = 0;
};

constexpr Duration kLook = std::chrono::milliseconds(50);
constexpr int kSignalStatus = 128;  ///< Added to the number of the signal, as shells do.

volatile std::sig_atomic_t interrupted = 0;
void on_signal(int signal) {
  interrupted = signal;
}

std::string lost_ranks(const StoreServer& server, std::uint32_t world) {
  std::string out;
  for (Rank rank = 0; rank < world; ++rank) {
    if (server.lost(rank)) out += (out.empty() ? "" : ", ") + std::to_string(rank);
  }
  return out;
}

/// The exit status, 0 when every rank has left or is lost.
Result<int> serve(const StoreCommand& command) {
  auto address = parse_store_address(command.address);
  if (!address) return std::move(address).error();
  auto server = StoreServer::start(*address, command.world);
  if (!server) return std::move(server).error();
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  // A script that let the system pick the port reads it here.
  std::printf("store at %s for %u ranks\n", to_string((*server)->address()).c_str(), command.world);
  std::fflush(stdout);
  while ((*server)->gone() < command.world && interrupted == 0) {
    wait_for_departure(**server, command.world, kLook);
  }
  const std::string lost = lost_ranks(**server, command.world);
  std::printf("%u of %u ranks have left%s%s\n", (*server)->gone(), command.world,
              lost.empty() ? "" : "; lost: ", lost.c_str());
  return interrupted == 0 ? 0 : kSignalStatus + interrupted;
}

}  // namespace

void add_store_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<StoreCommand>();
  auto* sub =
      app.add_subcommand("store", "Serve the rendezvous of a job whose ranks run elsewhere");
  sub->add_option(
         "address", command->address,
         "tcp://HOST:PORT (port 0 takes a free one) or file:PATH; it is printed once it is served")
      ->required();
  sub->add_option("--world", command->world, "Number of ranks of the job")->required();
  sub->footer(
      "The store ends when all ranks have left or are lost, or on Ctrl-C (status 130). Start the "
      "ranks\n"
      "with --external-store, programs of your own with WorkerConfig::host_store = false.\n\n"
      "Example:\n"
      "  selmcast store tcp://10.0.0.1:7000 --world 2 &\n"
      "  selmcast worker --external-store --rank 0 --world 2 --rendezvous tcp://10.0.0.1:7000 \\\n"
      "    --model resnet50 --policy select=all");
  sub->callback([command, &exit_status] {
    const auto status = serve(*command);
    exit_status = status ? *status : print_error(status.error());
  });
}

}  // namespace selmcast
