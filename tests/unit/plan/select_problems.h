// Random selection problems and their description in failure messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "plan/select/selection.h"

namespace selmcast::reference {

/// A transmit rate that never binds.
inline constexpr Kbps kUnlimited = Kbps{1} << 40U;

/// The same p for all, and receive rates alone decide.
inline SelectionProblem uniform(std::uint32_t p, std::vector<Kbps> rx) {
  SelectionProblem problem;
  problem.p.assign(rx.size(), p);
  problem.tx_kbps.assign(rx.size(), kUnlimited);
  problem.rx_kbps = std::move(rx);
  return problem;
}

inline std::string describe(const SelectionProblem& problem) {
  std::string out = problem.fanout == Fanout::unicast ? "unicast" : "multicast";
  const auto list = [&out](const char* name, const auto& values) {
    out.append(" ").append(name).append("=");
    for (const auto v : values) out.append(std::to_string(v)).append(",");
  };
  list("p", problem.p);
  list("tx", problem.tx_kbps);
  list("rx", problem.rx_kbps);
  for (const auto& [i, j] : problem.forced) {
    out.append(" ").append(std::to_string(i)).append("->").append(std::to_string(j));
  }
  for (const auto& [i, j] : problem.forbidden) {
    out.append(" ").append(std::to_string(i)).append("-/").append(std::to_string(j));
  }
  return out + " k=" + std::to_string(problem.k);
}

/// Random small rates (ties and zeros are frequent), p, forced and forbidden pairs, ages and k.
inline SelectionProblem random_problem(SplitMix64& random, std::uint32_t n) {
  SelectionProblem problem;
  const bool same_p = random.chance(0.5);
  const auto p = static_cast<std::uint32_t>(1 + random.below(n - 1));
  const auto spread = static_cast<std::uint32_t>(random.chance(0.5) ? 4 : 20);
  problem.fanout = random.chance(0.5) ? Fanout::unicast : Fanout::multicast;
  const bool narrow_senders = random.chance(0.5);
  for (std::uint32_t r = 0; r < n; ++r) {
    problem.p.push_back(same_p ? p : static_cast<std::uint32_t>(1 + random.below(n - 1)));
    problem.tx_kbps.push_back(narrow_senders ? 1 + random.below(spread) : kUnlimited);
    problem.rx_kbps.push_back(random.chance(0.1) ? 0 : 1 + random.below(spread));
  }
  const auto forced = random.chance(0.4) ? 0.2 : 0.0, forbidden = random.chance(0.4) ? 0.2 : 0.0;
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t j = 0; j < n; ++j) {
      if (i == j) continue;
      if (problem.rx_kbps[j] > 0 && random.chance(forced)) {
        problem.forced.emplace_back(i, j);
      } else if (random.chance(forbidden)) {
        problem.forbidden.emplace_back(i, j);
      }
    }
  }
  if (random.chance(0.6)) {
    problem.age.assign(n, std::vector<std::uint32_t>(n));
    for (auto& row : problem.age) {
      for (auto& age : row) age = static_cast<std::uint32_t>(random.below(6));
    }
  }
  if (random.chance(0.25)) problem.k = static_cast<std::uint32_t>(1 + random.below(n));
  return problem;
}

}  // namespace selmcast::reference
