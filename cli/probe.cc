#include "cli/probe.h"

#include <array>
#include <cstdio>

#include "cli/common.h"
#include "cli/launch.h"
#include "cli/run_options.h"
#include "cli/run_rank.h"
#include "probes/links_json.h"
#include "store/keys.h"
#include "sync/links.h"
#include "transport/backends/choose.h"

namespace selmcast {

namespace {

struct ProbeCommand {
  std::uint32_t workers = 4;
  std::vector<std::string> interfaces;
  std::string links_file;
  RankPlace place;
  RunOptions options;  ///< Transport, MTU, timeout and JSON only.
  bool timestamps = false;
};

void add_link_options(CLI::App& command, ProbeCommand& probe) {
  RunOptions& o = probe.options;
  command.add_flag("--timestamps", probe.timestamps,
                   "verbs: use NIC receive timestamps, where the device has them");
  command
      .add_option("--transport", o.transport,
                  "auto, shm, uring or verbs; with auto all ranks agree on the fastest that works")
      ->capture_default_str();
  command
      .add_option("--timeout", o.timeout_s,
                  "Seconds for which a rank may be silent before the probe fails")
      ->capture_default_str();
  command.add_option("--mtu", o.mtu, "Largest packet in bytes; 0 takes the interface's MTU")
      ->capture_default_str();
}

/// One rank: joins, probes, and rank 0 publishes what all agree on.
Result<void> probe_rank(const ProbeCommand& command) {
  const RankPlace& place = command.place;
  const Duration timeout = timeout_of(command.options);
  auto address = parse_store_address(place.rendezvous);
  if (!address) return std::move(address).error();
  auto store = connect_store(*address, place.rank, place.world, timeout);
  if (!store) return std::move(store).error();
  auto job = agree_on_job(**store, timeout);
  if (!job) return std::move(job).error();
  TransportConfig config;
  config.job = *job;
  config.rank = place.rank;
  config.world = place.world;
  config.interface = place.interface;
  config.mtu = command.options.mtu;
  config.timestamps = command.timestamps;
  auto chosen = choose_transport(**store, *address,
                                 {command.options.transport, config, host_identity(), timeout});
  if (!chosen) return std::move(chosen).error();
  const auto& transport = chosen->transport;
  if (place.rank == 0 && !chosen->notice.empty()) print_notice(chosen->notice);
  const auto& caps = transport->capabilities();
  const RosterEntry own{caps.name, "probe", host_identity(), caps.max_frame_bytes,
                        transport->address()};
  auto roster = exchange_roster(**store, own, timeout);
  if (!roster) return std::move(roster).error();
  for (const auto& notice : transport->notices()) print_notice(notice);
  auto links = probe_links(**store, *transport, *roster, timeout, *job);
  if (!links) return std::move(links).error();
  if (place.rank == 0) {
    const std::string text = links_json(*links);
    auto published = (*store)->put(keys::result(0, "links"), std::as_bytes(std::span(text)));
    if (!published) return published;
  }
  (*store)->leave();
  return {};
}

void print_table(const nlohmann::ordered_json& links, const std::string& transport) {
  std::printf("%s, wire rates in Mbit/s (lowest and highest of the repeats)\n", transport.c_str());
  std::printf("%5s %28s %28s %12s %8s\n", "rank", "transmit", "receive", "latency us", "loss %");
  for (const auto& one : links.at("detail")) {
    const auto mbps = [&](const char* key) { return one.at(key).get<double>() / 1000.0; };
    const std::size_t rank = one.at("rank");
    std::printf("%5zu %10.1f (%7.1f..%7.1f) %10.1f (%7.1f..%7.1f) %12.1f %8.2f\n", rank,
                links["tx_kbps"][rank].get<double>() / 1000.0, mbps("tx_low_kbps"),
                mbps("tx_high_kbps"), links["rx_kbps"][rank].get<double>() / 1000.0,
                mbps("rx_low_kbps"), mbps("rx_high_kbps"), one.at("latency_us").get<double>(),
                one.at("rx_loss").get<double>() * 100.0);
  }
}

Result<void> probe(const ProbeCommand& command) {
  const RunOptions& o = command.options;
  if (command.workers < 2 || command.workers > 65'535) {
    return bad_input("--workers: " + std::to_string(command.workers) + " is not within 2..65535");
  }
  if (o.transport == "sim")
    return bad_input("--transport: sim has nothing to probe; use auto, shm, uring or verbs");
  if (auto ok = check_transport_name(o, command.interfaces, SimAllowed::no); !ok) return ok;
  if (auto ok = check_transport(o, command.interfaces); !ok) return ok;
  if (command.timestamps && o.transport != "verbs") {
    return bad_input("--timestamps: only RDMA devices stamp completions; add --transport verbs");
  }
  const std::array<NamedFile, 2> files{NamedFile{"--json", o.json},
                                       NamedFile{"--links", command.links_file}};
  if (auto ok = check_distinct(files); !ok) return ok;
  auto json = JsonOutput::open(o.json);
  if (!json) return std::move(json).error();
  auto file = JsonOutput::open(command.links_file, "--links");
  if (!file) return std::move(file).error();
  if (json->human() == nullptr && file->human() == nullptr) {
    return bad_input("--json and --links cannot both be standard output; name a file for one");
  }
  for (auto* output : {&*json, &*file}) {
    if (auto ok = output->drop_old(); !ok) return ok;
  }
  LaunchSpec spec;
  spec.workers = command.workers;
  spec.timeout = timeout_of(o);
  spec.child_arguments = {"probe-worker",       "--transport", o.transport,          "--timeout",
                          text_of(o.timeout_s), "--mtu",       std::to_string(o.mtu)};
  if (command.timestamps) spec.child_arguments.emplace_back("--timestamps");
  spread_interfaces(command.interfaces, spec);
  auto outcome = launch(spec);
  if (!outcome) return std::move(outcome).error();
  const auto found = outcome->results.find("0/links");
  if (outcome->exit_status != 0) return error_of(*outcome);
  if (found == outcome->results.end()) return failed("rank 0 published no result of the probe");
  const std::string text = text_in(found->second);
  auto links = nlohmann::ordered_json::parse(text);
  if (json->human() != nullptr && file->human() != nullptr) print_table(links, o.transport);
  if (auto ok = file->write(links); !ok) return ok;
  return json->write(std::move(links));
}

}  // namespace

void add_probe_command(CLI::App& app, int& exit_status) {
  auto command = std::make_shared<ProbeCommand>();
  auto* sub = app.add_subcommand("probe", "Measure what every local rank's link can carry");
  sub->add_option("--workers", command->workers, "Number of ranks that probe at the same time")
      ->capture_default_str();
  sub->add_option("--interface,--interfaces,--device,--devices", command->interfaces,
                  "Network interfaces or RDMA devices; ranks are assigned to them round-robin")
      ->delimiter(',');
  sub->add_option("--links", command->links_file,
                  "Write the measured rates to this file, which run and train read");
  sub->add_option("--json", command->options.json,
                  "Write the result as JSON to this file (`-`: standard output)");
  add_link_options(*sub, *command);
  sub->footer("Example:\n  selmcast probe --workers 8 --transport uring --links links.json");
  sub->callback([command, &exit_status] {
    if (auto ok = probe(*command); !ok) exit_status = print_error(ok.error());
  });

  auto rank = std::make_shared<ProbeCommand>();
  auto* child = app.add_subcommand("probe-worker", "One rank of a probe")->group("");
  child->add_option("--rank", rank->place.rank)->required();
  child->add_option("--world", rank->place.world)->required();
  child->add_option("--rendezvous", rank->place.rendezvous)->required();
  child->add_option("--interface,--device", rank->place.interface);
  add_link_options(*child, *rank);
  child->callback([rank, &exit_status] {
    if (auto ok = probe_rank(*rank); !ok) exit_status = print_error(ok.error());
  });
}

}  // namespace selmcast
