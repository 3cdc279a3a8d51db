#include "plan/select/row_plan.h"

#include <algorithm>

#include "plan/select/rate.h"

namespace selmcast {
namespace {

constexpr auto kNone = PatchMatching::kNone;

/// The intervals of a new ring plan, on the given groups.
RowLayout layout_of(const RingPlan& ring, std::vector<std::uint32_t> groups) {
  RowLayout out;
  out.groups = std::move(groups);
  out.extra.resize(ring.members());
  for (std::uint32_t j = 0; j < ring.members(); ++j) {
    out.first.push_back(ring.first_row(j));
    out.width.push_back(ring.slots()[j]);
  }
  return out;
}

std::vector<std::uint32_t> joined_groups(const RowLayout& layout, std::uint32_t column) {
  auto out = layout.rows_of(column);
  for (auto& x : out) x = layout.groups[x];
  std::sort(out.begin(), out.end());
  return out;
}

struct Members {
  std::vector<std::uint32_t> leaving;  ///< Old indices.
  std::vector<std::uint32_t> order;  ///< Of those that stay, then of those that join: new indices.
  std::uint32_t joining = 0;
};
Members compare_members(std::span<const std::uint32_t> before, std::span<const std::uint32_t> now) {
  Members out;
  for (std::uint32_t m = 0; m < before.size(); ++m) {
    const auto at = std::lower_bound(now.begin(), now.end(), before[m]);
    if (at != now.end() && *at == before[m]) {
      out.order.push_back(static_cast<std::uint32_t>(at - now.begin()));
    } else {
      out.leaving.push_back(m);
    }
  }
  for (std::uint32_t m = 0; m < now.size(); ++m) {
    if (std::binary_search(before.begin(), before.end(), now[m])) continue;
    out.order.push_back(m);
    ++out.joining;
  }
  return out;
}

RowChange count_change(const RowLayout& before, std::span<const std::uint32_t> members_before,
                       const RowLayout& now, std::span<const std::uint32_t> members_now) {
  RowChange out;
  for (std::uint32_t m = 0; m < members_now.size(); ++m) {
    const auto has = joined_groups(now, m);
    std::vector<std::uint32_t> had, gained;
    const auto at = std::lower_bound(members_before.begin(), members_before.end(), members_now[m]);
    if (at != members_before.end() && *at == members_now[m]) {
      had = joined_groups(before, static_cast<std::uint32_t>(at - members_before.begin()));
    }
    std::set_difference(has.begin(), has.end(), had.begin(), had.end(), std::back_inserter(gained));
    const auto joins = static_cast<std::uint32_t>(gained.size());
    out.joins += joins;
    out.most_joins = std::max(out.most_joins, joins);
    out.leaves += static_cast<std::uint32_t>(had.size() + joins - has.size());
  }
  return out;
}

/// Columns from "stayers, then joiners" into the order of the members.
void reorder(RowLayout& layout, const std::vector<std::uint32_t>& order) {
  const auto old = layout;
  for (std::uint32_t at = 0; at < order.size(); ++at) {
    layout.first[order[at]] = old.first[at];
    layout.width[order[at]] = old.width[at];
    layout.extra[order[at]] = old.extra[at];
  }
}

/// Groups for a new ring plan of equal slots: those there are, without the rows in which the
/// leaving columns began. Equal columns follow each other around the ring, so most members keep
/// theirs.
std::vector<std::uint32_t> groups_for(const RowLayout& layout,
                                      std::span<const std::uint32_t> leaving, std::uint32_t n) {
  auto groups = layout.groups;
  for (const auto column : leaving) {
    std::erase(groups, layout.groups[layout.first[column]]);
  }
  for (std::uint32_t group = 0; groups.size() < n; ++group) {
    if (std::count(groups.begin(), groups.end(), group) == 0) groups.push_back(group);
  }
  groups.resize(n);
  return groups;
}

/// Groups that the layout before does not use: nobody can hear two epochs on one of them.
std::vector<std::uint32_t> unused_groups(const RowLayout& layout, std::uint32_t n) {
  auto used = layout.groups;
  std::sort(used.begin(), used.end());
  std::vector<std::uint32_t> out;
  for (std::uint32_t group = 0; out.size() < n; ++group) {
    if (!std::binary_search(used.begin(), used.end(), group)) out.push_back(group);
  }
  return out;
}

}  // namespace

Result<RowPlan> RowPlan::make(std::uint32_t p, std::uint32_t k_bound,
                              std::span<const std::uint32_t> members, std::span<const Kbps> tx_kbps,
                              std::span<const Kbps> rx_kbps) {
  auto ring = RingPlan::make(p, tx_kbps, rx_kbps, k_bound);
  if (!ring) return std::move(ring).error();
  RowPlan out(std::move(ring).value());
  out.p_ = p;
  out.members_.assign(members.begin(), members.end());
  out.layout_ = layout_of(out.ring_, groups_for({}, {}, out.ring_.members()));
  out.period_ = out.ring_.period();
  return out;
}

Result<RowChange> RowPlan::follow(std::uint32_t p, std::uint32_t k_bound,
                                  std::span<const std::uint32_t> members,
                                  std::span<const Kbps> tx_kbps, std::span<const Kbps> rx_kbps) {
  auto planned = RingPlan::make(p, tx_kbps, rx_kbps, k_bound);
  if (!planned) return std::move(planned).error();
  RowPlan fresh(std::move(planned).value());
  const auto n = fresh.members();
  const bool equal = fresh.ring_.equal_slots();
  const auto difference = compare_members(members_, members);
  fresh.p_ = p;
  fresh.members_.assign(members.begin(), members.end());
  fresh.layout_ = layout_of(
      fresh.ring_, equal ? groups_for(layout_, difference.leaving, n) : unused_groups(layout_, n));
  fresh.period_ = fresh.ring_.period();
  auto change = count_change(layout_, members_, fresh.layout_, members);
  change.rebuilt = true;

  // With equal slots nobody is in its own row of a new ring plan, and most groups stay anyway.
  if (!equal && n <= kMostEdited && difference.leaving.size() < members_.size()) {
    auto edited = fresh;
    if (edited.edit_from(layout_, difference.leaving, difference.joining, difference.order,
                         k_bound)) {
      const auto edit = count_change(layout_, members_, edited.layout_, members);
      // Staying must not cost any sender its p-th receiver.
      const bool as_full = std::uint64_t{edited.senders_below_p()} * fresh.period_ <=
                           std::uint64_t{fresh.senders_below_p()} * edited.period_;
      if (as_full && edit.joins + edit.leaves < change.joins + change.leaves) {
        *this = std::move(edited);
        return edit;
      }
    }
  }
  *this = std::move(fresh);
  return change;
}

bool RowPlan::edit_from(const RowLayout& before, std::span<const std::uint32_t> leaving,
                        std::uint32_t joining, const std::vector<std::uint32_t>& order,
                        std::uint32_t k_bound) {
  // A new ring plan may need one round more or less; a quarter more is the price of staying.
  const auto most = k_bound > 0 ? k_bound : period_ + period_ / 4;
  std::vector<std::uint32_t> slots(members());
  for (std::uint32_t at = 0; at < members(); ++at) slots[at] = ring_.slots()[order[at]];
  auto layout = before;
  if (!edit_layout(layout, leaving, joining, {p_, slots, ceil_div(members(), most)})) return false;
  reorder(layout, order);
  layout_ = std::move(layout);
  edited_ = true;
  index_rows();
  return true;
}

std::uint32_t RowPlan::senders_below_p() const {
  if (!edited_) return ring_.senders_below_p();
  // Rows have p members, so only a sender in its own row can lack one.
  std::uint32_t out = 0;
  for (std::uint32_t t = 0; t < period_; ++t) {
    const auto self = in_own_rows(t);
    for (const auto h : self) out += row_members_[row_of(h, t)].size() <= p_ ? 1 : 0;
    for (const auto& [from, to] : patches_among(self, t)) {
      out -= row_members_[row_of(from, t)].size() <= p_ ? 1 : 0;
    }
  }
  return out;
}

void RowPlan::index_rows() {
  const auto n = members();
  step_ = n;
  row_members_.resize(n);
  for (std::uint32_t j = 0; j < n; ++j) {
    if (layout_.width[j] > 0) step_ = std::min(step_, layout_.width[j]);
    column_rows_.push_back(layout_.rows_of(j));
    for (const auto x : column_rows_.back()) row_members_[x].push_back(j);
  }
  period_ = ceil_div(n, step_);
}

std::vector<std::uint32_t> RowPlan::groups_of(std::uint32_t member) const {
  return joined_groups(layout_, member);
}

std::uint32_t RowPlan::shift_of(std::uint64_t round) const noexcept {
  return static_cast<std::uint32_t>((round % period_) * step_ % members());
}

std::uint32_t RowPlan::row_of(std::uint32_t member, std::uint64_t round) const noexcept {
  return (member + members() - shift_of(round)) % members();
}

std::vector<std::uint32_t> RowPlan::in_own_rows(std::uint64_t round) const {
  std::vector<std::uint32_t> out;
  auto row = row_of(0, round);
  for (std::uint32_t h = 0; h < members(); ++h) {
    if (layout_.hears(h, row)) out.push_back(h);
    row = row + 1 == members() ? 0 : row + 1;
  }
  return out;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> RowPlan::patches_of(
    std::uint64_t round) const {
  return edited_ ? patches_among(in_own_rows(round), round) : ring_.patches_of(round);
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> RowPlan::patches_among(
    std::span<const std::uint32_t> self, std::uint64_t round) const {
  // Kuhn's augmenting paths, breadth first; extras make the graph no longer one of arcs.
  const auto z = static_cast<std::uint32_t>(self.size());
  std::vector<std::uint32_t> sender_of(z, kNone), receiver_of(z, kNone);
  for (std::uint32_t q = 0; q < z; ++q) {
    if (!ring_.can_patch(self[q])) continue;
    std::vector<std::uint32_t> reached_from(z, kNone), queue{q};
    auto open = kNone;
    for (std::size_t at = 0; at < queue.size() && open == kNone; ++at) {
      const auto row = row_of(self[queue[at]], round);
      for (std::uint32_t turn = 0; turn < z && open == kNone; ++turn) {
        const auto g = (queue[at] + z / 2 + turn) % z;
        if (reached_from[g] != kNone || layout_.hears(self[g], row)) continue;
        reached_from[g] = queue[at];
        if (sender_of[g] == kNone) {
          open = g;
        } else {
          queue.push_back(sender_of[g]);
        }
      }
    }
    while (open != kNone) {
      const auto sender = reached_from[open];
      sender_of[open] = sender;
      std::swap(receiver_of[sender], open);
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  for (std::uint32_t q = 0; q < z; ++q) {
    if (receiver_of[q] != kNone) out.emplace_back(self[q], self[receiver_of[q]]);
  }
  return out;
}

RingRound RowPlan::round_of(std::uint32_t member, std::uint64_t round, RingWork& work) const {
  if (!edited_) return ring_.round_of(member, round, work);
  const auto n = members();
  const auto shift = shift_of(round);
  RingRound out;
  out.row = (member + n - shift) % n;
  auto& receivers = work.listed_receivers_;
  auto& senders = work.listed_senders_;
  receivers.clear();
  senders.clear();
  for (const auto j : row_members_[out.row]) {
    if (j != member) receivers.push_back(j);
  }
  for (const auto x : column_rows_[member]) {
    if (const auto i = (x + shift) % n; i != member) senders.push_back(i);
  }
  if (layout_.hears(member, out.row)) {
    for (const auto& [from, to] : patches_of(round)) {
      if (from == member) out.patch = to;
      if (to == member) senders.push_back(from);
    }
  }
  std::sort(senders.begin(), senders.end());
  out.receivers = receivers;
  out.senders = senders;
  out.below_p = receivers.size() + (out.patch ? 1 : 0) < p_;
  return out;
}

std::vector<std::vector<std::uint32_t>> RowPlan::edges_of(std::uint64_t round) const {
  if (!edited_) return ring_.edges_of(round);
  const auto n = members();
  const auto shift = shift_of(round);
  std::vector<std::vector<std::uint32_t>> out(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (const auto j : row_members_[(i + n - shift) % n]) {
      if (j != i) out[i].push_back(j);
    }
  }
  for (const auto& [from, to] : patches_of(round)) {
    out[from].insert(std::lower_bound(out[from].begin(), out[from].end(), to), to);
  }
  return out;
}

}  // namespace selmcast
