// TSC 2024 Algorithm 2: selection while multicasts are under way (stale synchronous parallel).
#pragma once

#include <cstdint>
#include <vector>

#include "plan/select/published.h"

namespace selmcast {

/// A started multicast. Receivers that were dropped are no longer listed: they are not added again.
struct OpenMulticast {
  Rank sender = 0;
  std::uint64_t volume = 0;  ///< Of one copy, > 0; the unit is that of TransferTime.
  /// How long the sender would still be held up by the bound on staleness if it had sent all.
  TransferTime blocked;
  struct Target {
    Rank receiver = 0;
    std::uint64_t left = 0;  ///< Of the volume; 0 = delivered, and kept.
    std::uint32_t age = 0;   ///< Rounds of the sender since it last reached this receiver.
    bool forced = false;     ///< Stays whatever it costs.
  };
  std::vector<Target> targets;
  TransferTime deadline;  ///< Set by select_published_ssp(): by when it should end, from now.
};

struct SspSelection {
  std::vector<std::uint32_t> p;  ///< Least receivers of each rank; its size is n.
  Fanout fanout = Fanout::multicast;
  std::vector<Kbps> tx_kbps, rx_kbps;
  /// Deliveries with less than this share of the volume left are kept. Exact in 1/1024.
  double eta = 0.75;
};

/// Cuts the targets of every multicast down to those that should go on, and sets deadlines. A
/// multicast that starts lists all ranks with receive rate. Called whenever one starts.
///
/// Where the print slips, as its text says: multicasts go by non-increasing `blocked` (line 13
/// sorts the other way), the load of a receiver counts the kept deliveries y (line 32 writes x),
/// and a new multicast has its own volume (line 2 has another index). Ties by index.
/// Preconditions (CHECK): ranks below n, one multicast per sender, positive rates of senders with
/// targets left and of their targets. O(m n) for m multicasts, up to the sort by age.
void select_published_ssp(const SspSelection& problem, std::vector<OpenMulticast>& open);

}  // namespace selmcast
