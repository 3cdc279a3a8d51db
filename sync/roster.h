// The roster: what every rank tells every other before the first round, and the checks on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/rendezvous.h"
#include "transport/transport.h"

namespace selmcast {

/// One rank's entry. All ranks must agree on transport and policy.
struct RosterEntry {
  std::string transport;
  std::string policy;      ///< In its canonical form.
  std::uint64_t host = 0;  ///< Equal for ranks of one host.
  std::uint32_t max_frame_bytes = 0;
  PeerAddress address;
};

Bytes serialize(const RosterEntry& entry);
Result<RosterEntry> parse_roster_entry(std::span<const std::byte> bytes);

/// Publishes `own` and waits for the entries of all ranks. Errors name the rank that is missing or
/// that disagrees, and both values.
Result<std::vector<RosterEntry>> exchange_roster(Rendezvous& store, const RosterEntry& own,
                                                 Duration timeout);

/// Error (bad_input) naming the first rank that is not on rank 0's host, or is in another network
/// namespace: loopback does not lead there.
Result<void> check_one_host(const std::vector<RosterEntry>& roster);

/// The job's id: rank 0's random choice, the same for all. Never 0.
Result<std::uint64_t> agree_on_job(Rendezvous& store, Duration timeout);

/// Checks that every rank registers the same number of bytes.
Result<void> agree_on_size(Rendezvous& store, std::uint64_t bytes, Duration timeout);
/// The same for the sizes of layers that are handed over one by one.
Result<void> agree_on_layers(Rendezvous& store, std::span<const std::size_t> sizes,
                             Duration timeout);

/// All start or none: ranks that meet here with `own` good go on together; when one brings an
/// error, is lost before, or takes longer than `timeout`, every rank gets an error that names it.
/// One key decides, the first that anybody wrote, so that no two ranks differ. Without this a rank
/// that dies while the others set up lets some fail and the rest go on without them.
Result<void> agree_on_start(Rendezvous& store, const Result<void>& own, Duration timeout);

/// Identifies this host and network namespace.
std::uint64_t host_identity();

}  // namespace selmcast
