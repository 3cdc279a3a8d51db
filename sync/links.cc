#include "sync/links.h"

namespace selmcast {

namespace {
Bytes table_bytes(const LinkTable& table) {
  WireWriter out;
  for (const auto rate : table.tx_kbps) out.put(std::uint64_t{rate});
  for (const auto rate : table.rx_kbps) out.put(std::uint64_t{rate});
  return out.take();
}
}  // namespace

Result<LinkTable> agree_on_links(Rendezvous& store, Transport& transport,
                                 const std::vector<RosterEntry>& roster,
                                 const WorkerConfig& config, std::uint64_t job) {
  static_cast<void>(transport); static_cast<void>(roster); static_cast<void>(job);
  const LinkTable& table = *config.links;
  if (table.tx_kbps.size() != config.world || table.rx_kbps.size() != config.world) {
    return bad_input("links: tx_kbps has " + std::to_string(table.tx_kbps.size()) +
                     " and rx_kbps " + std::to_string(table.rx_kbps.size()) +
                     " entries, but the job has " + std::to_string(config.world) + " ranks");
  }
  const Bytes own = table_bytes(table);
  if (auto ok = store.put("links/" + std::to_string(config.rank), own); !ok) return ok.error();
  for (Rank rank = 0; rank < config.world; ++rank) {
    auto theirs = wait_for_key(store, "links/" + std::to_string(rank), config.timeout,
                               "rank " + std::to_string(rank) + " to tell its links table", rank);
    if (!theirs) return std::move(theirs).error();
    if (*theirs != own) {
      return bad_input("rank " + std::to_string(rank) + " was given another links table than rank " +
                       std::to_string(config.rank) + "; give all ranks the same file");
    }
  }
  return table;
}

}  // namespace selmcast
