#include "plan/select/pair_flow.h"

#include <algorithm>
#include <compare>
#include <limits>
#include <numeric>

namespace selmcast {
namespace {

constexpr std::uint32_t kNoNode = 0xFFFFFFFFU;

/// Shortest augmenting paths from one sender to a receiver with a free slot, with potentials that
/// keep all reduced costs non-negative. Nodes: senders 0..n-1, receivers n..2n-1, the sink 2n.
class ShortestPaths {
 public:
  explicit ShortestPaths(std::uint32_t n)
      : n_(n), potential_(2 * n + 1), distance_(2 * n + 1), parent_(2 * n + 1), done_(2 * n + 1) {}

  std::uint32_t sink() const noexcept { return 2 * n_; }
  std::uint32_t parent(std::uint32_t node) const noexcept { return parent_[node]; }

  /// Dense Dijkstra; `arcs(node, relax)` calls relax(to, cost) for each residual arc. Returns
  /// whether the sink was reached and moves the potentials.
  template <class Arcs>
  bool search(std::uint32_t source, const Arcs& arcs) {
    std::fill(distance_.begin(), distance_.end(), kFar);
    std::fill(done_.begin(), done_.end(), false);
    distance_[source] = 0;
    while (!done_[sink()]) {
      auto node = kNoNode;
      for (std::uint32_t v = 0; v <= sink(); ++v) {
        if (!done_[v] && distance_[v] < kFar &&
            (node == kNoNode || distance_[v] < distance_[node])) {
          node = v;
        }
      }
      if (node == kNoNode) return false;
      done_[node] = true;
      arcs(node, [&](std::uint32_t to, std::int64_t cost) {
        const auto through = distance_[node] + cost + potential_[node] - potential_[to];
        if (through >= distance_[to]) return;
        distance_[to] = through;
        parent_[to] = node;
      });
    }
    for (std::uint32_t v = 0; v <= sink(); ++v) {
      potential_[v] += std::min(distance_[v], distance_[sink()]);
    }
    return true;
  }

