#include "sync/steps/delta_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/random.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

/// n ranks with a model each; rounds are exact means in double.
struct Ranks {
  Ranks(std::uint32_t n, std::uint32_t elements, double gamma,
        std::optional<SlimShares> slim = std::nullopt, WireElement element = WireElement::f32)
      : models(n, Floats(elements, 0.0F)) {
    exchanges.reserve(n);
    for (auto& model : models) exchanges.emplace_back(model, gamma, slim, 42, element);
  }

  void depart(bool last = false) {
    for (auto& exchange : exchanges) exchange.depart(last);
  }
  void mean() {
    for (std::size_t i = 0; i < exchanges[0].stream().size(); ++i) {
      double sum = 0.0;
      for (auto& exchange : exchanges) sum += static_cast<double>(exchange.stream()[i]);
      const auto value = static_cast<float>(sum / static_cast<double>(exchanges.size()));
      for (auto& exchange : exchanges) exchange.stream()[i] = value;
    }
  }
  void arrive() {
    for (auto& exchange : exchanges) exchange.arrive();
  }

  std::vector<Floats> models;
  std::vector<DeltaExchange> exchanges;
};

/// A multiple of 1/64 between -1 and 1, so that sums and means over 2^k ranks are exact.
float dyadic(SplitMix64& random) {
  return (static_cast<float>(random.below(129)) - 64.0F) / 64.0F;
}

/// What a job in which steps do not depend on the model did: dyadic steps, K of each round drawn.
void expect_conservation(std::optional<SlimShares> slim, std::uint64_t seed) {
  constexpr std::uint32_t n = 4, elements = 37;
  SplitMix64 random(seed);
  Ranks ranks(n, elements, 0.0, slim);
  std::vector<double> done(elements, 0.0);
  const auto steps = [&] {
    for (auto& model : ranks.models) {
      for (auto k = random.below(4); k > 0; --k) {
        for (std::uint32_t c = 0; c < elements; ++c) {
          const float step = dyadic(random) / 16.0F;
          model[c] += step;
          done[c] += static_cast<double>(step);
        }
      }
    }
  };
  for (std::uint32_t round = 0; round < 60; ++round) {
    steps();
    ranks.depart();
    steps();
    ranks.mean();
    ranks.arrive();
    for (std::uint32_t c = 0; c < elements; ++c) {
      double own = 0.0;
      for (auto& exchange : ranks.exchanges) own += static_cast<double>(exchange.own()[c]);
      for (auto& exchange : ranks.exchanges) {
        ASSERT_NEAR(static_cast<double>(exchange.agreed()[c]) + own / n, done[c] / n, 1e-6)
            << "round " << round << " coordinate " << c;
        ASSERT_EQ(exchange.agreed()[c], ranks.exchanges[0].agreed()[c]);
      }
    }
  }
}

TEST(DeltaExchange, LosesNoStepAndCountsNoneTwice) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) expect_conservation(std::nullopt, seed);
}

TEST(DeltaExchange, LosesNoStepWhenOnlyAPartTravels) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    expect_conservation(SlimShares{0.3, 0.15, 4}, seed);
    expect_conservation(SlimShares{0.1, 0.0, 1}, seed);
  }
}

/// Whether a float32 is a number of the type: bfloat16 keeps the upper 16 bits; binary16, between
/// its least normal and its largest number, 10 bits behind the first.
bool of_type(WireElement element, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & (element == WireElement::bf16 ? 0xFFFFU : 0x1FFFU)) == 0;
}

TEST(DeltaExchange, WhatIsRoundedAwayTravelsLater) {
  constexpr std::uint32_t n = 4, elements = 300;  // More than a block.
  for (const auto element : {WireElement::bf16, WireElement::f16}) {
    SplitMix64 random(3);
    Ranks ranks(n, elements, 0.0, std::nullopt, element);
    std::vector<double> done(elements, 0.0);
    for (std::uint32_t round = 0; round < 200; ++round) {
      for (auto& model : ranks.models) {
        for (std::uint32_t c = 0; c < elements; ++c) {
          // Always upwards, and soon far below half a unit in the last place of the sum.
          const auto step = static_cast<float>(1 + random.below(64)) / 65536.0F;
          const float before = model[c];
          model[c] += step;
          done[c] += static_cast<double>(model[c]) - static_cast<double>(before);
        }
      }
      ranks.depart();
      for (auto& exchange : ranks.exchanges) {
        for (const float value : exchange.stream()) ASSERT_TRUE(of_type(element, value)) << value;
      }
      ranks.mean();
      ranks.arrive();
      for (std::uint32_t c = 0; c < elements; ++c) {
        double own = 0.0;
        for (auto& exchange : ranks.exchanges) {
          own += static_cast<double>(exchange.own()[c]);
          // At most half a unit of the last of 8 or 11 bits, of values below 1/4.
          ASSERT_LE(std::abs(exchange.own()[c]), element == WireElement::bf16 ? 0x1p-11 : 0x1p-14);
        }
        ASSERT_NEAR(static_cast<double>(ranks.exchanges[0].agreed()[c]) + own / n, done[c] / n,
                    1e-5)
            << "round " << round << " coordinate " << c;
      }
    }
    EXPECT_GT(done[0] / n, 0.09) << "200 steps of 1/2048 on average";
  }
}

