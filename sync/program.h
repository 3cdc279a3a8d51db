// Program: what one rank does in each round of an epoch, compiled from a view and a policy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "multicast/stream_shape.h"
#include "sync/policy.h"
#include "sync/select/row_plan.h"
#include "sync/select/selection.h"
#include "sync/view.h"

namespace selmcast {

inline constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

/// One round of one rank. All numbers are job ranks, ascending, never the rank itself.
struct RoundPlan {
  bool multicast = false;       ///< Whether `receivers` are reached through `group`.
  std::uint32_t group = 0;      ///< Index into the epoch's groups (GroupAddress::index).
  std::vector<Rank> receivers;  ///< By the group, or by one unicast copy each.
  std::vector<Rank> patches;    ///< Further receivers, by one unicast copy each.
  std::vector<Rank> senders;    ///< Whom this rank hears.
  /// The group by which each of them is heard, of which it is the only sender in this round, or
  /// kNoGroup. Empty: not known (servers, online), or by unicast.
  std::vector<std::uint32_t> sender_groups;
  RateFraction rate;     ///< Common wire rate of each transfer of this round.
  bool below_p = false;  ///< This rank reaches fewer than p receivers.

  // Only with parameter servers; otherwise everyone sends everything, and what arrives is mixed.
  bool replaces = false;             ///< What arrives takes the place of the own parameters.
  std::vector<Shard> sender_shards;  ///< What each of `senders` sends.
  /// What this rank sends to each of `receivers` (unicast), or one entry: to all of them.
  std::vector<Shard> shards;
};

/// What it takes to select receivers while rounds run (sync/online/); rates by member.
struct OnlineProgram {
  std::uint32_t p = 1, k = 0;
  double eta = 0.75;
  std::uint32_t first_group = 0;  ///< Of member 0; one per member.
  std::vector<Kbps> tx_kbps, rx_kbps;
};

/// Immutable. Read by the engine through one acquire load.
struct Program {
  std::uint32_t epoch = 0;
  std::vector<Rank> members;
  std::vector<Rank> servers;     ///< No exchange makes sense without them; empty: there are none.
  std::vector<RoundPlan> cycle;  ///< See slot_of().
  std::vector<std::uint32_t> send_groups;     ///< Every group this rank ever sends to, ascending.
  std::vector<std::uint32_t> receive_groups;  ///< To join before the first round, ascending.
  RateFraction rate;                          ///< The least of the rounds' rates.
  RateFraction rate_without_k;                ///< What it would be without the policy's k.
  std::uint32_t period_k = 0;             ///< Rounds until every pair was served; 0 = not bounded.
  std::uint32_t group_entries_max = 0;    ///< Most groups that any member is in at a time.
  std::uint32_t joins_per_round_max = 0;  ///< Of any member, from one round to the next.
  /// Present: the one round of the cycle names all that may be receivers and senders, and groups of
  /// others are joined for single rounds.
  std::optional<OnlineProgram> online;

  /// Where in the cycle round `r` of the job lies: round 0 has cycle[0], whatever the epoch.
  std::size_t slot_of(std::uint32_t r) const noexcept { return r % cycle.size(); }
};

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
/// select=selmcast follows a ring plan (sync/select/row_plan.h). groups=rows: one group per row,
/// `receivers` are the row's members and a patch is one unicast copy; from epoch to epoch rows and
/// memberships change as little as the new view allows. groups=sender: group indices differ from
/// those of the epoch before, and there is one group per
/// sender and round of the cycle whose members are exactly the receivers; a sender that the ring
/// plan leaves at p-1 takes over pairs that the cycle serves more than once, where there are any
/// (so every pair is still served within the cycle, and senders_below_p counts what is left).
/// select=all: one group per sender. select=random: a cycle of kRandomCycle selections drawn from
/// (view.seed, view.epoch), each with the best rate that its in-degrees allow; one group per sender
/// and round. route=unicast: no groups; a sender pays the rate once per receiver.
///
/// pace=ssp:s,eta: one group per sender; receivers are selected as rounds begin, so there is no
/// cycle. With k a pair is served once in k+1 rounds of its sender.
///
/// route=ps: see sync/server_program.h.
///
/// With p >= n (members were lost) everyone reaches everyone with receive rate. One member alone
/// gets a cycle of one empty round. A member without receive rate is nobody's receiver. Row groups
/// cost O(n k) for a first view, everything else O(n^2 k). Errors
/// (bad_input) say why the view has no plan under the policy; they name job ranks.
Result<Program> compile(const View& view, const Policy& policy, Rank self, PlanHistory& history);
/// The same without a view before.
Result<Program> compile(const View& view, const Policy& policy, Rank self);

/// Facts of the view that was compiled last with `history`. O(n^2 k).
Result<ScheduleFacts> schedule_facts(const View& view, const Policy& policy,
                                     const PlanHistory& history);

}  // namespace selmcast
