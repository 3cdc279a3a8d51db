// What each rank found out about its link, as exchanged through the store.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/link_estimate.h"
#include "base/result.h"
#include "base/wire.h"

namespace selmcast {

struct RankReport {
  std::vector<Kbps> transmit;  ///< One rate per train.
  std::vector<Kbps> receive;
  Duration latency{};
  std::uint32_t pings_per_peer = 0;          ///< Sent to each other rank.
  std::vector<std::uint32_t> pings_arrived;  ///< From each rank; empty until pings were exchanged.
};

Bytes serialize(const RankReport& report);
/// One report per rank, in order. Error naming the rank when its bytes are not a report with at
/// least one rate in each direction and either no ping counts or one per rank.
Result<std::vector<RankReport>> parse_reports(std::span<const Bytes> values);

/// Medians and spread of the rates, losses from the ping counts. Reports must hold ping counts.
std::vector<LinkEstimate> estimates_of(std::span<const RankReport> reports, TimePoint now);

/// Bytes of another rank's message as one line of at most 500 characters without control
/// characters.
std::string one_line(std::span<const std::byte> text);

}  // namespace selmcast
