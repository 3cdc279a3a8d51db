#include "plan/select/ring_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "tests/unit/plan/select_problems.h"
#include "tests/unit/plan/select_reference.h"

namespace selmcast {
namespace {
using reference::kUnlimited;

using reference::Ratio;
using reference::ratio;

enum class Law { equal, narrow, wide, alternating, two_classes, lognormal, tiny, with_zeros };
constexpr Law kLaws[] = {Law::equal,       Law::narrow,    Law::wide, Law::alternating,
                         Law::two_classes, Law::lognormal, Law::tiny, Law::with_zeros};

Kbps draw(Law law, std::uint32_t j, SplitMix64& random) {
  switch (law) {
    case Law::equal:
      return 10'000;
    case Law::narrow:
      return 7'500 + random.below(5'001);
    case Law::wide:
      return 5'000 + random.below(10'001);
    case Law::alternating:
      return j % 2 == 0 ? 10'000 : 1'000;
    case Law::two_classes:
      return random.chance(0.5) ? 10'000 : 1'000;
    case Law::lognormal:
      return 1 + static_cast<Kbps>(10'000 * std::exp(3.0 * (random.unit() - 0.5)));
    case Law::tiny:
      return 1 + random.below(4);
    case Law::with_zeros:
      return random.chance(0.15) ? 0 : 5'000 + random.below(10'001);
  }
  return 0;
}

struct Instance {
  std::uint32_t n = 0, p = 0, k = 0;
  std::vector<Kbps> tx, rx;
  Fanout fanout = Fanout::multicast;

  std::string text() const {
    std::string out = "n=" + std::to_string(n);
    out.append(" p=").append(std::to_string(p)).append(" k=").append(std::to_string(k));
    out.append(fanout == Fanout::unicast ? " unicast" : " multicast").append(" tx=");
    for (const auto u : tx) out.append(std::to_string(u)).append(",");
    out.append(" rx=");
    for (const auto d : rx) out.append(std::to_string(d)).append(",");
    return out;
  }
};

Instance random_instance(Law law, SplitMix64& random, std::uint32_t largest) {
  Instance out;
  out.n = static_cast<std::uint32_t>(2 + random.below(largest - 1));
  out.p = static_cast<std::uint32_t>(1 + random.below(out.n - 1));
  for (std::uint32_t j = 0; j < out.n; ++j) out.rx.push_back(draw(law, j, random));
  switch (random.below(3)) {
    case 0:
      out.tx.assign(out.n, kUnlimited);
      break;
    case 1:
      for (std::uint32_t j = 0; j < out.n; ++j) {
        out.tx.push_back(std::max<Kbps>(draw(law, j, random), 1));
      }
      break;
    default:
      for (const auto d : out.rx) out.tx.push_back(std::max<Kbps>(d, 1));
  }
  if (random.chance(0.5)) out.k = static_cast<std::uint32_t>(1 + random.below(out.n));
  if (random.chance(0.3)) out.fanout = Fanout::unicast;
  return out;
}

std::uint64_t sum(std::span<const std::uint32_t> v) {
  return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
}

/// Rate, slots and period against closed forms.
void check_rate(const Instance& in, const RingPlan& plan) {
  const auto y = ratio(plan.rate());
  const auto free = ratio(plan.rate_without_bound());
  const bool unicast = in.fanout == Fanout::unicast;
  Ratio sender{*std::min_element(in.tx.begin(), in.tx.end()), unicast ? in.p : 1};
  EXPECT_TRUE(free == std::min(sender, reference::d_hondt(in.rx, std::uint64_t{in.n} * in.p)));
  EXPECT_FALSE(free < y);

  const auto most = reference::slots(in.rx, y);
  std::uint32_t least = in.n, positive = 0;
  bool equal = true;
  for (std::uint32_t j = 0; j < in.n; ++j) {
    EXPECT_LE(plan.slots()[j], most[j]);
    EXPECT_TRUE(unicast || plan.slots()[j] == most[j]);
    EXPECT_TRUE(in.k == 0 || in.rx[j] == 0 || plan.slots()[j] > 0) << "k asks for everyone";
    if (plan.slots()[j] > 0) least = std::min(least, plan.slots()[j]);
    equal = equal && plan.slots()[j] == plan.slots()[0];
    positive += in.rx[j] > 0 ? 1 : 0;
  }
  EXPECT_EQ(plan.period(), equal ? (in.n - 1 + least - 1) / least : (in.n + least - 1) / least);
  EXPECT_GE(sum(plan.slots()), std::uint64_t{in.n} * in.p);
  const auto widest = (sum(plan.slots()) + in.n - 1) / in.n;
  for (const auto u : in.tx) EXPECT_FALSE((Ratio{u, unicast ? widest : 1}) < y);
  if (in.k == 0) {
    EXPECT_TRUE(y == free);
    return;
  }
  EXPECT_LE(plan.period(), in.k);
  // ceil(n/k) slots for everyone are always enough, so the rate is at least what they allow.
  const auto floor = std::min(in.n - 1, (in.n + in.k - 1) / in.k);
  auto enough = free;
  for (const auto d : in.rx) {
    if (d > 0) enough = std::min(enough, Ratio{d, floor});
  }
  if (unicast) {
    const auto degree = std::max(in.p, (positive * floor + in.n - 1) / in.n);
    enough = std::min(enough, Ratio{*std::min_element(in.tx.begin(), in.tx.end()), degree});
  }
  EXPECT_FALSE(y < enough);
}

