#include "sync/mix/pair_credit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace selmcast {
namespace {

constexpr auto kUnit = PairCredit::kUnit;

std::vector<Rank> all_but(Rank self, std::uint32_t n) {
  std::vector<Rank> out;
  for (Rank r = 0; r < n; ++r) {
    if (r != self) out.push_back(r);
  }
  return out;
}

TEST(PairCredit, EarnsGammaOverNPerRoundAndSpendsItWhenHeard) {
  // n = 4, gamma = 1: a quarter per round, exactly.
  PairCredit credit(4, 1.0);
  const std::vector<Rank> nobody, one{2}, both{1, 2};
  credit.begin(1, 4, nobody);
  credit.begin(1, 4, one);  // Two rounds since the start.
  EXPECT_EQ(credit.weight(2), kUnit / 2);
  credit.delivered(2);
  EXPECT_EQ(credit.outstanding(2), 0U);
  EXPECT_EQ(credit.outstanding(1), kUnit / 2);
  credit.begin(1, 4, both);  // 3/4 and 1/4 are more than the cap of 3/4: times 3/4 each.
  EXPECT_EQ(credit.weight(1), kUnit * 9 / 16);
  EXPECT_EQ(credit.weight(2), kUnit * 3 / 16);
  credit.delivered(1);  // The other died in mid-round.
  EXPECT_EQ(credit.outstanding(1), kUnit * 3 / 16);
  EXPECT_EQ(credit.outstanding(2), kUnit / 4);
  credit.begin(2, 3, one);  // A view of three members: a third per round from here on.
  EXPECT_EQ(credit.weight(2), kUnit / 4 + kUnit / 3);
}

TEST(PairCredit, OneRankAloneEarnsNothingItCouldSpend) {
  PairCredit credit(2, 0.9);
  credit.begin(1, 2, {});
  credit.begin(2, 1, {});
  EXPECT_GT(credit.earned(), 0U);
}

TEST(PairCredit, SpentAndOutstandingAreGammaTimesRoundsOverN) {
  // Selection-study 2.4. Random senders of random rounds, of which some are not complete, and
  // views that change; what is earned is recomputed here with exact integers.
  SplitMix64 random(4);
  for (int trial = 0; trial < 200; ++trial) {
    const auto world = static_cast<std::uint32_t>(2 + random.below(60));
    const auto micro = 1000 + random.below(999'001);
    PairCredit credit(world, static_cast<double>(micro) * 1e-6);
    const std::uint64_t gamma = (micro * kUnit + 500'000) / 1'000'000;  // To nearest.
    std::vector<std::uint64_t> spent(world, 0);
    std::uint64_t before = 0;
    auto members = world;
    for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
      const auto rounds = 1 + random.below(40);
      for (std::uint64_t round = 1; round <= rounds; ++round) {
        auto senders = all_but(0, members);
        std::erase_if(senders, [&](Rank) { return random.chance(0.7); });
        credit.begin(epoch, members, senders);
        std::uint64_t sum = 0;
        for (const Rank r : senders) {
          sum += credit.weight(r);
          ASSERT_LE(credit.weight(r), credit.outstanding(r));
          if (random.chance(0.1)) continue;
          spent[r] += credit.weight(r);
          credit.delivered(r);
        }
        ASSERT_LE(sum * members, kUnit * (members - 1));  // Never more than 1 - 1/n.
        ASSERT_EQ(credit.earned(), before + gamma * round / members);
        for (Rank r = 1; r < world; ++r) {
          ASSERT_EQ(credit.spent(r), spent[r]);
          ASSERT_EQ(credit.spent(r) + credit.outstanding(r), credit.earned());
        }
      }
      before = credit.earned();
      members = std::max<std::uint32_t>(2, members - static_cast<std::uint32_t>(random.below(3)));
    }
  }
}

TEST(PairCredit, OutstandingIsAtMostTheRoundsBetweenMeetings) {
  // A calm cycle: each pair meets once in k rounds and c of them at a time, so no more than k - 1
  // rounds' earnings are left when a round ends, and the cap never binds.
  constexpr std::uint32_t n = 13, c = 3, k = 4;
  PairCredit credit(n, 0.9);
  const auto others = all_but(0, n);
  const auto per_round = static_cast<double>(kUnit) * 0.9 / n;
  for (std::uint32_t round = 0; round < 100; ++round) {
    const std::span<const Rank> senders(&others[round % k * c], c);
    credit.begin(1, n, senders);
    for (const Rank r : senders) {
      if (round >= k) {
        EXPECT_NEAR(credit.weight(r), per_round * k, 1.0);
      }
      credit.delivered(r);
    }
    for (const Rank r : others) {
      EXPECT_LE(static_cast<double>(credit.outstanding(r)), per_round * (k - 1) + 1.0);
    }
  }
}

}  // namespace
}  // namespace selmcast
