// From a view and a policy to one rank's program. Pure.
#pragma once

#include <optional>

#include "base/result.h"
#include "plan/axes/policy.h"
#include "plan/program.h"
#include "plan/select/row_plan.h"

namespace selmcast {

/// What a job remembers from one view to the next, the same on all its members because it depends
/// on the sequence of views only.
struct PlanHistory {
  std::optional<RowPlan> rows;  ///< Absent until a view was planned with row groups.
  RowChange change;             ///< Made by the last view, over all members.
};

/// Of a whole cycle and all members; 0 for a single member and where there is no cycle.
struct ScheduleFacts {
  /// Longest gap and mean age in rounds (see PairAge), over all pairs that the cycle ever serves.
  std::uint32_t pair_age_worst = 0;
  double pair_age_mean = 0.0;
  std::uint32_t senders_below_p = 0;  ///< Sender-rounds below p in one cycle, all members.
};

/// Group indices of sender groups: even epochs use 0 .. kGroupsPerEpoch-1, odd ones as many above
/// them. Row groups use the lowest ones and keep them.
inline constexpr std::uint32_t kGroupsPerEpoch = 1U << 17U;
inline std::uint32_t first_group(const View& view) noexcept {
  return view.epoch % 2 == 0 ? 0 : kGroupsPerEpoch;
}
/// Rounds after which a random selection repeats.
inline constexpr std::uint32_t kRandomCycle = 16;

/// Equal arguments give equal programs on every machine; `history` is what the views before left
/// and is only changed when the view has a plan.
///
/// select=selmcast follows a ring plan (plan/select/row_plan.h). groups=rows: one group per row,
/// and a patch is one unicast copy; from epoch to epoch rows and memberships change as little as
/// the new view allows. groups=sender: group indices differ from those of the epoch before, and
/// there is one group per sender and round of the cycle whose members are exactly the receivers; a
/// sender that the ring plan leaves at p-1 takes over pairs that the cycle serves more than once,
/// where there are any (so every pair is still served within the cycle, and senders_below_p counts
/// what is left). select=all: one group per sender. select=random: a cycle of kRandomCycle
/// selections drawn from (view.seed, view.epoch), each with the best rate that its in-degrees
/// allow; one group per sender and round. route=unicast: no groups; a sender pays the rate once per
/// receiver.
///
/// pace=ssp:s,eta: one group per sender; receivers are selected as rounds begin, so there is no
/// cycle. With k a pair is served once in k+1 rounds of its sender.
///
/// route=ps: see plan/server_program.h.
///
/// With p >= n (members were lost) everyone reaches everyone with receive rate. One member alone
/// gets a cycle of one empty round. A member without receive rate is nobody's receiver. Row groups
/// cost O(n k) for a first view, everything else O(n^2 k). Errors (bad_input) say why the view has
/// no plan under the policy; they name job ranks.
Result<Program> compile(const View& view, const Policy& policy, Rank self, PlanHistory& history);
/// The same without a view before.
Result<Program> compile(const View& view, const Policy& policy, Rank self);

/// Facts of the view that was compiled last with `history`. O(n^2 k).
Result<ScheduleFacts> schedule_facts(const View& view, const Policy& policy,
                                     const PlanHistory& history);

}  // namespace selmcast