/// A round that owns its arrays.
struct MemberRound {
  std::uint32_t row;
  std::vector<std::uint32_t> receivers, senders;
  std::optional<std::uint32_t> patch;
  bool below_p;
};
std::vector<MemberRound> rounds_of(const RingPlan& plan, std::uint64_t t) {
  RingWork work(plan.members());
  std::vector<MemberRound> out;
  for (std::uint32_t i = 0; i < plan.members(); ++i) {
    const auto round = plan.round_of(i, t, work);
    out.push_back({round.row,
                   {round.receivers.begin(), round.receivers.end()},
                   {round.senders.begin(), round.senders.end()},
                   round.patch,
                   round.below_p});
  }
  return out;
}

/// Largest number of members in their own row that can be patched, by augmenting paths.
class LargestMatching {
 public:
  LargestMatching(const Instance& in, const RingPlan& plan, const std::vector<MemberRound>& rounds)
      : taken_by_(in.n, in.n), rows_(in.n) {
    for (std::uint32_t j = 0; j < in.n; ++j) {
      for (const auto row : plan.rows_of(j)) rows_[j].insert(row);
    }
    for (std::uint32_t h = 0; h < in.n; ++h) {
      if (rows_[h].count(rounds[h].row) > 0) own_.push_back(h);
    }
    for (const auto h : own_) {
      const bool may = in.fanout == Fanout::unicast || !(Ratio{in.tx[h], 2} < ratio(plan.rate()));
      std::set<std::uint32_t> seen;
      if (may && augment(h, rounds, seen)) ++size_;
    }
  }
  std::size_t size() const { return size_; }
  std::size_t own() const { return own_.size(); }
  bool in_own_row(std::uint32_t h) const { return std::count(own_.begin(), own_.end(), h) > 0; }

 private:
  bool augment(std::uint32_t h, const std::vector<MemberRound>& rounds,
               std::set<std::uint32_t>& seen) {
    for (const auto g : own_) {
      if (g == h || rows_[g].count(rounds[h].row) > 0 || !seen.insert(g).second) continue;
      if (taken_by_[g] < taken_by_.size() && !augment(taken_by_[g], rounds, seen)) continue;
      taken_by_[g] = h;
      return true;
    }
    return false;
  }
  std::vector<std::uint32_t> own_, taken_by_;
  std::vector<std::set<std::uint32_t>> rows_;
  std::size_t size_ = 0;
};

