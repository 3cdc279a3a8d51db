// What a program has one rank put on the wire, for devices that can pace packets themselves.
#pragma once

#include "sync/engine_config.h"

namespace selmcast {

/// The most that rank `self` sends at once in the rounds of an epoch whose lanes are made: its
/// lanes times their common rate, without the headroom that sessions leave for control frames and
/// repairs. Where receivers are selected online, what the rank's link may carry. 0: it sends no
/// data.
Kbps planned_rate(const EpochState& epoch, Rank self);

}  // namespace selmcast
