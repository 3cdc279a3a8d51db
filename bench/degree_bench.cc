// Rate, slots and fair out-degrees when every sender has a p of its own.
//
// Links from U[.75,1.25] x 100 Gbit/s ("narrow") or 100 and 10 Gbit/s in equal shares
// ("two_classes"), p from U[1,.6n]; every iteration plans another view that drifts by up to 2 % per
// link. "hard": two classes where a fifth of the senders want all others and the rest one, so that
// the sums of slots do not settle the rate.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "plan/select/degree_plan.h"

namespace selmcast {
namespace {

constexpr Kbps kLink = 100'000'000;
constexpr std::size_t kViews = 32;
enum Law : std::int64_t { narrow, two_classes, hard };

Kbps base_rate(Law law, SplitMix64& random) {
  if (law == narrow) return static_cast<Kbps>(kLink * (0.75 + 0.5 * random.unit()));
  return random.chance(0.5) ? kLink : kLink / 10;
}

std::vector<std::uint32_t> wishes(Law law, std::uint32_t n, SplitMix64& random) {
  std::vector<std::uint32_t> p(n);
  for (auto& wish : p) {
    wish = law == hard ? (random.chance(0.2) ? n - 1 : 1)
                       : static_cast<std::uint32_t>(1 + random.below(n * 6 / 10));
  }
  return p;
}

void rate_and_degrees(benchmark::State& state, Law law, Fanout fanout) {
  const auto n = static_cast<std::uint32_t>(state.range(0));
  SplitMix64 random(n);
  std::vector<Kbps> base(n), tx(n, fanout == Fanout::unicast ? kLink * n : 2 * kLink);
  for (auto& rate : base) rate = base_rate(law, random);
  std::vector<std::vector<Kbps>> views(kViews, base);
  for (auto& view : views) {
    for (auto& rate : view) {
      rate = static_cast<Kbps>(static_cast<double>(rate) * (0.99 + 0.02 * random.unit()));
    }
  }
  auto plan = DegreePlan::make(wishes(law, n, random), fanout);
  std::size_t at = 0;
  for (auto _ : state) {
    if (!plan->plan(tx, views[at])) state.SkipWithError("no plan");
    benchmark::DoNotOptimize(plan->out_degrees().data());
    at = (at + 1) % kViews;
  }
}
BENCHMARK_CAPTURE(rate_and_degrees, narrow, narrow, Fanout::multicast)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(16384);
BENCHMARK_CAPTURE(rate_and_degrees, narrow_unicast, narrow, Fanout::unicast)->Arg(1024);
BENCHMARK_CAPTURE(rate_and_degrees, two_classes, two_classes, Fanout::multicast)->Arg(1024);
BENCHMARK_CAPTURE(rate_and_degrees, hard, hard, Fanout::multicast)->Arg(1024);

}  // namespace
}  // namespace selmcast