TEST(DeltaExchange, WhatIsTooLargeForTheTypeWaits) {
  Ranks ranks(2, 1, 0.0, std::nullopt, WireElement::f16);
  for (auto& model : ranks.models) model[0] = 100'000.0F;
  ranks.depart();
  ranks.mean();
  ranks.arrive();
  // The largest binary16, and the rest.
  EXPECT_EQ(ranks.exchanges[0].agreed()[0], 65504.0F);
  EXPECT_EQ(ranks.exchanges[0].own()[0], 34496.0F);
}

/// The loops of OSP and LOSP as published, on one coordinate with gradient w - target_i, in double:
/// every round the server merges what was accumulated up to the departure; the worker then starts
/// from it, less gamma times what it accumulated since.
struct Published {
  double gamma;  ///< In units of the learning rate.
  std::vector<double> target;
  double eta = 0.05;
  double omega = 0.0;
  std::vector<double> w = std::vector<double>(target.size(), 0.0);
  std::vector<double> gathered = w, sent = w;

  void step(std::size_t i) {
    const double gradient = w[i] - target[i];
    w[i] -= eta * gradient;
    gathered[i] += gradient;
  }
  void send() {
    sent = gathered;
    std::fill(gathered.begin(), gathered.end(), 0.0);
  }
  void merge() {
    double sum = 0.0;
    for (const double g : sent) sum += g;
    omega -= eta * sum / static_cast<double>(sent.size());
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = omega - gamma * eta * gathered[i];
  }
};

class Overlapped : public testing::TestWithParam<double> {};

