// Parameter servers: some of the ranks gather a share of the parameters each and hand it out again.
#pragma once

#include "sync/program.h"

namespace selmcast {

/// Rounds of an exchange by way of servers: gather, then hand out.
inline constexpr std::uint32_t kServerRounds = 2;

/// Who serves under a view, and how fast.
struct ServerPlan {
  std::vector<std::uint32_t> servers;  ///< Members, ascending; server s has shard s.
  RateFraction gather;                 ///< Of each transfer from a member to a server.
  RateFraction hand_out;               ///< Of each server's multicast.
};

/// The `count` members (all, if there are fewer) with the highest rate of their slower direction,
/// ties to the lower one; they go on working. A server hears every other member at once, a member
/// sends to every other server at once, and hears them all when they hand out:
///   gather   = min(min_s D_s/(n-1), min_i U_i/(servers other than i)),
///   hand_out = min(min_s U_s, min_j D_j/(servers other than j)).
/// A checked view of at least two members. Errors (bad_input): a member without receive rate.
Result<ServerPlan> plan_servers(const View& view, std::uint32_t count);

/// The program of member `self`: two rounds for ever, the first with even numbers. In the first
/// each member sends shard s by unicast to server s, which mixes; in the second each server
/// multicasts its shard, which takes the place of what the others have. Group indices as with
/// sender groups.
Result<Program> server_program(const View& view, const Policy& policy, std::uint32_t self);

}  // namespace selmcast