void check_round(const Instance& in, const RingPlan& plan, std::uint32_t t,
                 std::vector<std::vector<bool>>& met) {
  const auto rounds = rounds_of(plan, t);
  const LargestMatching matching(in, plan, rounds);
  const auto edges = plan.edges_of(t);
  std::vector<std::uint32_t> load(in.n);
  std::vector<std::vector<std::uint32_t>> heard(in.n);
  std::set<std::uint32_t> rows;
  std::size_t patches = 0;
  for (std::uint32_t i = 0; i < in.n; ++i) {
    const auto& round = rounds[i];
    rows.insert(round.row);
    auto all = round.receivers;
    if (round.patch) {
      ++patches;
      all.push_back(*round.patch);
      std::sort(all.begin(), all.end());
      EXPECT_TRUE(matching.in_own_row(i));
      EXPECT_TRUE(in.fanout == Fanout::unicast || !(Ratio{in.tx[i], 2} < ratio(plan.rate())));
    }
    EXPECT_EQ(all, edges[i]);
    EXPECT_EQ(std::adjacent_find(all.begin(), all.end(), std::greater_equal<>()), all.end());
    const auto row_size = round.receivers.size() + (matching.in_own_row(i) ? 1 : 0);
    EXPECT_GE(row_size, sum(plan.slots()) / in.n);
    EXPECT_LE(row_size, (sum(plan.slots()) + in.n - 1) / in.n);
    EXPECT_EQ(round.below_p, all.size() < in.p);
    if (round.below_p) {
      EXPECT_EQ(all.size() + 1, in.p);
      EXPECT_TRUE(matching.in_own_row(i) && !round.patch);
    }
    for (const auto j : all) {
      EXPECT_NE(j, i);
      ++load[j];
      heard[j].push_back(i);
      met[i][j] = true;
    }
    for (const auto j : round.receivers) {
      const auto joined = plan.rows_of(j);
      EXPECT_TRUE(reference::contains(joined, round.row)) << "a receiver that did not join";
    }
  }
  EXPECT_EQ(rows.size(), in.n) << "a row has one owner at a time";
  EXPECT_EQ(patches, matching.size());
  if (std::equal(plan.slots().begin() + 1, plan.slots().end(), plan.slots().begin())) {
    EXPECT_EQ(matching.own(), 0U);
  }
  for (std::uint32_t j = 0; j < in.n; ++j) {
    EXPECT_LE(load[j], plan.slots()[j]);
    EXPECT_EQ(heard[j], rounds[j].senders);
  }
}

/// Ages by walking three periods, without the library's arithmetic.
void check_ages(const Instance& in, const RingPlan& plan) {
  std::uint64_t ages = 0, samples = 0;
  std::uint32_t worst = 0;
  std::vector<std::vector<std::int64_t>> last(in.n, std::vector<std::int64_t>(in.n, -1));
  const std::int64_t k = plan.period();
  for (std::int64_t t = 0; t < 3 * k; ++t) {
    const auto edges = plan.edges_of(static_cast<std::uint64_t>(t));
    for (std::uint32_t i = 0; i < in.n; ++i) {
      for (const auto j : edges[i]) {
        if (t >= 2 * k) worst = std::max(worst, static_cast<std::uint32_t>(t - last[i][j]));
        last[i][j] = t;
      }
      for (std::uint32_t j = 0; j < in.n && t >= 2 * k; ++j) {
        if (j == i || plan.slots()[j] == 0) continue;
        ages += static_cast<std::uint64_t>(t - last[i][j]);
        ++samples;
      }
    }
  }
  const auto age = plan.pair_age();
  EXPECT_EQ(age.worst, worst);
  EXPECT_LE(age.worst, plan.period());
  EXPECT_NEAR(age.mean, static_cast<double>(ages) / static_cast<double>(samples), 1e-9);
}