TEST_P(Overlapped, FollowsThePublishedLoop) {
  const std::vector<double> target{1.0, -2.0, 0.5, 3.0, -0.25};
  Published book{GetParam(), target};
  Ranks ranks(5, 1, GetParam());
  SplitMix64 random(9);
  const auto step = [&](std::size_t i) {
    book.step(i);
    ranks.models[i][0] -= 0.05F * (ranks.models[i][0] - static_cast<float>(target[i]));
  };
  const auto several = [&](std::uint32_t most) {
    for (std::size_t i = 0; i < target.size(); ++i) {
      for (auto k = 1 + random.below(most); k > 0; --k) step(i);
    }
  };
  several(1);
  for (std::uint32_t round = 0; round < 300; ++round) {
    book.send();
    ranks.depart();
    several(6);  // while the round is under way
    ranks.mean();
    book.merge();
    ranks.arrive();
    for (std::size_t i = 0; i < target.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(ranks.models[i][0]), book.w[i], 1e-5) << round;
      ASSERT_NEAR(static_cast<double>(ranks.exchanges[i].agreed()[0]), book.omega, 1e-5) << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OspAndLosp, Overlapped, testing::Values(0.0, 1.0, 1.5));

// Without delay nothing is ever unmerged, so gamma does not matter and the models are those of
// local SGD: every rank steps H times, then all take the mean.
TEST(DeltaExchange, WithoutDelayIsLocalSgdBitForBit) {
  constexpr std::uint32_t n = 4, elements = 23;
  for (const double gamma : {0.0, 1.5}) {
    SplitMix64 random(5);
    Ranks ranks(n, elements, gamma);
    std::vector<Floats> local(n, Floats(elements, 0.0F));
    for (std::uint32_t round = 0; round < 4; ++round) {
      for (std::uint32_t i = 0; i < n; ++i) {
        for (std::uint32_t step = 0; step < 3 * elements; ++step) {
          const float change = dyadic(random);
          ranks.models[i][step % elements] += change;
          local[i][step % elements] += change;
        }
      }
      ranks.depart();
      ranks.mean();
      ranks.arrive();
      for (std::uint32_t c = 0; c < elements; ++c) {
        float sum = 0.0F;
        for (const auto& model : local) sum += model[c];
        for (auto& model : local) model[c] = sum / static_cast<float>(n);
      }
      for (std::uint32_t i = 0; i < n; ++i) ASSERT_EQ(ranks.models[i], local[i]);
    }
  }
}

TEST(DeltaExchange, SaysWhenAllHaveNothingMoreToDo) {
  Ranks ranks(3, 2, 0.0);
  ranks.exchanges[0].depart(true);
  ranks.exchanges[1].depart(true);
  ranks.exchanges[2].depart(false);
  ranks.mean();
  ranks.arrive();
  for (auto& exchange : ranks.exchanges) EXPECT_FALSE(exchange.all_last());
  ranks.depart(true);
  ranks.mean();
  ranks.arrive();
  for (auto& exchange : ranks.exchanges) EXPECT_TRUE(exchange.all_last());
}

TEST(DeltaExchange, SendsTheShareOfTheParameters) {
  for (const double alpha : {0.1, 0.3, 0.5}) {
    Ranks ranks(2, 10'000, 1.0, SlimShares{alpha, alpha / 2, 20});
    EXPECT_NEAR(static_cast<double>(ranks.exchanges[0].stream().size()), alpha * 10'000,
                0.01 * alpha * 10'000);
  }
  Ranks dense(2, 10'000, 1.0);
  EXPECT_LE(dense.exchanges[0].stream().size(), 10'002U);
}

TEST(DeltaExchange, KeepsWhatDoesNotTravelInTheWorker) {
  Ranks ranks(2, 100, 1.0, SlimShares{0.2, 0.0, 20});
  for (float& value : ranks.models[0]) value = 1.0F;
  ranks.depart();
  ranks.mean();
  ranks.arrive();
  std::uint32_t merged = 0, kept = 0;
  for (std::uint32_t c = 0; c < 100; ++c) {
    const float at_0 = ranks.models[0][c], at_1 = ranks.models[1][c];
    if (at_0 == 0.5F && at_1 == 0.5F) ++merged;
    if (at_0 == 1.0F && at_1 == 0.0F) ++kept;
  }
  EXPECT_EQ(merged, 20U);
  EXPECT_EQ(kept, 80U);
  EXPECT_EQ(ranks.exchanges[0].flush_rounds(), 5U);
  for (auto& exchange : ranks.exchanges) exchange.begin_flush();
  for (std::uint32_t round = 0; round < 5; ++round) {
    ranks.depart();
    ranks.mean();
    ranks.arrive();
  }
  for (std::uint32_t c = 0; c < 100; ++c) {
    EXPECT_EQ(ranks.models[0][c], 0.5F);
    EXPECT_EQ(ranks.models[1][c], 0.5F);
  }
}

// A rank that died in the middle of a round leaves ranks with different agreed parameters: the
// dense exchange agrees again at once, the partial one notices other sets and exchanges all once.
TEST(DeltaExchange, RanksAgreeAgainAfterTheyDiffered) {
  constexpr std::uint32_t n = 4, elements = 200;
  for (const bool part : {false, true}) {
    Ranks ranks(n, elements, 1.0, part ? std::optional(SlimShares{0.25, 0.2, 1}) : std::nullopt);
    SplitMix64 random(8);
    for (auto& model : ranks.models) {
      for (float& value : model) value = dyadic(random);
    }
    ranks.depart();
    // Half of the ranks hear other values in this round than the others.
    ranks.mean();
    for (std::uint32_t i = 0; i < n / 2; ++i) {
      auto stream = ranks.exchanges[i].stream();
      for (std::size_t c = 0; c + 2 < stream.size(); ++c) stream[c] += static_cast<float>(c + 1);
    }
    ranks.arrive();
    for (std::uint32_t round = 0; round < 12; ++round) {
      ranks.depart();
      ranks.mean();
      ranks.arrive();
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      EXPECT_THAT(ranks.exchanges[i].agreed(),
                  testing::ElementsAreArray(ranks.exchanges[0].agreed()));
      EXPECT_EQ(ranks.exchanges[i].mismatches(), part ? 1U : 0U);
    }
  }
}

}  // namespace
}  // namespace selmcast
