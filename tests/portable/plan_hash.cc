// Prints a hash over the plans of many random views; equal on every machine and compiler.
//   plan_hash VIEWS
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "plan/select/row_plan.h"
#include "plan/select/selection.h"

namespace selmcast {
namespace {

/// FNV-1a over 64-bit words.
class Hash {
 public:
  void add(std::uint64_t word) noexcept {
    value_ = (value_ ^ word) * 0x100000001B3U;
    value_ ^= value_ >> 29U;
  }
  void add(std::span<const std::uint32_t> words) noexcept {
    add(words.size());
    for (const auto w : words) add(w);
  }
  void add(const RateFraction& rate) noexcept {
    add(rate.num);
    add(rate.den);
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

struct View {
  std::uint32_t p = 1, k = 0;
  Fanout fanout = Fanout::multicast;
  std::vector<Kbps> tx, rx;
  std::vector<std::uint32_t> members;
};

Kbps draw(std::uint32_t law, SplitMix64& random) {
  switch (law) {
    case 0:
      return 75'000'000 + random.below(50'000'001);
    case 1:
      return random.chance(0.5) ? 100'000'000 : 10'000'000;
    case 2:
      return 1 + random.below(8);
    case 3:
      return (Kbps{1} << 33U) + random.below(1000);  // Beyond the fast path.
    default:
      return random.chance(0.1) ? 0 : 1 + random.below(0xFFFFFFFFU);
  }
}

View random_view(SplitMix64& random) {
  View out;
  const auto n = static_cast<std::uint32_t>(2 + random.below(random.chance(0.04) ? 120 : 20));
  const auto law = static_cast<std::uint32_t>(random.below(5));
  out.p = static_cast<std::uint32_t>(1 + random.below(n - 1));
  if (random.chance(0.5)) out.k = static_cast<std::uint32_t>(1 + random.below(n));
  if (random.chance(0.3)) out.fanout = Fanout::unicast;
  for (std::uint32_t j = 0; j < n; ++j) {
    out.members.push_back(j);
    out.rx.push_back(draw(law, random));
    out.tx.push_back(random.chance(0.5) ? out.rx.back() + 1 : Kbps{1} << 40U);
  }
  return out;
}

void add_ring(const View& view, SplitMix64& random, RingWork& work, Hash& hash) {
  const auto plan = RingPlan::make(view.p, view.tx, view.rx, view.k, view.fanout);
  hash.add(plan.has_value() ? 1 : 0);
  if (!plan) return;
  hash.add(plan->rate());
  hash.add(plan->rate_without_bound());
  hash.add(plan->slots());
  const auto round = random.below(plan->period());
  const auto mine =
      plan->round_of(static_cast<std::uint32_t>(random.below(plan->members())), round, work);
  hash.add(mine.row);
  hash.add(mine.receivers);
  hash.add(mine.senders);
  hash.add(mine.patch.value_or(0xFFFFFFFFU));
}

/// The view, then the same with one rate changed and one member lost.
void add_followed(View view, SplitMix64& random, RingWork& work, Hash& hash) {
  auto plan = RowPlan::make(view.p, view.k, view.members, view.tx, view.rx);
  if (!plan || view.members.size() < 4) return;
  view.rx[random.below(static_cast<std::uint32_t>(view.rx.size()))] /= 2;
  const auto gone = static_cast<std::ptrdiff_t>(random.below(3));
  view.rx.erase(view.rx.begin() + gone);
  view.tx.erase(view.tx.begin() + gone);
  view.members.erase(view.members.begin() + gone);
  view.p = std::min(view.p, static_cast<std::uint32_t>(view.members.size()) - 1);
  const auto change = plan->follow(view.p, view.k, view.members, view.tx, view.rx);
  hash.add(change.has_value() ? change->joins : 0);
  if (!change) return;
  hash.add(plan->groups_of(0));
  hash.add(plan->round_of(0, 1, work).senders);
}

void add_edges(const View& view, SplitMix64& random, Hash& hash) {
  SelectionProblem problem;
  for (std::size_t i = 0; i < view.members.size(); ++i) {
    problem.p.push_back(static_cast<std::uint32_t>(1 + random.below(view.p)));
  }
  problem.fanout = view.fanout;
  problem.tx_kbps = view.tx;
  problem.rx_kbps = view.rx;
  problem.seed = random();
  using Select = Result<Selection> (*)(const SelectionProblem&);
  for (const Select select :
       {Select{&select_exact}, Select{&select_published}, Select{&select_random}}) {
    const auto selection = select(problem);
    hash.add(selection.has_value() ? 1 : 0);
    if (!selection) continue;
    hash.add(selection->rate);
    for (const auto& receivers : selection->receivers) hash.add(receivers);
  }
}

std::uint64_t hash_of(std::uint64_t views) {
  SplitMix64 random(2024);
  RingWork work(200);
  Hash hash;
  for (std::uint64_t v = 0; v < views; ++v) {
    const auto view = random_view(random);
    add_ring(view, random, work, hash);
    add_followed(view, random, work, hash);
    if (view.members.size() <= 8) add_edges(view, random, hash);
  }
  return hash.value();
}

}  // namespace
}  // namespace selmcast

int main(int argc, char** argv) {
  const auto views = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  std::printf("%016llx\n", static_cast<unsigned long long>(selmcast::hash_of(views)));
  return 0;
}
