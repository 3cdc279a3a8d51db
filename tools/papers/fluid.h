// Flows on one big non-blocking switch, as fluids: who gets which rate.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// No limit: of a rate, or of the time until something happens.
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// One copy that leaves the sender and reaches all its receivers at one rate, which is therefore
/// that of the slowest of them (network-layer multicast). Unicast is a stream per receiver.
struct Stream {
  Rank sender = 0;
  std::vector<Rank> receivers;
  double left = 0.0;      ///< Bits that each receiver still lacks.
  double deadline = 0.0;  ///< For deadline_rates(): milliseconds from now.
  double rate = 0.0;      ///< kbit/s = bits per millisecond.
};

/// Rates of the network cards in kbit/s, both of size n.
struct Cards {
  std::vector<double> tx, rx;
};

/// Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2) for
/// single-rate multicast: all rates rise together until a card is full, whose streams then stop.
/// Streams with nothing left get 0. O(c n + e) for c <= min(2n, streams) full cards and e
/// (stream, receiver) pairs.
void max_min_rates(const Cards& cards, std::vector<Stream*>& streams);

/// Rates by strict priority of the earlier deadline: each stream gets what lets it end in time, as
/// far as the earlier ones leave it, then in the same order whatever is left, so that no stream
/// could be faster without another being slower. O(e + m log m) for m streams.
void deadline_rates(const Cards& cards, std::vector<Stream*>& streams);

/// The same where each stream has one receiver and the streams of one sender carry the same data,
/// so that the sender pays for the fastest of them only: at each receiver the earliest deadline
/// takes all that its sender can give, then the next. O(m log m).
void replicated_rates(const Cards& cards, std::vector<Stream*>& streams);

/// Milliseconds until all streams have ended under max-min fair sharing.
double fair_completion_ms(const Cards& cards, std::vector<Stream> streams);

}  // namespace selmcast
