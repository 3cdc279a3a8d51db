// The available rates of all ranks, from a table or from probing, the same on every rank.
#pragma once

#include <vector>

#include "selmcast/worker.h"
#include "sync/roster.h"

namespace selmcast {

/// With config.links: checks its length and that all ranks were given the same table. Without:
/// probes every rank's link (about a second) and shares the results.
Result<LinkTable> agree_on_links(Rendezvous& store, Transport& transport,
                                 const std::vector<RosterEntry>& roster, const WorkerConfig& config,
                                 std::uint64_t job);

}  // namespace selmcast
