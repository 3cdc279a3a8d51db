// A ring plan that follows its view from epoch to epoch and changes few memberships on the way.
//
// A new ring plan for a view that differs a little would move nearly every column, because each
// column begins where the one before ends. Here columns keep their place on the ring; only their
// ends move, and rows that fall below p get a member from elsewhere. Where that is not possible, or
// would change more than a new ring plan, the ring is laid out anew.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/select/ring_plan.h"

namespace selmcast {

/// Columns as pieces of the ring: column j hears the rows [first, first + width) mod n and `extra`.
struct RowLayout {
  std::vector<std::uint32_t> groups;  ///< Ring position -> group, which outlives positions.
  std::vector<std::uint32_t> first, width;
  std::vector<std::vector<std::uint32_t>> extra;  ///< Ascending, outside the interval.

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(groups.size()); }
  bool hears(std::uint32_t column, std::uint32_t row) const noexcept;
  std::uint32_t load(std::uint32_t column) const noexcept;
  /// Ring positions of one column, ascending.
  std::vector<std::uint32_t> rows_of(std::uint32_t column) const;
};

/// What the next layout must satisfy.
struct RowDemand {
  std::uint32_t p = 0;                   ///< Least members of a row.
  std::span<const std::uint32_t> slots;  ///< Most rows of each column.
  std::uint32_t least_width = 0;         ///< Of every column with slots.
};
/// Takes out columns (ascending old indices) and as many rows, appends `joining` empty columns and
/// as many rows, then moves as few memberships as it finds until the demand holds. False when it
/// does not find a way; the layout is then unusable.
bool edit_layout(RowLayout& layout, std::span<const std::uint32_t> leaving, std::uint32_t joining,
                 const RowDemand& demand);

/// Memberships that members gained and lost by a change of view. Members that left do not count.
struct RowChange {
  std::uint32_t joins = 0, leaves = 0;
  std::uint32_t most_joins = 0;  ///< Of one member.
  bool rebuilt = false;          ///< Laid out anew.
};

/// The schedule of one epoch. Equal sequences of views give equal plans on every machine.
/// Methods but follow() are const and thread-safe.
class RowPlan {
 public:
  /// The first view: a ring plan. `members` are keys, ascending; everything else as
  /// RingPlan::replan() with multicast fan-out, errors included.
  static Result<RowPlan> make(std::uint32_t p, std::uint32_t k_bound,
                              std::span<const std::uint32_t> members, std::span<const Kbps> tx_kbps,
                              std::span<const Kbps> rx_kbps);
  /// The next view. The rate is always the one that a new ring plan would have, and no larger share
  /// of the sender-rounds stays below p. On an error the plan stays as it was. About n p k steps;
  /// each member that a row lacks may cost a search over all slots.
  Result<RowChange> follow(std::uint32_t p, std::uint32_t k_bound,
                           std::span<const std::uint32_t> members, std::span<const Kbps> tx_kbps,
                           std::span<const Kbps> rx_kbps);

  /// Up to this many members layouts are edited; above it every new view is laid out anew.
  static constexpr std::uint32_t kMostEdited = 2048;

  std::uint32_t members() const noexcept { return ring_.members(); }
  const RateFraction& rate() const noexcept { return ring_.rate(); }
  const RateFraction& rate_without_bound() const noexcept { return ring_.rate_without_bound(); }
  /// Rounds after which the schedule repeats and every pair that can be served was served. Without
  /// a bound, an edited layout may take a quarter longer than a new one.
  std::uint32_t period() const noexcept { return period_; }
  bool edited() const noexcept { return edited_; }
  /// Sender-rounds of one period that stay at p-1 receivers.
  std::uint32_t senders_below_p() const;
  /// Most rows that each member hears in a round.
  std::span<const std::uint32_t> slots() const noexcept { return ring_.slots(); }
  /// Group of each ring position, and the groups a member joins, ascending.
  std::span<const std::uint32_t> groups() const noexcept { return layout_.groups; }
  std::vector<std::uint32_t> groups_of(std::uint32_t member) const;

  /// As RingPlan::round_of(), with `row` = the ring position. Of an edited layout, rows have at
  /// least p members, but not evenly many.
  RingRound round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const;
  /// The (sender, receiver) patches of one round: a maximum matching.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> patches_of(std::uint64_t round) const;
  /// As RingPlan::edges_of().
  std::vector<std::vector<std::uint32_t>> edges_of(std::uint64_t round) const;

 private:
  explicit RowPlan(RingPlan ring) : ring_(std::move(ring)) {}
  /// Takes the layout before over by edits; false when that does not lead to a schedule.
  bool edit_from(const RowLayout& before, std::span<const std::uint32_t> leaving,
                 std::uint32_t joining, const std::vector<std::uint32_t>& order,
                 std::uint32_t k_bound);
  void index_rows();
  std::uint32_t shift_of(std::uint64_t round) const noexcept;
  std::uint32_t row_of(std::uint32_t member, std::uint64_t round) const noexcept;
  /// Of an edited layout: members that hear the row that they send to, ascending.
  std::vector<std::uint32_t> in_own_rows(std::uint64_t round) const;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> patches_among(
      std::span<const std::uint32_t> self, std::uint64_t round) const;

  RingPlan ring_;  ///< Rate and slots; the schedule too unless edited.
  std::vector<std::uint32_t> members_;
  RowLayout layout_;
  bool edited_ = false;
  std::uint32_t p_ = 0, step_ = 1, period_ = 1;
  std::vector<std::vector<std::uint32_t>> row_members_, column_rows_;  ///< Of an edited layout.
};

}  // namespace selmcast