void check_plan(const Instance& in, const RingPlan& plan) {
  check_rate(in, plan);
  std::vector<std::vector<bool>> met(in.n, std::vector<bool>(in.n));
  std::uint32_t below = 0;
  for (std::uint32_t t = 0; t < plan.period(); ++t) {
    check_round(in, plan, t, met);
    for (const auto& receivers : plan.edges_of(t)) below += receivers.size() < in.p ? 1 : 0;
    EXPECT_EQ(plan.edges_of(t), plan.edges_of(t + std::uint64_t{1'000'000'007} * plan.period()));
  }
  EXPECT_EQ(plan.senders_below_p(), below);
  for (std::uint32_t i = 0; i < in.n; ++i) {
    EXPECT_EQ(plan.rows_of(i).size(), plan.slots()[i]);
    for (std::uint32_t j = 0; j < in.n; ++j) {
      EXPECT_TRUE(i == j || plan.slots()[j] == 0 || met[i][j]) << i << "->" << j << " never met";
    }
  }
}

class RingLaw : public testing::TestWithParam<Law> {};

TEST_P(RingLaw, KeepsItsInvariants) {
  SplitMix64 random(31 + static_cast<std::uint64_t>(GetParam()));
  int planned = 0;
  for (int instance = 0; instance < 700 && !HasFailure(); ++instance) {
    const auto in = random_instance(GetParam(), random, instance < 620 ? 20 : 60);
    SCOPED_TRACE(in.text());
    const auto plan = RingPlan::make(in.p, in.tx, in.rx, in.k, in.fanout);
    if (!plan) {
      EXPECT_EQ(GetParam(), Law::with_zeros) << plan.error().message;
      continue;
    }
    ++planned;
    check_plan(in, *plan);
    if (instance % 8 == 0) check_ages(in, *plan);
  }
  EXPECT_GT(planned, 250);
}

INSTANTIATE_TEST_SUITE_P(All, RingLaw, testing::ValuesIn(kLaws));

RingPlan planned(std::uint32_t p, const std::vector<Kbps>& rx, std::uint32_t k = 0) {
  auto plan = RingPlan::make(p, std::vector<Kbps>(rx.size(), kUnlimited), rx, k);
  EXPECT_TRUE(plan.has_value());
  return *plan;
}

// In these three no schedule at all serves every pair within k rounds with p receivers always.
TEST(RingPlan, ContradictoryDemandsCostAReceiverNotAPair) {
  const struct {
    std::uint32_t p;
    std::vector<Kbps> rx;
  } cases[] = {{2, {3, 3, 1, 1}}, {1, {2, 1, 0}}, {2, {4, 3, 1, 1, 1}}};
  for (const auto& entry : cases) {
    const auto plan = planned(entry.p, entry.rx);
    EXPECT_EQ(plan.rate(), (RateFraction{1, 1}));
    for (std::size_t j = 0; j < entry.rx.size(); ++j) EXPECT_EQ(plan.slots()[j], entry.rx[j]);
    EXPECT_GT(plan.senders_below_p(), 0U);
    EXPECT_LE(plan.pair_age().worst, plan.period());
    EXPECT_EQ(plan.pair_age().unserved,
              static_cast<std::uint64_t>(std::count(entry.rx.begin(), entry.rx.end(), 0)) *
                  (entry.rx.size() - 1));
  }
}

TEST(RingPlan, EqualLinksReachTheLowerBoundWithoutPatches) {
  auto plan = planned(1, {1, 1, 1});
  EXPECT_EQ(plan.rate(), (RateFraction{1, 1}));
  EXPECT_EQ(plan.period(), 2U);
  plan = planned(6, std::vector<Kbps>(64, 600));
  EXPECT_EQ(plan.rate(), (RateFraction{100, 1}));
  EXPECT_EQ(plan.period(), 11U);  // ceil(63/6)
  EXPECT_EQ(plan.pair_age().worst, 11U);
  EXPECT_EQ(plan.senders_below_p(), 0U);
  plan = planned(3, {5, 5, 5, 5});  // Everyone to everyone.
  EXPECT_EQ(plan.period(), 1U);
  EXPECT_THAT(plan.slots(), ::testing::ElementsAre(3, 3, 3, 3));
}

TEST(RingPlan, UnequalSlotsPayOneRoundWhenTheyDivide) {
  const auto plan = planned(2, {5, 3, 2, 2, 2, 2, 2});  // Least 2, n-1 = 6: ceil(7/2), not 6/2.
  EXPECT_EQ(plan.period(), 4U);
  const auto bounded = planned(2, {5, 3, 2, 2, 2, 2, 2}, 3);
  EXPECT_LE(bounded.period(), 3U);
  EXPECT_EQ(bounded.rate(), (RateFraction{2, 3}));
  EXPECT_EQ(bounded.rate_without_bound(), (RateFraction{1, 1}));
}

using Rates = std::vector<Kbps>;

Result<RingPlan> try_plan(std::uint32_t p, const Rates& tx, const Rates& rx, std::uint32_t k) {
  return RingPlan::make(p, tx, rx, k);
}

TEST(RingPlan, OneRoundForAllPairsNeedsEqualReceivers) {
  EXPECT_EQ(planned(1, {100, 400, 200, 300}, 1).rate(), (RateFraction{100, 3}));
  const auto none = try_plan(1, Rates(4, kUnlimited), {100, 400, 0, 300}, 1);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().kind, ErrorKind::bad_input);
  EXPECT_NE(none.error().message.find("smallest possible k is 2"), std::string::npos);
  EXPECT_LE(planned(1, {100, 400, 0, 300}, 2).period(), 2U);
}

TEST(RingPlan, PatchesOnlyWhereTheSenderCanPayTwice) {
  const std::vector<Kbps> rx = {500, 300, 200, 200, 200, 200, 200};
  for (const auto tx : std::vector<Kbps>{100, 199, 200}) {
    const auto plan = RingPlan::make(2, std::vector<Kbps>(7, tx), rx, 0);
    ASSERT_TRUE(plan.has_value());
    std::size_t patches = 0;
    for (std::uint32_t t = 0; t < plan->period(); ++t) patches += plan->patches_of(t).size();
    EXPECT_EQ(plan->rate(), (RateFraction{100, 1}));
    EXPECT_EQ(patches > 0, tx == 200);
  }
}

TEST(RingPlan, RefusesWhatTheSelectionRefuses) {
  const std::vector<Kbps> five(4, 5);
  EXPECT_FALSE(try_plan(4, five, five, 0).has_value());
  EXPECT_FALSE(try_plan(0, five, five, 0).has_value());
  EXPECT_FALSE(try_plan(1, {5, 5, 0, 5}, five, 0).has_value());
  EXPECT_FALSE(try_plan(2, five, {5, 5, 0, 0}, 0).has_value());
  EXPECT_FALSE(try_plan(1, {5}, {5}, 0).has_value());
  EXPECT_FALSE(try_plan(1, five, {5, 5, 5}, 0).has_value());
}

/// Everything that two plans of the same problem must agree on.
void expect_same(const RingPlan& a, const RingPlan& b) {
  EXPECT_EQ(a.rate(), b.rate());
  EXPECT_EQ(a.rate_without_bound(), b.rate_without_bound());
  EXPECT_EQ(a.period(), b.period());
  EXPECT_TRUE(std::ranges::equal(a.slots(), b.slots()));
  EXPECT_EQ(a.edges_of(1), b.edges_of(1));
}

TEST(RingPlan, PlansAgainInPlaceAsIfForTheFirstTime) {
  SplitMix64 random(11);
  for (std::uint32_t repeat = 0; repeat < 20; ++repeat) {
    RingPlan warm(90);
    for (std::uint32_t step = 0; step < 30; ++step) {
      const auto in = random_instance(kLaws[random.below(std::size(kLaws))], random, 90);
      const auto again = warm.replan(in.p, in.tx, in.rx, in.k, in.fanout);
      const auto fresh = RingPlan::make(in.p, in.tx, in.rx, in.k, in.fanout);
      ASSERT_EQ(again.has_value(), fresh.has_value());
      if (fresh) expect_same(warm, *fresh);
    }
  }
}

TEST(RingPlan, FollowsLongDrifts) {
  // All rates fall for long and rise again, one receiver at a time; some are equal, some end.
  SplitMix64 random(14);
  for (const auto p : {1U, 12U, 40U}) {
    constexpr std::uint32_t n = 48;
    Rates rx(n);
    for (auto& rate : rx) rate = 75'000'000 + (random.chance(0.5) ? 0 : random.below(50'000'001));
    const Rates first = rx, tx(n, 100'000'000'000);
    auto plan = RingPlan::make(p, tx, rx, 0);
    ASSERT_TRUE(plan.has_value());
    for (std::uint32_t step = 0; step < 24 * n; ++step) {
      const auto j = step % n;
      rx[j] = step < 12 * n ? rx[j] * 15 / 16 : rx[j] * 16 / 15 + 1;
      if (step == 6 * n) rx[j] = 0;
      if (step == 18 * n) rx[j] = first[j];
      ASSERT_TRUE(plan->replan(p, tx, rx, 0).has_value());
      const auto fresh = RingPlan::make(p, tx, rx, 0);
      ASSERT_TRUE(fresh.has_value());
      expect_same(*plan, *fresh);
      if (HasFailure()) return;
    }
  }
}

TEST(RingPlan, RatesBeyondTheFastPathGiveTheSamePlan) {
  // Multiplying every rate by one number changes the rate by it and the plan not at all. The
  // factor is odd and large, so the fast and the general path see quite different numbers.
  SplitMix64 random(13);
  constexpr Kbps kFactor = 1'000'003;
  for (std::uint32_t repeat = 0; repeat < 200; ++repeat) {
    auto in = random_instance(kLaws[random.below(std::size(kLaws))], random, 40);
    for (auto& u : in.tx) u = std::min<Kbps>(u, 1'000'000);
    for (auto& d : in.rx) d = std::min<Kbps>(d, 4'000'000);
    const auto small = RingPlan::make(in.p, in.tx, in.rx, in.k, in.fanout);
    for (auto& u : in.tx) u *= kFactor;
    for (auto& d : in.rx) d *= kFactor;
    const auto large = RingPlan::make(in.p, in.tx, in.rx, in.k, in.fanout);
    ASSERT_EQ(small.has_value(), large.has_value());
    if (!small) continue;
    EXPECT_TRUE(ratio(large->rate()) == (Ratio{small->rate().num * kFactor, small->rate().den}));
    EXPECT_EQ(small->period(), large->period());
    EXPECT_TRUE(std::ranges::equal(small->slots(), large->slots()));
    EXPECT_EQ(small->edges_of(0), large->edges_of(0));
  }
}

}  // namespace
}  // namespace selmcast
