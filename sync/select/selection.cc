#include "sync/select/selection.h"

#include <algorithm>
#include <numeric>

#include "sync/select/feasible.h"
#include "sync/select/rate.h"

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

Result<void> check_forced(const SelectionProblem& problem) {
  const auto n = problem.p.size();
  for (std::size_t f = 0; f < problem.forced.size(); ++f) {
    const auto [i, j] = problem.forced[f];
    const auto where = "forced[" + std::to_string(f) + "] is [" + std::to_string(i) + "," +
                       std::to_string(j) + "]";
    if (i >= n || j >= n) {
      return bad_input(where + "; ranks are 0 to " + std::to_string(n - 1));
    }
    if (i == j) return bad_input(where + "; a rank does not send to itself");
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
  return check_forced(problem);
}

Result<void> check_solvable(const SelectionProblem& problem) {
  const auto with_rate = static_cast<std::uint32_t>(
      std::count_if(problem.rx_kbps.begin(), problem.rx_kbps.end(), [](Kbps d) { return d > 0; }));
  for (std::size_t i = 0; i < problem.p.size(); ++i) {
    if (problem.tx_kbps[i] == 0) {
      return bad_input("no solution: sender " + std::to_string(i) +
                       " has no available transmit rate");
    }
    const auto others = with_rate - (problem.rx_kbps[i] > 0 ? 1U : 0U);
    if (others < problem.p[i]) {
      return bad_input("no solution: sender " + std::to_string(i) +
                       " needs p = " + std::to_string(problem.p[i]) + " receivers, but only " +
                       std::to_string(others) + " other ranks have available receive rate");
    }
  }
  for (const auto& [i, j] : problem.forced) {
    if (problem.rx_kbps[j] > 0) continue;
    return bad_input("no solution: forced pair [" + std::to_string(i) + "," + std::to_string(j) +
                     "], but receiver " + std::to_string(j) + " has no available receive rate");
  }
  return {};
}

}  // namespace selmcast
