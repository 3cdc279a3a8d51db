// Who sends trains to whom, one step after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// One pattern of traffic. Every sender sends to every receiver but itself, all at the same time.
struct ProbeStep {
  std::vector<Rank> senders;       ///< Ascending.
  std::vector<Rank> receivers;     ///< Ascending.
  bool measures_transmit = false;  ///< Of the senders.
  bool measures_receive = false;   ///< Of the receivers.
  std::string what;                ///< For messages, such as "transmit of host 2".

  bool sends(Rank rank) const noexcept;
  bool receives(Rank rank) const noexcept;
  /// Whether a measurement of this rank's own link ends the step.
  bool measures(Rank rank) const noexcept;
};

/// Ranks of a host probe together, because together they will use its link; hosts take turns, so
/// that the one measured is the narrow place. With two hosts one pattern measures both ends. A
/// single host is one pattern in which everyone sends to everyone: that gives each rank's share of
/// the machine. Empty for fewer than two ranks.
std::vector<ProbeStep> probe_schedule(std::span<const std::uint32_t> host_of_rank);

}  // namespace selmcast
