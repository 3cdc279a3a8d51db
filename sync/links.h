// The available rates of all ranks, from a table or from probing, the same on every rank.
#pragma once

#include <vector>

#include "base/link_estimate.h"
#include "selmcast/worker.h"
#include "sync/roster.h"

namespace selmcast {

/// With config.links: checks its length and that all ranks were given the same table. Without:
/// probes every rank's link (about a second) and shares the results.
Result<LinkTable> agree_on_links(Rendezvous& store, Transport& transport,
                                 const std::vector<RosterEntry>& roster, const WorkerConfig& config,
                                 std::uint64_t job);

/// Measures every rank's link; ranks of one host at the same time. All ranks call it together and
/// get the same estimates, in the order of the ranks. Errors name the rank that is silent or lost.
Result<std::vector<LinkEstimate>> probe_links(Rendezvous& store, Transport& transport,
                                              const std::vector<RosterEntry>& roster,
                                              Duration timeout, std::uint64_t job);

}  // namespace selmcast
