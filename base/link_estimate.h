// What is believed about one rank's link: produced by probes, read by the sync floor.
#pragma once

#include "base/units.h"

namespace selmcast {

/// Available wire rate of one direction and how sure we are of it.
struct LinkSide {
  Kbps available_kbps = 0;  ///< Median over the repeats.
  Kbps low_kbps = 0;        ///< Lowest repeat.
  Kbps high_kbps = 0;       ///< Highest repeat.
  double loss = 0.0;        ///< Share of probe frames that did not arrive, 0..1.
};

/// One rank's link as seen by the last probe.
struct LinkEstimate {
  Rank rank = 0;
  LinkSide transmit;
  LinkSide receive;
  Duration latency{};  ///< Median half round trip.
  TimePoint measured{};
  std::uint32_t repeats = 0;
};

}  // namespace selmcast
