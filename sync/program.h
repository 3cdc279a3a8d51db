// Program: what one rank does in each round of an epoch, compiled from a view and a policy.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "sync/policy.h"
#include "sync/select/selection.h"
#include "sync/view.h"

namespace selmcast {

/// One round of one rank. All numbers are job ranks, ascending, never the rank itself.
struct RoundPlan {
  bool multicast = false;            ///< Whether `receivers` are reached through `group`.
  std::uint32_t group = 0;           ///< Index into the epoch's groups (GroupAddress::index).
  std::vector<Rank> receivers;       ///< By the group, or by one unicast copy each.
  std::vector<Rank> patches;         ///< Further receivers, by one unicast copy each.
  std::vector<Rank> senders;         ///< Whom this rank hears.
  bool below_p = false;
};

/// Immutable. Read by the engine through one acquire load.
struct Program {
  std::uint32_t epoch = 0;
  std::vector<Rank> members;
  std::vector<RoundPlan> cycle;        ///< Round r of the job uses cycle[r % cycle.size()].
  std::vector<std::uint32_t> send_groups;     ///< Every group this rank ever sends to, ascending.
  std::vector<std::uint32_t> receive_groups;  ///< Every group this rank must join, ascending.
  RateFraction rate;                   ///< Common wire rate of each transfer.
  std::uint32_t period_k = 0;          ///< Rounds until every pair was served; 0 = not bounded.
  std::uint32_t pair_age_worst = 0;
  double pair_age_mean = 0.0;
  std::uint32_t senders_below_p = 0;   ///< Sender-rounds below p in one cycle, all members.
  std::uint32_t group_entries_max = 0; ///< Most groups that any member joins.

  const RoundPlan& round(std::uint64_t r) const noexcept { return cycle[r % cycle.size()]; }
};

/// Pure: equal arguments give equal programs on every machine. Group indices of different epochs
/// differ from those of the epoch before, so members can join before they leave. O(n^2 k).
/// Errors (bad_input) say why the view has no plan under the policy.
Result<Program> compile(const View& view, const Policy& policy, Rank self);

}  // namespace selmcast