 private:
  static constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;
  std::uint32_t n_;
  std::vector<std::int64_t> potential_, distance_;
  std::vector<std::uint32_t> parent_;
  std::vector<bool> done_;
};

}  // namespace

PairFlow::PairFlow(std::vector<std::uint32_t> slots, const std::vector<std::vector<Rank>>& forced,
                   const std::vector<std::vector<Rank>>& forbidden)
    : n_(static_cast<std::uint32_t>(slots.size())),
      pairs_(slots.size() * slots.size(), Pair::unused),
      free_(std::move(slots)),
      degree_(free_.size()) {
  for (std::uint32_t i = 0; i < n_; ++i) {
    at(i, i) = Pair::never;
    for (const auto j : forbidden[i]) at(i, j) = Pair::never;
    for (const auto j : forced[i]) {
      SELMCAST_CHECK(free_[j] > 0, "forced pairs fit the slots");
      use(i, j);
      at(i, j) = Pair::forced;
    }
  }
}

void PairFlow::use(std::uint32_t sender, std::uint32_t receiver) noexcept {
  at(sender, receiver) = Pair::used;
  ++degree_[sender];
  --free_[receiver];
}

bool PairFlow::fill(const std::vector<std::uint32_t>& demand,
                    const std::vector<std::vector<std::uint32_t>>& age) {
  const auto missing = [&](std::uint32_t i) { return demand[i] - std::min(demand[i], degree_[i]); };
  std::vector<std::uint32_t> left(n_);
  for (std::uint32_t i = 0; i < n_; ++i) left[i] = missing(i);
  /// Receivers in the order of preference; n is below 2^16.
  struct Open {
    std::uint64_t key;
    Rank receiver;
    auto operator<=>(const Open&) const = default;
  };
  std::vector<Open> open;
  for (std::uint32_t i = 0; i < n_; ++i) {
    open.clear();
    for (std::uint32_t j = 0; j < n_; ++j) {
      if (at(i, j) != Pair::unused || free_[j] == 0) continue;
      const auto waited = age.empty() ? 0 : age[i][j];
      open.push_back({std::uint64_t{n_ - free_[j]} << 48U | std::uint64_t{n_ - left[j]} << 32U |
                          static_cast<std::uint32_t>(~waited),
                      j});
    }
    const auto wanted = std::min<std::size_t>(left[i], open.size());
    std::nth_element(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(wanted), open.end());
    for (std::size_t r = 0; r < wanted; ++r) use(i, open[r].receiver);
    left[i] = 0;
  }
  std::vector<bool> tight(n_);
  for (std::uint32_t i = 0; i < n_; ++i) {
    while (missing(i) > 0) {
      if (!raise(i, tight)) return false;
    }
  }
  return true;
}

bool PairFlow::raise(std::uint32_t sender, std::vector<bool>& tight) {
  std::vector<std::uint32_t> reached_from(n_, kNoNode), handed_on(n_, kNoNode), queue{sender};
  std::vector<bool> seen(n_);
  seen[sender] = true;
  auto end = kNoNode;
  for (std::size_t q = 0; q < queue.size() && end == kNoNode; ++q) {
    const auto i = queue[q];
    for (std::uint32_t j = 0; j < n_; ++j) {
      if (reached_from[j] != kNoNode || at(i, j) != Pair::unused) continue;
      reached_from[j] = i;
      if (free_[j] > 0) {
        end = j;
        break;
      }
      for (std::uint32_t other = 0; other < n_; ++other) {
        if (seen[other] || at(other, j) != Pair::used) continue;
        seen[other] = true;
        handed_on[other] = j;  // `other` would give up receiver j.
        queue.push_back(other);
      }
    }
  }
  if (end == kNoNode) {
    for (const auto i : queue) tight[i] = true;
    return false;
  }
  --free_[end];
  ++degree_[sender];
  while (end != kNoNode) {
    const auto i = reached_from[end];
    at(i, end) = Pair::used;
    end = handed_on[i];
    if (end != kNoNode) at(i, end) = Pair::unused;
  }
  return true;
}

void PairFlow::prefer_oldest(const std::vector<std::vector<std::uint32_t>>& age) {
  std::uint32_t oldest = 0;
  for (const auto& row : age) oldest = std::max(oldest, *std::max_element(row.begin(), row.end()));
  std::vector<std::uint32_t> wanted(n_);
  for (std::uint32_t i = 0; i < n_; ++i) {
    for (std::uint32_t j = 0; j < n_; ++j) {
      if (at(i, j) != Pair::used) continue;
      at(i, j) = Pair::unused;
      ++wanted[i];
      ++free_[j];
    }
  }
  const auto cost = [&](std::uint32_t i, std::uint32_t j) {
    return std::int64_t{oldest} - std::int64_t{age[i][j]};
  };
  ShortestPaths paths(n_);
  const auto arcs = [&](std::uint32_t node, const auto& relax) {
    if (node < n_) {
      for (std::uint32_t j = 0; j < n_; ++j) {
        if (at(node, j) == Pair::unused) relax(n_ + j, cost(node, j));
      }
    } else if (node < paths.sink()) {
      const auto j = node - n_;
      for (std::uint32_t i = 0; i < n_; ++i) {
        if (at(i, j) == Pair::used) relax(i, -cost(i, j));
      }
      if (free_[j] > 0) relax(paths.sink(), 0);
    }
  };
  for (std::uint32_t i = 0; i < n_; ++i) {
    for (std::uint32_t unit = 0; unit < wanted[i]; ++unit) {
      SELMCAST_CHECK(paths.search(i, arcs), "the degrees were feasible before");
      auto receiver = paths.parent(paths.sink()) - n_;
      --free_[receiver];
      while (true) {
        const auto sender = paths.parent(n_ + receiver);
        at(sender, receiver) = Pair::used;
        if (sender == i) break;
        receiver = paths.parent(sender) - n_;
        at(sender, receiver) = Pair::unused;
      }
    }
  }
}

std::uint64_t PairFlow::free_slots() const noexcept {
  return std::accumulate(free_.begin(), free_.end(), std::uint64_t{0});
}

std::vector<std::vector<Rank>> PairFlow::receivers() const {
  std::vector<std::vector<Rank>> out(n_);
  for (std::uint32_t i = 0; i < n_; ++i) {
    for (std::uint32_t j = 0; j < n_; ++j) {
      if (at(i, j) == Pair::used || at(i, j) == Pair::forced) out[i].push_back(j);
    }
  }
  return out;
}

}  // namespace selmcast
