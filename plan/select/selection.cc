#include "plan/select/selection.h"

#include <algorithm>
#include <numeric>

#include "plan/select/explicit.h"
#include "plan/select/feasible.h"
#include "plan/select/rate.h"

namespace selmcast {
namespace {

Result<void> check_rates(const std::vector<Kbps>& rates, const char* field) {
  for (std::size_t r = 0; r < rates.size(); ++r) {
    if (rates[r] >= kRateLimit) {
      return bad_input(std::string(field) + "[" + std::to_string(r) + "] is " +
                       std::to_string(rates[r]) + "; rates stay below 2^53 kbit/s");
    }
  }
  return {};
}

Result<void> check_sizes(const SelectionProblem& problem) {
  const auto n = problem.p.size();
  if (n < 2 || n > kMaxMembers) {
    return bad_input("a selection needs 2 to " + std::to_string(kMaxMembers) + " ranks, not " +
                     std::to_string(n));
  }
  const auto wrong = [n](const char* field, std::size_t size) {
    return bad_input(std::string(field) + " has " + std::to_string(size) + " entries for " +
                     std::to_string(n) + " ranks");
  };
  if (problem.tx_kbps.size() != n) return wrong("tx_kbps", problem.tx_kbps.size());
  if (problem.rx_kbps.size() != n) return wrong("rx_kbps", problem.rx_kbps.size());
  if (problem.age.empty()) return {};
  if (problem.age.size() != n) return wrong("age", problem.age.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (problem.age[i].size() == n) continue;
    return wrong(("age[" + std::to_string(i) + "]").c_str(), problem.age[i].size());
  }
  return {};
}

using Pairs = std::vector<std::pair<Rank, Rank>>;

std::string where_in(const char* field, const Pairs& pairs, std::size_t at) {
  const auto [i, j] = pairs[at];
  return std::string(field) + "[" + std::to_string(at) + "] is [" + std::to_string(i) + "," +
         std::to_string(j) + "]";
}

Result<void> check_pairs(const char* field, const Pairs& pairs, std::size_t n) {
  for (std::size_t f = 0; f < pairs.size(); ++f) {
    const auto [i, j] = pairs[f];
    const auto where = where_in(field, pairs, f);
    if (i >= n || j >= n) {
      return bad_input(where + "; ranks are 0 to " + std::to_string(n - 1));
    }
    if (i == j) return bad_input(where + "; a rank does not send to itself");
  }
  return {};
}

Result<void> check_disjoint(const Pairs& forced, const Pairs& forbidden) {
  auto sorted = forced;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t f = 0; f < forbidden.size(); ++f) {
    if (!std::binary_search(sorted.begin(), sorted.end(), forbidden[f])) continue;
    return bad_input(where_in("forbidden", forbidden, f) +
                     "; that pair is forced as well, drop it from one of them");
  }
  return {};
}

}  // namespace

std::uint64_t Selection::total_receivers() const noexcept {
  return std::accumulate(receivers.begin(), receivers.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& r) { return sum + r.size(); });
}

std::uint32_t Selection::out_degree_min() const noexcept {
  std::size_t least = receivers.empty() ? 0 : receivers.front().size();
  for (const auto& r : receivers) least = std::min(least, r.size());
  return static_cast<std::uint32_t>(least);
}

Result<void> check_problem(const SelectionProblem& problem) {
  if (auto sizes = check_sizes(problem); !sizes) return sizes;
  if (auto tx = check_rates(problem.tx_kbps, "tx_kbps"); !tx) return tx;
  if (auto rx = check_rates(problem.rx_kbps, "rx_kbps"); !rx) return rx;
  const auto n = problem.p.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (problem.p[i] >= 1 && problem.p[i] <= n - 1) continue;
    return bad_input("p of sender " + std::to_string(i) + " is " + std::to_string(problem.p[i]) +
                     "; with " + std::to_string(n) + " ranks it must be 1 to " +
                     std::to_string(n - 1));
  }
  if (auto forced = check_pairs("forced", problem.forced, n); !forced) return forced;
  if (auto banned = check_pairs("forbidden", problem.forbidden, n); !banned) return banned;
  return check_disjoint(problem.forced, problem.forbidden);
}

Result<void> check_solvable(const SelectionProblem& problem) {
  const auto with_rate = static_cast<std::uint32_t>(
      std::count_if(problem.rx_kbps.begin(), problem.rx_kbps.end(), [](Kbps d) { return d > 0; }));
  const auto forbidden = by_sender(problem.forbidden, problem.p.size());
  for (std::size_t i = 0; i < problem.p.size(); ++i) {
    if (problem.tx_kbps[i] == 0) {
      return bad_input("no solution: sender " + std::to_string(i) +
                       " has no available transmit rate");
    }
    const auto others = with_rate - (problem.rx_kbps[i] > 0 ? 1U : 0U);
    auto banned = std::uint32_t{0};
    for (const auto j : forbidden[i]) banned += problem.rx_kbps[j] > 0 ? 1 : 0;
    if (others - banned >= problem.p[i]) continue;
    return bad_input("no solution: sender " + std::to_string(i) +
                     " needs p = " + std::to_string(problem.p[i]) + " receivers, but only " +
                     std::to_string(others) + " other ranks have available receive rate" +
                     (banned == 0 ? ""
                                  : " and " + std::to_string(banned) + " of them " +
                                        (banned == 1 ? "is" : "are") + " forbidden"));
  }
  for (const auto& [i, j] : problem.forced) {
    if (problem.rx_kbps[j] > 0) continue;
    return bad_input("no solution: forced pair [" + std::to_string(i) + "," + std::to_string(j) +
                     "], but receiver " + std::to_string(j) + " has no available receive rate");
  }
  return {};
}

}  // namespace selmcast
