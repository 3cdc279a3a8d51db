#include "tools/papers/bsp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/select/degree_plan.h"

namespace selmcast {

SelectionProblem draw_problem(const LinkLaw& law, std::uint32_t n, std::uint32_t p, Fanout fanout,
                              std::uint64_t seed) {
  SelectionProblem out;
  out.p.assign(n, p);
  out.fanout = fanout;
  out.seed = mix_seed(~seed);  // Not the numbers that the links are drawn from.
  SplitMix64 random(mix_seed(seed));
  const auto draw = [&](double mean) {
    const double rate = mean * (1.0 + law.spread * (2.0 * random.unit() - 1.0));
    return static_cast<Kbps>(std::llround(std::max(rate, 1.0)));
  };
  for (std::uint32_t r = 0; r < n; ++r) {
    out.rx_kbps.push_back(draw(law.mean_kbps));
    out.tx_kbps.push_back(draw(law.mean_kbps * law.transmit));
  }
  return out;
}

Result<RoundOutcome> optimum_of(const SelectionProblem& problem) {
  auto plan = DegreePlan::make(problem.p, problem.fanout);
  if (!plan) return std::move(plan).error();
  if (auto planned = plan->plan(problem.tx_kbps, problem.rx_kbps); !planned) {
    return planned.error();
  }
  const auto degrees = plan->out_degrees();
  const auto& rate = plan->rate();
  return RoundOutcome{static_cast<double>(rate.den) / static_cast<double>(rate.num),
                      std::accumulate(degrees.begin(), degrees.end(), std::uint64_t{0})};
}

Result<RoundOutcome> run_round(const SelectionProblem& problem, Method method) {
  if (method == Method::exact) return optimum_of(problem);
  const auto selection = method == Method::published ? select_published(problem, Ties::random)
                                                     : select_random(problem);
  if (!selection) return selection.error();
  const auto& rate = selection->rate;
  return RoundOutcome{static_cast<double>(rate.den) / static_cast<double>(rate.num),
                      selection->total_receivers()};
}

std::vector<Stream> streams_of(const std::vector<std::vector<Rank>>& receivers, Fanout fanout,
                               double bits) {
  std::vector<Stream> out;
  for (Rank i = 0; i < receivers.size(); ++i) {
    if (fanout == Fanout::multicast && !receivers[i].empty()) {
      out.push_back({i, receivers[i], bits, 0.0, 0.0});
    }
    for (const auto j : receivers[i]) {
      if (fanout == Fanout::unicast) out.push_back({i, {j}, bits, 0.0, 0.0});
    }
  }
  return out;
}

Cards cards_of(const SelectionProblem& problem) {
  return {{problem.tx_kbps.begin(), problem.tx_kbps.end()},
          {problem.rx_kbps.begin(), problem.rx_kbps.end()}};
}

}  // namespace selmcast
