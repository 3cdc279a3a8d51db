#include "plan/select/explicit.h"

#include <algorithm>

#include "plan/select/rate.h"

namespace selmcast {

std::vector<std::vector<Rank>> by_sender(const std::vector<std::pair<Rank, Rank>>& pairs,
                                         std::size_t n) {
  std::vector<std::vector<Rank>> out(n);
  for (const auto& [i, j] : pairs) out[i].push_back(j);
  for (auto& receivers : out) {
    std::sort(receivers.begin(), receivers.end());
    receivers.erase(std::unique(receivers.begin(), receivers.end()), receivers.end());
  }
  return out;
}

std::vector<Rank> open_receivers(const SelectionProblem& problem, Rank sender,
                                 const std::vector<Rank>& chosen,
                                 const std::vector<Rank>& forbidden) {
  std::vector<Rank> out;
  auto taken = chosen.begin();
  auto banned = forbidden.begin();
  for (Rank j = 0; j < problem.rx_kbps.size(); ++j) {
    while (taken != chosen.end() && *taken < j) ++taken;
    while (banned != forbidden.end() && *banned < j) ++banned;
    if (j == sender || problem.rx_kbps[j] == 0) continue;
    if (taken != chosen.end() && *taken == j) continue;
    if (banned != forbidden.end() && *banned == j) continue;
    out.push_back(j);
  }
  return out;
}

std::optional<RateFraction> rate_of(const SelectionProblem& problem, Selection& selection) {
  const auto n = problem.p.size();
  std::vector<std::uint32_t> copies(n), load(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto degree = static_cast<std::uint32_t>(selection.receivers[i].size());
    copies[i] = problem.fanout == Fanout::unicast ? degree : std::min(degree, 1U);
    for (const auto j : selection.receivers[i]) ++load[j];
  }
  std::optional<RateFraction> rate;
  const auto bound = [&rate](Kbps available, std::uint32_t transfers) {
    if (transfers == 0) return;
    const auto limit = reduced(available, transfers);
    if (!rate || limit < *rate) rate = limit;
  };
  for (std::size_t r = 0; r < n; ++r) {
    bound(problem.tx_kbps[r], copies[r]);
    bound(problem.rx_kbps[r], load[r]);
  }
  if (!rate || rate->num == 0) return std::nullopt;
  selection.rate = *rate;
  selection.bottleneck = find_bottleneck(problem.tx_kbps, copies, problem.rx_kbps, load, *rate);
  return rate;
}

}  // namespace selmcast
