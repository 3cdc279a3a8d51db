// Independent answers to selection problems: exhaustive search and plain augmenting paths.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "plan/select/selection.h"

namespace selmcast::reference {

/// Fractions of small numbers, compared without the library.
struct Ratio {
  std::uint64_t num = 0, den = 1;
  friend bool operator<(const Ratio& a, const Ratio& b) { return a.num * b.den < b.num * a.den; }
  friend bool operator==(const Ratio& a, const Ratio& b) { return a.num * b.den == b.num * a.den; }
};
inline Ratio ratio(const RateFraction& y) {
  return {y.num, y.den};
}

/// A directed graph without loops as receiver lists.
using Graph = std::vector<std::vector<Rank>>;

inline Graph graph_of(std::uint32_t n, std::uint32_t mask) {
  Graph graph(n);
  for (Rank i = 0; i < n; ++i) {
    for (Rank j = 0; j < n; ++j) {
      if (i == j) continue;
      if ((mask & 1U) != 0) graph[i].push_back(j);
      mask >>= 1U;
    }
  }
  return graph;
}

inline std::vector<std::uint32_t> in_degrees(const Graph& graph) {
  std::vector<std::uint32_t> in(graph.size());
  for (const auto& receivers : graph) {
    for (const auto j : receivers) ++in[j];
  }
  return in;
}

inline bool contains(const std::vector<Rank>& list, Rank value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// p, forced and forbidden pairs and receivers without rate; not the rate.
inline bool admissible(const SelectionProblem& problem, const Graph& graph) {
  for (std::size_t i = 0; i < graph.size(); ++i) {
    if (graph[i].size() < problem.p[i]) return false;
    for (const auto j : graph[i]) {
      if (problem.rx_kbps[j] == 0 || j == i) return false;
    }
  }
  const auto has = [&](const auto& pair) { return contains(graph[pair.first], pair.second); };
  return std::all_of(problem.forced.begin(), problem.forced.end(), has) &&
         std::none_of(problem.forbidden.begin(), problem.forbidden.end(), has);
}

/// The best common rate of a graph, also bounded by the floor on slots.
inline Ratio rate_of(const SelectionProblem& problem, const Graph& graph) {
  Ratio best{~std::uint64_t{0} >> 20U, 1};
  const auto n = graph.size();
  const auto in = in_degrees(graph);
  for (std::size_t r = 0; r < n; ++r) {
    const auto copies = problem.fanout == Fanout::unicast
                            ? graph[r].size()
                            : std::min<std::size_t>(graph[r].size(), 1);
    if (copies > 0) best = std::min(best, Ratio{problem.tx_kbps[r], copies});
    if (in[r] > 0) best = std::min(best, Ratio{problem.rx_kbps[r], in[r]});
    if (problem.k > 0 && problem.rx_kbps[r] > 0) {
      best = std::min(best, Ratio{problem.rx_kbps[r], (n - 1 + problem.k - 1) / problem.k});
    }
  }
  return best;
}

inline std::vector<std::size_t> sorted_degrees(const Graph& graph) {
  std::vector<std::size_t> out;
  for (const auto& receivers : graph) out.push_back(receivers.size());
  std::sort(out.begin(), out.end());
  return out;
}

inline std::uint64_t total(const Graph& graph) {
  std::uint64_t out = 0;
  for (const auto& receivers : graph) out += receivers.size();
  return out;
}

inline std::uint64_t total_age(const SelectionProblem& problem, const Graph& graph) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < graph.size() && !problem.age.empty(); ++i) {
    for (const auto j : graph[i]) out += problem.age[i][j];
  }
  return out;
}

/// Most pairs with at most out[i] per sender and slots[j] per receiver (augmenting paths, depth
/// first), with the problem's forced pairs in place and its forbidden ones left out.
class MaximumPairs {
 public:
  MaximumPairs(std::vector<std::uint32_t> slots, const SelectionProblem& problem)
      : n_(slots.size()), free_(std::move(slots)), used_(n_ * n_), banned_(n_ * n_), degree_(n_) {
    for (std::size_t i = 0; i < n_; ++i) banned_[i * n_ + i] = true;
    for (const auto& [i, j] : problem.forbidden) banned_[i * n_ + j] = true;
    for (const auto& [i, j] : problem.forced) {
      if (banned_[i * n_ + j]) continue;
      banned_[i * n_ + j] = true;
      if (free_[j] == 0) overfull_ = true;
      if (free_[j] > 0) --free_[j];
      ++degree_[i];
    }
  }
  /// Pairs in total, or 0 when the forced pairs alone do not fit.
  std::uint64_t run(const std::vector<std::uint32_t>& out) {
    if (overfull_) return 0;
    std::uint64_t pairs = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      while (degree_[i] < out[i]) {
        std::vector<bool> seen(n_);
        if (!augment(i, seen)) break;
        ++degree_[i];
      }
      pairs += degree_[i];
    }
    return pairs;
  }

 private:
  bool augment(std::size_t i, std::vector<bool>& seen) {
    for (std::size_t j = 0; j < n_; ++j) {
      if (seen[j] || banned_[i * n_ + j] || used_[i * n_ + j]) continue;
      seen[j] = true;
      if (free_[j] > 0) {
        --free_[j];
        used_[i * n_ + j] = true;
        return true;
      }
      for (std::size_t other = 0; other < n_; ++other) {
        if (!used_[other * n_ + j] || !augment(other, seen)) continue;
        used_[other * n_ + j] = false;
        used_[i * n_ + j] = true;
        return true;
      }
    }
    return false;
  }
  std::size_t n_;
  std::vector<std::uint32_t> free_;
  std::vector<bool> used_, banned_;
  std::vector<std::uint32_t> degree_;
  bool overfull_ = false;
};

inline std::vector<std::uint32_t> slots(const std::vector<Kbps>& rx, const Ratio& y) {
  std::vector<std::uint32_t> out;
  for (const auto d : rx) {
    out.push_back(
        static_cast<std::uint32_t>(std::min<std::uint64_t>(d * y.den / y.num, rx.size() - 1)));
  }
  return out;
}

/// The (n*p)-th largest of all quotients rx[j]/c, 1 <= c < n.
inline Ratio d_hondt(const std::vector<Kbps>& rx, std::uint64_t seats) {
  std::vector<Ratio> quotients;
  for (const auto d : rx) {
    for (std::uint64_t c = 1; c < rx.size(); ++c) quotients.push_back({d, c});
  }
  std::sort(quotients.begin(), quotients.end(),
            [](const Ratio& a, const Ratio& b) { return b < a; });
  return quotients.at(seats - 1);
}

/// Most pairs (q, g) of 0..size-1, each number at most once on either side, with may(q, g): plain
/// augmenting paths.
template <class May>
std::size_t largest_matching(std::size_t size, const May& may) {
  std::vector<std::size_t> taken_by(size, size);
  std::vector<bool> seen;
  const auto augment = [&](const auto& self, std::size_t q) -> bool {
    for (std::size_t g = 0; g < size; ++g) {
      if (seen[g] || !may(q, g)) continue;
      seen[g] = true;
      if (taken_by[g] < size && !self(self, taken_by[g])) continue;
      taken_by[g] = q;
      return true;
    }
    return false;
  };
  std::size_t pairs = 0;
  for (std::size_t q = 0; q < size; ++q) {
    seen.assign(size, false);
    pairs += augment(augment, q) ? 1 : 0;
  }
  return pairs;
}

}  // namespace selmcast::reference
