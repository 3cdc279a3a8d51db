#include "sync/links.h"

#include <map>

#include "probes/probe.h"
#include "store/keys.h"

namespace selmcast {

namespace {

Bytes table_bytes(const LinkTable& table) {
  WireWriter out;
  for (const auto rate : table.tx_kbps) out.put(std::uint64_t{rate});
  for (const auto rate : table.rx_kbps) out.put(std::uint64_t{rate});
  return out.take();
}

Result<LinkTable> agree_on_table(Rendezvous& store, const WorkerConfig& config) {
  const LinkTable& table = *config.links;
  if (table.tx_kbps.size() != config.world || table.rx_kbps.size() != config.world) {
    return bad_input("links: tx_kbps has " + std::to_string(table.tx_kbps.size()) +
                     " and rx_kbps " + std::to_string(table.rx_kbps.size()) +
                     " entries, but the job has " + std::to_string(config.world) + " ranks");
  }
  const auto check = [own = table_bytes(table), &config](Rank rank,
                                                         const Bytes& theirs) -> Result<void> {
    if (theirs == own) return {};
    return bad_input(rank_name(rank) + " was given other links than " + rank_name(config.rank) +
                     "; give all ranks the same file, or none");
  };
  auto same = each_value(store, keys::kLinks, config.timeout, "to tell its links", check);
  if (!same) return std::move(same).error();
  return table;
}

}  // namespace

Result<LinkTable> agree_on_links(Rendezvous& store, Transport& transport,
                                 const std::vector<RosterEntry>& roster, const WorkerConfig& config,
                                 std::uint64_t job) {
  const Bytes own = config.links ? table_bytes(*config.links) : Bytes();
  if (auto ok = put_own(store, keys::kLinks, own); !ok) return ok.error();
  if (config.links) return agree_on_table(store, config);
  if (config.world == 1) return LinkTable{{0}, {0}};
  auto estimates = probe_links(store, transport, roster, config.timeout, job);
  if (!estimates) return std::move(estimates).error();
  LinkTable table;
  for (const LinkEstimate& estimate : *estimates) {
    table.tx_kbps.push_back(estimate.transmit.available_kbps);
    table.rx_kbps.push_back(estimate.receive.available_kbps);
  }
  return table;
}

Result<std::vector<LinkEstimate>> probe_links(Rendezvous& store, Transport& transport,
                                              const std::vector<RosterEntry>& roster,
                                              Duration timeout, std::uint64_t job) {
  ProbeConfig probing;
  probing.job = static_cast<std::uint32_t>(job);
  probing.timeout = timeout;
  std::map<std::uint64_t, std::uint32_t> hosts;
  std::vector<Endpoint> endpoints(roster.size());
  std::vector<EndpointId> ids(roster.size());
  for (Rank rank = 0; rank < roster.size(); ++rank) {
    const auto next = static_cast<std::uint32_t>(hosts.size());
    probing.host_of_rank.push_back(hosts.try_emplace(roster[rank].host, next).first->second);
    if (rank == store.rank()) continue;
    auto endpoint = transport.connect(roster[rank].address);
    if (!endpoint) return std::move(endpoint).error();
    endpoints[rank] = std::move(endpoint).value();
    ids[rank] = endpoints[rank].id();
  }
  auto probe = Probe::create(transport, store, ids, probing);
  if (!probe) return std::move(probe).error();
  return run_probe(**probe, transport, SteadyClock());
}

}  // namespace selmcast
