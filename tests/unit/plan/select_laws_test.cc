// Laws of the Select axis, on compiled programs. Every way to select stands once in selects(); to
// add one, write a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"
#include "tests/unit/plan/planned_rounds.h"

namespace selmcast {
namespace {

struct SelectRow {
  std::string policy;     ///< "P" stands for p.
  bool all = false;       ///< Takes no p: everyone reaches everyone.
  bool always_p = true;   ///< Reaches p in every round, not counted in below_p instead.
  bool best_rate = true;  ///< At least as fast as select=random:p on the same view.
  /// Rounds R within which every rank is received and receives; 0: what the program states.
  std::uint32_t within = 0;
};

std::vector<SelectRow> selects() {
  return {{.policy = "select=all", .all = true, .best_rate = false},
          // A sender in its own row without uplink for a patch is counted instead (decisions/0048).
          {.policy = "select=selmcast:P", .always_p = false, .best_rate = false},
          {.policy = "select=selmcast:P,0", .always_p = false},
          {.policy = "select=selmcast:P groups=sender", .always_p = false, .best_rate = false},
          {.policy = "select=selmcast:P,0 groups=sender", .always_p = false},
          // Chance: of 16 rounds none reaches a rank once in e^(16 p) ranks.
          {.policy = "select=random:P", .best_rate = false, .within = kRandomCycle}};
}

Policy policy_of(std::string text, std::uint32_t p) {
  const auto at = text.find('P');
  if (at != std::string::npos) text.replace(at, 1, std::to_string(p));
  return parse_policy(text).value();
}

std::vector<Program> programs_of(const View& view, const Policy& policy) {
  std::vector<Program> out;
  for (const Rank r : view.members) {
    auto program = compile(view, policy, r);
    EXPECT_TRUE(program) << program.error().message;
    if (!program) return {};
    out.push_back(std::move(program).value());
  }
  return out;
}

View random_view(std::uint32_t n, SplitMix64& random) {
  View view;
  view.epoch = 1;
  view.seed = random();
  for (Rank r = 0; r < n; ++r) view.members.push_back(r);
  const auto law = random.below(3);
  for (Rank r = 0; r < n; ++r) {
    const Kbps rate = law == 0   ? 1'000'000
                      : law == 1 ? 500'000 + random.below(1'000'000)
                                 : (random.chance(0.5) ? 100'000 : 1'000'000);
    view.tx_kbps.push_back(rate);
    view.rx_kbps.push_back(rate);
  }
  return view;
}

/// Calls law(row, view, p, programs) on random views.
template <class Law>
void for_each_job(std::uint64_t seed, const Law& law) {
  for (const auto& row : selects()) {
    SplitMix64 random(seed);
    for (int trial = 0; trial < 25; ++trial) {
      const auto n = static_cast<std::uint32_t>(3 + random.below(14));
      const auto p = static_cast<std::uint32_t>(1 + random.below(std::min(n - 1, 6U)));
      const auto view = random_view(n, random);
      const auto programs = programs_of(view, policy_of(row.policy, p));
      ASSERT_EQ(programs.size(), n);
      SCOPED_TRACE(row.policy + " n=" + std::to_string(n) + " p=" + std::to_string(p) + " trial " +
                   std::to_string(trial));
      law(row, view, row.all ? n - 1 : p, programs);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(SelectLaws, EverySenderReachesPOrIsCounted) {
  for_each_job(1, [](const SelectRow& row, const View&, std::uint32_t p, const auto& programs) {
    for (const Program& program : programs) {
      for (const PlannedRound& plan : planned_rounds(program)) {
        const auto to = reached(plan);
        ASSERT_TRUE(std::adjacent_find(to.begin(), to.end()) == to.end()) << "twice to one rank";
        ASSERT_GE(to.size() + (plan.below_p && !row.always_p ? 1 : 0), p);
        ASSERT_EQ(plan.below_p, to.size() < p);
      }
    }
  });
}

TEST(SelectLaws, SendersAndReceiversAgree) {
  for_each_job(2, [](const SelectRow&, const View&, std::uint32_t, const auto& programs) {
    for (std::size_t t = 0; t < programs[0].rounds.size(); ++t) {
      for (Rank i = 0; i < programs.size(); ++i) {
        const auto to = reached(planned_round(programs[i], t));
        ASSERT_FALSE(std::binary_search(to.begin(), to.end(), i)) << "to itself";
        for (Rank j = 0; j < programs.size(); ++j) {
          const auto from = senders_of(programs[j], t);
          ASSERT_EQ(std::binary_search(to.begin(), to.end(), j),
                    std::binary_search(from.begin(), from.end(), i));
        }
      }
    }
  });
}

TEST(SelectLaws, NobodyStarves) {
  for_each_job(3, [](const SelectRow& row, const View&, std::uint32_t, const auto& programs) {
    const auto cycle = programs[0].rounds.size();
    const auto within = row.within > 0             ? row.within
                        : programs[0].period_k > 0 ? programs[0].period_k
                                                   : static_cast<std::uint32_t>(cycle);
    for (Rank r = 0; r < programs.size(); ++r) {
      std::size_t silent = 0, deaf = 0;
      for (std::size_t t = 0; t < 2 * cycle; ++t) {
        const auto plan = planned_round(programs[r], t % cycle);
        silent = reached(plan).empty() ? silent + 1 : 0;
        deaf = plan.senders.empty() ? deaf + 1 : 0;
        ASSERT_LT(silent, within) << "rank " << r << " is not received";
        ASSERT_LT(deaf, within) << "rank " << r << " receives nothing";
      }
    }
  });
}

/// a < b, exactly.
bool slower(const RateFraction& a, const RateFraction& b) {
  return static_cast<long double>(a.num) * b.den < static_cast<long double>(b.num) * a.den;
}

TEST(SelectLaws, TheBestCommonRateIsNoLessThanThatOfARandomSelection) {
  std::uint32_t faster = 0;
  for_each_job(4, [&](const SelectRow& row, const View& view, std::uint32_t p, const auto& own) {
    if (!row.best_rate) return;
    const auto random = programs_of(view, policy_of("select=random:P", p));
    ASSERT_EQ(random.size(), own.size());
    for (const PlannedRound& plan : planned_rounds(random[0])) {
      ASSERT_FALSE(slower(own[0].rate, plan.rate)) << own[0].rate.num << "/" << own[0].rate.den;
      faster += slower(plan.rate, own[0].rate) ? 1 : 0;
    }
  });
  EXPECT_GT(faster, 100U) << "the views are too tame to show anything";
}

}  // namespace
}  // namespace selmcast
