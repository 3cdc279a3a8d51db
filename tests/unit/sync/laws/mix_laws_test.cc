// Laws of the Mix axis, for every row of mixes.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "tests/unit/sync/laws/mixes.h"

namespace selmcast::laws {
namespace {

constexpr std::size_t kElements = 57;  // The last frame is short.

std::vector<Floats> random_models(std::size_t ranks, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<Floats> out(ranks, Floats(kElements));
  for (auto& model : out) {
    for (auto& x : model) x = static_cast<float>(random.unit() * 2 - 1);
  }
  return out;
}

Senders all_hear_all(std::size_t ranks) {
  Senders out(ranks);
  for (Rank r = 0; r < ranks; ++r) {
    for (Rank s = 0; s < ranks; ++s) {
      if (s != r) out[r].push_back(s);
    }
  }
  return out;
}

/// Rank r hears the `degree` ranks from r + shift on: all degrees are equal.
Senders ring(std::size_t ranks, std::size_t degree, std::size_t shift) {
  Senders out(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t d = 0; d < degree; ++d) {
      out[r].push_back(static_cast<Rank>((r + 1 + (shift + d) % (ranks - 1)) % ranks));
    }
  }
  return out;
}

Senders drawn(std::size_t ranks, SplitMix64& random) {
  auto out = all_hear_all(ranks);
  for (auto& senders : out) {
    std::erase_if(senders, [&](Rank) { return random.chance(0.5); });
  }
  return out;
}

std::vector<double> sums(const std::vector<Floats>& models) {
  std::vector<double> out(kElements, 0.0);
  for (const auto& model : models) {
    for (std::size_t i = 0; i < kElements; ++i) out[i] += static_cast<double>(model[i]);
  }
  return out;
}

void expect_kept_sums(const std::vector<Floats>& models, const std::vector<double>& before,
                      const std::string& what) {
  const auto now = sums(models);
  for (std::size_t i = 0; i < kElements; ++i) {
    // 1e-6 of the numbers that are added, which are up to 1 each.
    ASSERT_NEAR(now[i], before[i], 1e-6 * static_cast<double>(models.size()))
        << what << " at " << i;
  }
}

TEST(MixLaws, TheSumOverAllRanksIsKept) {
  for (const auto& row : mixes()) {
    if (!row.keeps_mean) continue;
    for (const std::size_t n : {2U, 3U, 8U}) {
      auto models = random_models(n, n);
      const auto before = sums(models);
      const auto mixer = row.make(models);
      for (int r = 0; r < 4; ++r) {
        mixer->round(models, all_hear_all(n));
        expect_kept_sums(models, before, row.name);
      }
      if (!row.partial || !row.regular_mean) continue;
      models = random_models(n, n);
      for (std::size_t r = 0; r < 8; ++r) {
        mixer->round(models, ring(n, 1 + (n - 1) / 3, r));
        expect_kept_sums(models, before, row.name + " on a ring");
      }
    }
  }
}

TEST(MixLaws, WithoutLagItIsTheMeanOfAll) {
  for (const auto& row : mixes()) {
    for (const std::size_t n : {2U, 5U}) {
      auto models = random_models(n, 7 + n);
      const auto before = sums(models);
      row.without_lag(models)->round(models, all_hear_all(n));
      for (const auto& model : models) {
        for (std::size_t i = 0; i < kElements; ++i) {
          ASSERT_NEAR(model[i], before[i] / static_cast<double>(n), 1e-6 + 2 * row.step)
              << row.name;
        }
      }
    }
  }
}

std::uint32_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

TEST(MixLaws, RanksThatAgreeStayAsTheyAreBitForBit) {
  SplitMix64 random(31);
  for (const auto& row : mixes()) {
    if (!row.keeps_equal) continue;
    for (const std::size_t n : {2U, 3U, 7U}) {
      auto model = random_models(1, n)[0];
      model[0] = row.keeps_zero_sign ? -0.0F : 0.0F;
      model[1] = std::numeric_limits<float>::denorm_min();
      model[2] = -1e-30F;
      model[3] = 3e4F;
      std::vector<Floats> models(n, model);
      const auto mixer = row.make(models);
      for (int r = 0; r < 5; ++r) {
        mixer->round(models, row.partial ? drawn(n, random) : all_hear_all(n));
        for (const auto& now : models) {
          for (std::size_t i = 0; i < kElements; ++i) {
            ASSERT_EQ(bits(now[i]), bits(model[i])) << row.name << ", " << model[i];
          }
        }
      }
    }
  }
}

TEST(MixLaws, NoRankLeavesTheRangeOfWhatItMixed) {
  SplitMix64 random(32);
  for (const auto& row : mixes()) {
    for (const std::size_t n : {2U, 3U, 9U}) {
      auto models = random_models(n, 40 + n);
      const auto mixer = row.make(models);
      for (int r = 0; r < 12; ++r) {
        const auto heard = row.partial ? drawn(n, random) : all_hear_all(n);
        const auto before = models;
        mixer->round(models, heard);
        for (Rank k = 0; k < n; ++k) {
          for (std::size_t i = 0; i < kElements; ++i) {
            float low = before[k][i], high = low;
            for (const Rank s : heard[k]) {
              low = std::min(low, before[s][i]);
              high = std::max(high, before[s][i]);
            }
            // Values are within 1: a unit in the last place of their sums, and what travelling
            // rounds.
            const auto slack = static_cast<float>(1e-6 + 2 * row.step);
            ASSERT_GE(models[k][i], low - slack) << row.name;
            ASSERT_LE(models[k][i], high + slack) << row.name;
          }
        }
      }
    }
  }
}

// A sender that dies in mid-round leaves whole frames: each is mixed, or not, for itself.
TEST(MixLaws, LostFramesLeaveWhatThereWasAndTheRangeOfWhatCame) {
  for (const auto mix : {MixKind::average, MixKind::sgd, MixKind::age}) {
    for (const bool deterministic : {false, true}) {
      constexpr std::size_t n = 5;
      auto models = random_models(n, 60);
      EngineRounds rounds({mix, deterministic}, n, kElements);
      constexpr std::size_t per_frame = EngineRounds::kFramePayload / sizeof(float);
      SplitMix64 random(61);
      for (int r = 0; r < 20; ++r) {
        const auto before = models;
        std::vector<std::vector<std::vector<Rank>>> came(
            n, std::vector<std::vector<Rank>>(rounds.shape().frames()));
        const auto lost = [&](std::uint32_t frame, Rank from, Rank to) {
          if (random.chance(0.6)) return true;
          came[to][frame].push_back(from);
          return false;
        };
        rounds.round({models.begin(), models.end()}, all_hear_all(n), lost);
        for (Rank k = 0; k < n; ++k) {
          for (std::size_t i = 0; i < kElements; ++i) {
            const auto& senders = came[k][i / per_frame];
            float low = before[k][i], high = low;
            for (const Rank s : senders) {
              low = std::min(low, before[s][i]);
              high = std::max(high, before[s][i]);
            }
            if (senders.empty()) {
              ASSERT_EQ(models[k][i], before[k][i]);
            }
            ASSERT_GE(models[k][i], low - 1e-6F);
            ASSERT_LE(models[k][i], high + 1e-6F);
          }
        }
      }
    }
  }
}

// gamma = 1, n = 4: rank 0 hears rank 1 with a quarter. Half of the frames are lost, so nothing is
// spent; the next round, which is whole, counts both quarters.
TEST(MixLaws, AnIncompleteDeliverySpendsNoCredit) {
  constexpr std::size_t n = 4;
  std::vector<Floats> models(n, Floats(kElements, 0.0F));
  models[1].assign(kElements, 1.0F);
  EngineRounds rounds({MixKind::age, false, WireElement::f32, 1.0}, n, kElements);
  const Senders heard{{1}, {}, {}, {}};
  const auto odd = [](std::uint32_t frame, Rank, Rank) { return frame % 2 == 1; };
  rounds.round({models.begin(), models.end()}, heard, odd);
  EXPECT_EQ(models[0].front(), 0.25F);
  EXPECT_EQ(models[0][10], 0.0F);  // The second frame.
  rounds.round({models.begin(), models.end()}, heard);
  EXPECT_EQ(models[0].front(), 0.625F);
  EXPECT_EQ(models[0][10], 0.5F);
  rounds.round({models.begin(), models.end()}, heard);
  EXPECT_EQ(models[0][10], 0.625F);
}

// Selection-study 2.2: where in-degrees differ, plain gossip settles nearer to the targets of ranks
// that are heard more often; credit makes every pair count the same over time.
TEST(MixLaws, CreditTakesTheBiasOfUnequalInDegrees) {
  constexpr std::size_t n = 8, degrees[n] = {7, 6, 4, 3, 2, 2, 1, 1};
  const auto bias = [&](MixKind mix) {
    std::vector<Floats> models(n, Floats(kElements, 0.0F));
    EngineRounds rounds({mix, false, WireElement::f32, 1.0}, n, kElements);
    double off = 0.0;
    for (std::size_t r = 0; r < 3000; ++r) {
      Senders heard(n);
      for (std::size_t k = 0; k < n; ++k) {
        for (std::size_t d = 0; d < degrees[k]; ++d) {
          heard[k].push_back(static_cast<Rank>((k + 1 + (r * degrees[k] + d) % (n - 1)) % n));
        }
        // The target of rank k is k; the mean of all is 3.5.
        for (float& x : models[k]) x -= 0.02F * (x - static_cast<float>(k));
      }
      rounds.round({models.begin(), models.end()}, heard);
      if (r >= 2000) off += sums(models)[0] / n - 3.5;
    }
    return std::abs(off / 1000);
  };
  const double average = bias(MixKind::average), age = bias(MixKind::age);
  EXPECT_GT(average, 0.3);
  EXPECT_LT(age, average / 5);
}

TEST(MixLaws, TalkingBringsAllTogether) {
  for (const auto& row : mixes()) {
    if (row.step > 0) continue;  // 16 bits stop where their units do.
    constexpr std::size_t n = 6;
    auto models = random_models(n, 50);
    const auto mixer = row.make(models);
    for (std::size_t r = 0; r < 400; ++r) {
      mixer->round(models, row.partial ? ring(n, 2, 2 * r) : all_hear_all(n));
    }
    for (std::size_t i = 0; i < kElements; ++i) {
      for (const auto& model : models) ASSERT_NEAR(model[i], models[0][i], 1e-6) << row.name;
    }
  }
}

}  // namespace
}  // namespace selmcast::laws
