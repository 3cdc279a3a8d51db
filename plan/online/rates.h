// Rates of multicasts that share network cards, by how soon each is to end.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// One copy leaves the sender and reaches all receivers at one rate.
struct PacedStream {
  Rank sender = 0;
  std::vector<Rank> receivers;
  double weight = 1.0;  ///< > 0. The rate that lets it end in time, or any other measure.
  double rate = 0.0;    ///< kbit/s; set by weighted_rates().
};

/// Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data
/// Networks, 6.5.2, with weights): all rates rise together, in proportion to their weights, until a
/// card is full, whose streams then stop. So nothing is left unused that any stream could use
/// alone, none stands still, and where the weights fit the cards every stream gets its own at
/// least. A stream without receivers gets 0. `tx`, `rx`: kbit/s of all ranks. Allocates; O(c m n)
/// for m streams and c full cards.
void weighted_rates(std::span<const Kbps> tx, std::span<const Kbps> rx,
                    std::vector<PacedStream>& streams);

}  // namespace selmcast
