#include <algorithm>
#include <numeric>

#include "sync/select/explicit.h"
#include "sync/select/feasible.h"
#include "sync/select/rate.h"

namespace selmcast {
namespace {

/// Algorithm 1: senders with many forced receivers first; each takes the receivers whose load per
/// rate would be least.
void basic_selection(const SelectionProblem& problem,
                     const std::vector<std::vector<Rank>>& forbidden, Selection& selection,
                     std::vector<std::uint32_t>& load) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  std::vector<std::uint32_t> senders(n);
  std::iota(senders.begin(), senders.end(), 0U);
  std::stable_sort(senders.begin(), senders.end(), [&](Rank a, Rank b) {
    return selection.receivers[a].size() > selection.receivers[b].size();
  });
  for (const auto i : senders) {
    auto& chosen = selection.receivers[i];
    if (chosen.size() >= problem.p[i]) continue;
    auto open = open_receivers(problem, i, chosen, forbidden[i]);
    std::stable_sort(open.begin(), open.end(), [&](Rank a, Rank b) {
      return multiply(load[a] + 1, problem.rx_kbps[b]) < multiply(load[b] + 1, problem.rx_kbps[a]);
    });
    open.resize(problem.p[i] - chosen.size());
    for (const auto j : open) ++load[j];
    chosen.insert(chosen.end(), open.begin(), open.end());
    std::sort(chosen.begin(), chosen.end());
  }
}

/// Algorithm 2: adds pairs, oldest first, as long as the common rate stays.
void pareto_improvement(const SelectionProblem& problem,
                        const std::vector<std::vector<Rank>>& forbidden, Selection& selection,
                        std::vector<std::uint32_t>& load) {
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  struct Pair {
    Rank sender, receiver;
    std::uint32_t age;
  };
  std::vector<Pair> open;
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto& chosen = selection.receivers[i];
    for (const auto j : open_receivers(problem, i, chosen, forbidden[i])) {
      open.push_back({i, j, problem.age.empty() ? 0 : problem.age[i][j]});
    }
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Pair& a, const Pair& b) { return a.age > b.age; });
  for (const auto& [i, j, age] : open) {
    auto& chosen = selection.receivers[i];
    const auto copies =
        problem.fanout == Fanout::unicast ? static_cast<std::uint32_t>(chosen.size()) + 1 : 1;
    if (compare(problem.tx_kbps[i], copies, selection.rate) < 0) continue;
    if (compare(problem.rx_kbps[j], load[j] + 1, selection.rate) < 0) continue;
    ++load[j];
    chosen.insert(std::lower_bound(chosen.begin(), chosen.end(), j), j);
  }
}

}  // namespace

Result<Selection> select_published(const SelectionProblem& problem) {
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();
  Selection out;
  out.receivers = by_sender(problem.forced, problem.p.size());
  const auto forbidden = by_sender(problem.forbidden, problem.p.size());
  std::vector<std::uint32_t> load(problem.p.size());
  for (const auto& receivers : out.receivers) {
    for (const auto j : receivers) ++load[j];
  }
  basic_selection(problem, forbidden, out, load);
  SELMCAST_CHECK(rate_of(problem, out).has_value(), "receivers without rate were left out");
  pareto_improvement(problem, forbidden, out, load);
  SELMCAST_CHECK(rate_of(problem, out).has_value(), "the rate stayed");
  return out;
}

}  // namespace selmcast
