#include <algorithm>
#include <numeric>

#include "plan/select/row_plan.h"

namespace selmcast {

bool RowLayout::hears(std::uint32_t column, std::uint32_t row) const noexcept {
  if ((row + size() - first[column]) % size() < width[column]) return true;
  return std::binary_search(extra[column].begin(), extra[column].end(), row);
}

std::uint32_t RowLayout::load(std::uint32_t column) const noexcept {
  return width[column] + static_cast<std::uint32_t>(extra[column].size());
}

std::vector<std::uint32_t> RowLayout::rows_of(std::uint32_t column) const {
  std::vector<std::uint32_t> out(extra[column]);
  for (std::uint32_t o = 0; o < width[column]; ++o) out.push_back((first[column] + o) % size());
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

/// A layout while it is being edited.
class Editor {
 public:
  Editor(RowLayout& layout, const RowDemand& demand) : layout_(layout), demand_(demand) {}

  void take_out(std::span<const std::uint32_t> leaving) {
    for (auto at = leaving.size(); at-- > 0;) {
      const auto column = static_cast<std::ptrdiff_t>(leaving[at]);
      // The row where the column began: those that end there move on by one and close the gap.
      remove_row(layout_.first[leaving[at]]);
      layout_.first.erase(layout_.first.begin() + column);
      layout_.width.erase(layout_.width.begin() + column);
      layout_.extra.erase(layout_.extra.begin() + column);
    }
  }

  void append(std::uint32_t joining) {
    for (std::uint32_t added = 0; added < joining; ++added) {
      std::uint32_t group = 0;  // The lowest that is free: ranks must agree on it.
      while (std::count(layout_.groups.begin(), layout_.groups.end(), group) > 0) ++group;
      layout_.groups.push_back(group);
      layout_.first.push_back(0);
      layout_.width.push_back(0);
      layout_.extra.emplace_back();
    }
  }

  bool satisfy() {
    count_rows();
    for (std::uint32_t j = 0; j < columns(); ++j) {
      trim(j);
      if (!widen(j)) return false;
    }
    for (std::uint32_t x = 0; x < layout_.size(); ++x) {
      while (members_[x] < demand_.p) {
        if (!take_free(x) && !take_spare(x)) return false;
      }
    }
    for (std::uint32_t j = 0; j < columns(); ++j) {
      while (free(j) > 0) extend(j);
    }
    return true;
  }

 private:
  std::uint32_t columns() const { return static_cast<std::uint32_t>(layout_.first.size()); }
  std::uint32_t free(std::uint32_t j) const { return demand_.slots[j] - layout_.load(j); }
  std::uint32_t end_of(std::uint32_t j) const {
    return (layout_.first[j] + layout_.width[j]) % layout_.size();
  }

  void count_rows() {
    members_.assign(layout_.size(), 0);
    for (std::uint32_t j = 0; j < columns(); ++j) {
      for (const auto x : layout_.rows_of(j)) ++members_[x];
    }
  }

  void remove_row(std::uint32_t row) {
    const auto n = layout_.size();
    for (std::uint32_t j = 0; j < columns(); ++j) {
      if ((row + n - layout_.first[j]) % n < layout_.width[j]) --layout_.width[j];
      if (layout_.first[j] > row) --layout_.first[j];
      if (layout_.first[j] == n - 1) layout_.first[j] = 0;
      auto& extra = layout_.extra[j];
      std::erase(extra, row);
      for (auto& x : extra) x -= x > row ? 1 : 0;
    }
    layout_.groups.erase(layout_.groups.begin() + static_cast<std::ptrdiff_t>(row));
  }

  /// Gives up what a column has too much: extras in full rows first, then the end of the interval.
  void trim(std::uint32_t j) {
    auto& extra = layout_.extra[j];
    while (layout_.load(j) > demand_.slots[j]) {
      if (extra.empty()) {
        --layout_.width[j];
        --members_[end_of(j)];
        continue;
      }
      const auto fullest = std::max_element(
          extra.begin(), extra.end(),
          [this](std::uint32_t a, std::uint32_t b) { return members_[a] < members_[b]; });
      --members_[*fullest];
      extra.erase(fullest);
    }
  }

  /// Brings the interval to the least width.
  bool widen(std::uint32_t j) {
    if (demand_.slots[j] == 0) return true;
    if (demand_.slots[j] < demand_.least_width) return false;
    if (layout_.width[j] == 0) layout_.first[j] = emptiest_stretch();
    while (layout_.width[j] < demand_.least_width) {
      if (free(j) == 0 && !layout_.hears(j, end_of(j))) {
        --members_[layout_.extra[j].back()];
        layout_.extra[j].pop_back();
      }
      extend(j);
    }
    return true;
  }

  /// Where `least_width` rows together have the fewest members.
  std::uint32_t emptiest_stretch() const {
    const auto n = layout_.size();
    std::uint64_t sum = 0;
    for (std::uint32_t x = 0; x < demand_.least_width; ++x) sum += members_[x % n];
    auto best = sum;
    std::uint32_t where = 0;
    for (std::uint32_t x = 1; x < n; ++x) {
      sum += members_[(x + demand_.least_width - 1) % n];
      sum -= members_[x - 1];
      if (sum >= best) continue;
      best = sum;
      where = x;
    }
    return where;
  }

  /// Moves the end of an interval by one row; an extra that lies there becomes part of it.
  void extend(std::uint32_t j) {
    const auto row = end_of(j);
    auto& extra = layout_.extra[j];
    const auto at = std::lower_bound(extra.begin(), extra.end(), row);
    ++layout_.width[j];
    if (at != extra.end() && *at == row) {
      extra.erase(at);
    } else {
      ++members_[row];
    }
  }

  void add_extra(std::uint32_t j, std::uint32_t row) {
    auto& extra = layout_.extra[j];
    extra.insert(std::lower_bound(extra.begin(), extra.end(), row), row);
    ++members_[row];
  }

  /// The column with a free slot that a row would take: best one whose interval ends there, else
  /// the one with the most free slots; columns() when there is none.
  std::uint32_t free_column(std::uint32_t row) const {
    auto best = columns();
    for (std::uint32_t j = 0; j < columns(); ++j) {
      if (free(j) == 0 || layout_.hears(j, row)) continue;
      if (end_of(j) == row) return j;
      if (best == columns() || free(j) > free(best)) best = j;
    }
    return best;
  }

  bool take_free(std::uint32_t row) {
    const auto j = free_column(row);
    if (j == columns()) return false;
    if (end_of(j) == row) {
      extend(j);
    } else {
      add_extra(j, row);
    }
    return true;
  }

  /// The rows that a column could leave.
  template <class Visit>
  void each_loose(std::uint32_t j, const Visit& visit) const {
    for (const auto x : layout_.extra[j]) visit(x);
    const auto last = (end_of(j) + layout_.size() - 1) % layout_.size();
    if (layout_.width[j] <= demand_.least_width) return;
    visit(last);
    visit(layout_.first[j]);
  }

  void move(std::uint32_t j, std::uint32_t from, std::uint32_t to) {
    auto& extra = layout_.extra[j];
    const auto at = std::lower_bound(extra.begin(), extra.end(), from);
    if (at != extra.end() && *at == from) {
      extra.erase(at);
    } else {
      if (from == layout_.first[j]) layout_.first[j] = (from + 1) % layout_.size();
      --layout_.width[j];
    }
    --members_[from];
    add_extra(j, to);
  }

  /// A member for a row by a chain of moves, breadth first, each column once: its last row has a
  /// member to spare, or gets one from a column with a free slot.
  bool take_spare(std::uint32_t start) {
    constexpr auto kNowhere = 0xFFFFFFFFU;
    const auto n = layout_.size();
    struct Step {
      std::uint32_t column = kNowhere, to = kNowhere;
    };
    std::vector<Step> step(n);  // How a member could leave each row.
    std::vector<bool> used(columns());
    std::vector<std::uint32_t> queue{start};
    auto spare = kNowhere;
    for (std::size_t at = 0; at < queue.size() && spare == kNowhere; ++at) {
      const auto to = queue[at];
      for (std::uint32_t j = 0; j < columns() && spare == kNowhere; ++j) {
        if (used[j] || demand_.slots[j] == 0 || layout_.hears(j, to)) continue;
        used[j] = true;
        each_loose(j, [&](std::uint32_t from) {
          if (spare != kNowhere || from == start || step[from].column != kNowhere) return;
          step[from] = {j, to};
          queue.push_back(from);
          if (members_[from] > demand_.p || can_be_filled(from, used)) spare = from;
        });
      }
    }
    if (spare == kNowhere) return false;
    const bool fill = members_[spare] <= demand_.p;
    for (auto from = spare; from != start; from = step[from].to) {
      move(step[from].column, from, step[from].to);
    }
    return !fill || take_free(spare);
  }

  bool can_be_filled(std::uint32_t row, const std::vector<bool>& used) const {
    const auto j = free_column(row);
    return j != columns() && !used[j];
  }

  RowLayout& layout_;
  const RowDemand& demand_;
  std::vector<std::uint32_t> members_;  ///< Of each row.
};

}  // namespace

bool edit_layout(RowLayout& layout, std::span<const std::uint32_t> leaving, std::uint32_t joining,
                 const RowDemand& demand) {
  Editor editor(layout, demand);
  editor.take_out(leaving);
  editor.append(joining);
  return editor.satisfy();
}

}  // namespace selmcast
