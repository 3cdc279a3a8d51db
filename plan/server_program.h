// Parameter servers: some of the ranks gather a share of the parameters each and hand it out again.
#pragma once

#include "plan/program.h"

namespace selmcast {

/// Who serves under a view, and how fast.
struct ServerPlan {
  std::vector<std::uint32_t> servers;  ///< Members, ascending; server s has shard s.
  RateFraction rate;                   ///< Of each transfer, to a server and from it.
};

/// The `count` members (all, if there are fewer) with the highest rate of their slower direction,
/// ties to the lower one; they go on working. A share is handed out while the rest of it is still
/// being gathered, so all transfers of a round are under way at once and have one rate. With O_i
/// servers other than i, member i sends O_i shares and, if it serves, one to everybody; it receives
/// O_i shares and, if it serves, n - 1:
///   rate = min over i of U_i / (O_i + [i serves]) and D_i / (O_i + [i serves] (n - 1)).
/// A checked view of at least two members. Errors (bad_input): a member without receive rate.
Result<ServerPlan> plan_servers(const View& view, std::uint32_t count);

/// The program of member `self`: each round, each member sends shard s by unicast to server s,
/// which multicasts every frame of it as soon as it is the mean over all members; that takes the
/// place of what the others have. Group indices as with sender groups.
Result<Program> server_program(const View& view, std::uint32_t servers, std::uint32_t self);

}  // namespace selmcast
