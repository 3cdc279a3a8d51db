// Selections when the fabric between racks is narrower than the links of their members.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sync/select/selection.h"

namespace selmcast {

/// Every member is in one rack; rates are those left of the rack's links to the other racks.
struct Racks {
  std::vector<std::uint32_t> rack_of;    ///< Rack of each member, its size is n.
  std::vector<Kbps> up_kbps, down_kbps;  ///< Of each rack; below 2^53.
};

/// What racks carry of a selection, in transfers of its common rate. Unicast: every pair between
/// two racks counts on both links. Multicast: a sender counts once on its uplink when somebody
/// outside hears it, and once on the downlink of each other rack that somebody of hears it.
struct RackLoad {
  std::vector<std::uint64_t> up, down;
};
RackLoad rack_load(const Racks& racks, Fanout fanout,
                   const std::vector<std::vector<Rank>>& receivers);

/// A selection within the limits of members and racks, p receivers or more for every sender.
/// Not proven optimal: limits of racks cross those of members, and with multicast the downlinks
/// pose set-cover problems. Each rate is tried with pairs that are cheapest at prices of the links
/// (minimum-cost flow), and prices of overloaded links rise; the highest rate that works wins, then
/// pairs are added, oldest first, while all limits hold. The rate is never above select_exact()'s.
/// The bottleneck has 0 slots when only a rack's link keeps the rate down.
///
/// Against integer programs of 4 to 10 members in 2 or 3 racks, 250 instances each: unicast has the
/// best rate in 247 (mean .999 of it, worst .88), multicast in 242 (mean .997, worst .78).
///
/// `problem.k` must be 0; forced and forbidden pairs hold. Errors (bad_input) as select_exact(), or
/// that no selection was found. For planning ahead, not for every round.
Result<Selection> select_in_racks(const SelectionProblem& problem, const Racks& racks);

}  // namespace selmcast
