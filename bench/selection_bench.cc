// From a new view to one member's program, as a rank does it and in its first part, to the member's
// own row and column, beside the papers' heuristic.
//
// Links are drawn from U[.75,1.25] x 100 Gbit/s ("narrow") or are 100 and 10 Gbit/s in equal shares
// ("two_classes"); a sender has the rate that its receiver side has. Every iteration plans another
// view: warm ones follow each other with a drift of 2 %, cold ones alternate with a view of another
// p, so that no rate of a plan before helps. The member is one in its own row, the dearest case,
// because the patches of the whole round are then matched.
#include <benchmark/benchmark.h>

#include <map>
#include <string>

#include "base/random.h"
#include "plan/axes/policy.h"
#include "plan/compile.h"
#include "plan/select/ring_plan.h"
#include "plan/select/selection.h"

namespace selmcast {
namespace {

constexpr Kbps kLink = 100'000'000;
constexpr std::size_t kViews = 32;
enum Law : std::int64_t { narrow, two_classes };

using Rates = std::vector<Kbps>;

/// kViews views; each differs from the one before by up to 2 % per link.
std::vector<Rates> drifting_views(Law law, std::uint32_t n) {
  SplitMix64 random(n);
  Rates base(n);
  for (std::uint32_t j = 0; j < n; ++j) {
    base[j] = law == two_classes ? (random.chance(0.5) ? kLink : kLink / 10)
                                 : static_cast<Kbps>(kLink * (0.75 + 0.5 * random.unit()));
  }
  std::vector<Rates> views;
  for (std::size_t v = 0; v < kViews; ++v) {
    auto view = base;
    // Equal rates are what makes two classes hard, so each class drifts as one.
    const auto fast = 0.99 + 0.02 * random.unit(), slow = 0.99 + 0.02 * random.unit();
    for (auto& rate : view) {
      const auto factor = law == narrow ? 0.99 + 0.02 * random.unit() : rate == kLink ? fast : slow;
      rate = static_cast<Kbps>(static_cast<double>(rate) * factor);
    }
    views.push_back(view);
  }
  return views;
}

std::uint32_t share_of(std::uint32_t n) {
  return static_cast<std::uint32_t>(0.3 * n);
}

/// A member that is in its own row in round 1 of the plan, or 0.
std::uint32_t dearest_member(const RingPlan& plan) {
  const auto patches = plan.patches_of(1, true);
  return patches.empty() ? 0 : patches[patches.size() / 2].first;
}

void label(benchmark::State& state, const RingPlan& plan, std::uint32_t p) {
  state.SetLabel("p=" + std::to_string(p) + " period=" + std::to_string(plan.period()) +
                 " in_own_row=" + std::to_string(plan.patches_of(1, true).size()));
}

void view_to_row_and_column(benchmark::State& state, Law law, bool warm) {
  const auto n = static_cast<std::uint32_t>(state.range(0));
  const auto views = drifting_views(law, n);
  const auto p = share_of(n);
  RingPlan plan(n);
  RingWork work(n);
  std::vector<std::uint32_t> members;
  for (const auto& view : views) {
    if (!plan.replan(p, view, view, 0)) {
      state.SkipWithError("no plan");
      return;
    }
    members.push_back(dearest_member(plan));
  }
  std::size_t at = 0;
  for (auto _ : state) {
    const auto& view = views[at];
    const auto share = warm || at % 2 == 0 ? p : p + 1;
    benchmark::DoNotOptimize(plan.replan(share, view, view, 0));
    benchmark::DoNotOptimize(plan.round_of(members[at], 1, work));
    at = (at + 1) % kViews;
  }
  label(state, plan, p);
}
BENCHMARK_CAPTURE(view_to_row_and_column, warm, narrow, true)->Arg(64)->Arg(1024)->Arg(16384);
BENCHMARK_CAPTURE(view_to_row_and_column, cold, narrow, false)->Arg(64)->Arg(1024)->Arg(16384);
BENCHMARK_CAPTURE(view_to_row_and_column, two_classes_warm, two_classes, true)->Arg(16384);
BENCHMARK_CAPTURE(view_to_row_and_column, two_classes_cold, two_classes, false)->Arg(16384);

/// What a rank does with every view: the layout follows, and its program is compiled. Views follow
/// each other with a drift of 2 %.
void view_to_program(benchmark::State& state, const char* policy_text) {
  const auto n = static_cast<std::uint32_t>(state.range(0));
  const auto policy = parse_policy(policy_text);
  if (!policy) return state.SkipWithError(policy.error().message.c_str());
  View view;
  for (Rank r = 0; r < n; ++r) view.members.push_back(r);
  const auto views = drifting_views(narrow, n);
  PlanHistory history;
  for (auto _ : state) {
    view.tx_kbps = view.rx_kbps = views[view.epoch++ % kViews];
    auto program = compile(view, *policy, n / 3, history);
    if (!program) return state.SkipWithError(program.error().message.c_str());
    benchmark::DoNotOptimize(program);
  }
}
BENCHMARK_CAPTURE(view_to_program, selmcast, "select=selmcast:2")
    ->Arg(64)
    ->Arg(1024)
    ->Arg(10'000)
    ->Unit(benchmark::kMillisecond);

/// The next round under the same view.
void next_round(benchmark::State& state) {
  const auto n = static_cast<std::uint32_t>(state.range(0));
  const auto view = drifting_views(narrow, n).front();
  RingPlan plan(n);
  RingWork work(n);
  if (!plan.replan(share_of(n), view, view, 0)) {
    state.SkipWithError("no plan");
    return;
  }
  std::uint64_t round = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan.round_of(n / 3, ++round, work));
  }
}
BENCHMARK(next_round)->Arg(64)->Arg(1024)->Arg(16384);

/// The papers' heuristic on the same view, all rows.
void published_heuristic(benchmark::State& state) {
  const auto n = static_cast<std::uint32_t>(state.range(0));
  SelectionProblem problem;
  problem.tx_kbps = problem.rx_kbps = drifting_views(narrow, n).front();
  problem.p.assign(n, share_of(n));
  for (auto _ : state) benchmark::DoNotOptimize(select_published(problem));
}
BENCHMARK(published_heuristic)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);
// n^2 pairs: once is enough to see the distance.
BENCHMARK(published_heuristic)->Arg(16384)->Iterations(1)->Repetitions(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace selmcast
