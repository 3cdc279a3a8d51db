#include "sync/steps/stage_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/random.h"
#include "tests/unit/sync/meeting.h"

namespace selmcast {
namespace {

using testing_steps::Meeting;

TEST(ImportantBlocks, TakesTheBlocksOfTheLargestProducts) {
  // Three blocks of 16 and one of 2; |w g| of each by hand.
  std::vector<float> w(50, 1.0F), g(50, 0.0F);
  g[3] = 8.0F;                           // 8 / 16
  w[20] = -2.0F, g[20] = g[21] = -3.0F;  // 9 / 16
  g[40] = 7.0F;                          // 7 / 16
  w[48] = 0.5F, g[48] = 2.0F;            // 1 / 2
  ImportantBlocks blocks(50);
  ASSERT_EQ(blocks.block_elements(), 16U);
  const auto chosen = [&](double share) {
    blocks.choose(w, g, share);
    std::vector<std::size_t> out;
    blocks.for_each(true,
                    [&](std::size_t first, std::size_t, std::size_t) { out.push_back(first); });
    return out;
  };
  EXPECT_EQ(chosen(0.25), (std::vector<std::size_t>{16}));
  // Equal weights: the first one.
  EXPECT_EQ(chosen(0.5), (std::vector<std::size_t>{0, 16}));
  EXPECT_EQ(chosen(0.75), (std::vector<std::size_t>{0, 16, 48}));
  EXPECT_EQ(blocks.important(), 48U);
  EXPECT_EQ(chosen(0.0), (std::vector<std::size_t>{}));
  EXPECT_EQ(chosen(1.0), (std::vector<std::size_t>{0, 16, 32, 48}));
}

TEST(ImportantBlocks, EveryElementHasOnePlace) {
  SplitMix64 random(5);
  for (const std::size_t elements : {1U, 15U, 16U, 17U, 333U, 40'000U}) {
    ImportantBlocks blocks(elements);
    std::vector<float> w(elements), g(elements);
    for (int round = 0; round < 5; ++round) {
      for (auto& x : w) x = static_cast<float>(random.unit());
      for (auto& x : g) x = static_cast<float>(random.unit());
      blocks.choose(w, g, random.unit());
      std::vector<int> seen(elements, 0), places(blocks.places(), 0);
      for (const bool important : {true, false}) {
        blocks.for_each(important, [&](std::size_t first, std::size_t count, std::size_t at) {
          for (std::size_t i = 0; i < count; ++i) {
            ++seen.at(first + i);
            ++places.at(at + i);
            EXPECT_EQ(at + i < blocks.important(), important);
          }
        });
      }
      EXPECT_EQ(seen, std::vector<int>(elements, 1));
      // The last block, wherever it lies, leaves some of its places free.
      EXPECT_EQ(std::count(places.begin(), places.end(), 1), std::ssize(seen));
      EXPECT_EQ(std::count(places.begin(), places.end(), 0), std::ssize(places) - std::ssize(seen));
      EXPECT_LT(places.size(), elements + blocks.block_elements());
    }
  }
}

struct Replay {
  std::vector<double> agreed;
  std::vector<std::vector<double>> models;
};

/// What the paper's two stages do to quadratic losses |w - target_i|^2 / 2, by whole vectors: a
/// global model, and per worker the guess that stands in for the mean that is under way.
/// `important` says for each step which elements stage 1 takes.
Replay replay(const std::vector<std::vector<double>>& targets,
              const std::vector<std::vector<bool>>& important, double rate) {
  const auto n = targets.size(), d = targets[0].size();
  Replay out{std::vector<double>(d, 0.0),
             std::vector<std::vector<double>>(n, std::vector<double>(d, 0.0))};
  std::vector<double> late(d, 0.0);  // Mean steps that arrive at the end of the next step.
  for (const auto& in_first : important) {
    std::vector<std::vector<double>> steps(n, std::vector<double>(d));
    std::vector<double> mean(d, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t c = 0; c < d; ++c) {
        steps[i][c] = -rate * (out.models[i][c] - targets[i][c]);
        mean[c] += steps[i][c] / static_cast<double>(n);
      }
    }
    for (std::size_t c = 0; c < d; ++c) {
      out.agreed[c] += late[c] + (in_first[c] ? mean[c] : 0.0);
      late[c] = in_first[c] ? 0.0 : mean[c];
      for (std::size_t i = 0; i < n; ++i) {
        out.models[i][c] = out.agreed[c] + (in_first[c] ? 0.0 : steps[i][c]);
      }
    }
  }
  for (std::size_t c = 0; c < d; ++c) {
    out.agreed[c] += late[c];
    for (auto& model : out.models) model[c] = out.agreed[c];
  }
  return out;
}

struct Ranks {
  explicit Ranks(std::uint32_t n, std::size_t d, const char* text)
      : meeting(n), models(n, std::vector<float>(d, 0.0F)) {
    const auto policy = parse_policy(text).value();
    for (std::uint32_t i = 0; i < n; ++i) {
      seats.push_back(std::make_unique<Meeting::Seat>(meeting, i));
      steppers.push_back(make_stepper(policy, models[i], *seats[i], 7));
      meeting.streams[i] = steppers[i]->stream();
    }
  }
  template <class Work>
  void run(Work work) {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < models.size(); ++i) threads.emplace_back([&, i] { work(i); });
    for (auto& thread : threads) thread.join();
  }

  Meeting meeting;
  std::vector<std::vector<float>> models;
  std::vector<std::unique_ptr<Meeting::Seat>> seats;
  std::vector<std::unique_ptr<Stepper>> steppers;
};

TEST(StageExchange, FollowsThePublishedStages) {
  constexpr std::uint32_t n = 3;
  constexpr std::size_t d = 100;
  constexpr int steps = 40;
  for (const char* text : {"osp2 pace=stages:0.3", "osp2 pace=stages:0", "osp2 pace=stages:0.9"}) {
    const auto policy = parse_policy(text);
    const double share = policy->pace.first_share.value();
    std::vector<std::vector<double>> targets(n, std::vector<double>(d));
    SplitMix64 random(3);
    for (auto& target : targets) {
      for (auto& x : target) x = random.unit() - 0.5;
    }
    Ranks ranks(n, d, text);
    // What each step divides, asked of the blocks by what rank 0's agreed values did: those are
    // tested above. Whatever the division, the stages must follow it.
    std::vector<std::vector<bool>> important;
    ranks.run([&](std::uint32_t i) {
      for (int step = 0; step < steps; ++step) {
        const auto before = ranks.steppers[i]->stages()->agreed();
        std::vector<float> old(before.begin(), before.end());
        for (std::size_t c = 0; c < d; ++c) {
          ranks.models[i][c] -= 0.2F * (ranks.models[i][c] - static_cast<float>(targets[i][c]));
        }
        ASSERT_TRUE(ranks.steppers[i]->step());
        if (i != 0) continue;
        // Elements of stage 1 hold what is agreed on, the others a guess of their own.
        std::vector<bool> row(d);
        const auto now = ranks.steppers[i]->stages()->agreed();
        for (std::size_t c = 0; c < d; ++c) row[c] = ranks.models[i][c] == now[c];
        important.push_back(row);
      }
      ASSERT_TRUE(ranks.steppers[i]->finish());
    });
    for (const auto& row : important) {
      const auto count = std::count(row.begin(), row.end(), true);
      EXPECT_NEAR(static_cast<double>(count), share * d, 12) << text;
    }
    const auto want = replay(targets, important, 0.2);
    for (std::uint32_t i = 0; i < n; ++i) {
      EXPECT_EQ(ranks.models[i], ranks.models[0]);
      for (std::size_t c = 0; c < d; ++c) {
        ASSERT_NEAR(static_cast<double>(ranks.models[i][c]), want.agreed[c], 1e-5)
            << text << " element " << c;
      }
    }
  }
}

TEST(StageExchange, AllBehindTheBarrierIsBspBitForBit) {
  constexpr std::size_t d = 48;
  std::vector<std::vector<float>> bsp, staged;
  for (const char* text : {"pace=bsp", "osp2 pace=stages:1"}) {
    Ranks ranks(4, d, text);
    ranks.run([&](std::uint32_t i) {
      SplitMix64 random(i);
      for (int step = 0; step < 30; ++step) {
        for (auto& w : ranks.models[i]) {
          w += static_cast<float>(static_cast<int>(random.below(65)) - 32) / 64.0F;
        }
        ASSERT_TRUE(ranks.steppers[i]->step());
      }
      ASSERT_TRUE(ranks.steppers[i]->finish());
    });
    (bsp.empty() ? bsp : staged) = ranks.models;
  }
  EXPECT_EQ(staged, bsp);
}

// One rank alone; the test is the network.
class StagesAlone : public testing::Test {
 protected:
  std::vector<float> w = std::vector<float>(320, 1.0F);
};

TEST_F(StagesAlone, WhatCanBeHiddenGrowsAndShrinksWithTheWaiting) {
  StageExchange exchange(w, std::nullopt);
  std::vector<double> shares;
  const auto step = [&](bool early) {
    for (auto& x : w) x += 0.5F;
    shares.push_back(exchange.share());
    exchange.depart_first();
    ASSERT_TRUE(exchange.arrive_first());
    if (exchange.rest_count() == 0) return;
    exchange.depart_rest();
    exchange.arrive_rest(early);
  };
  for (int i = 0; i < 40; ++i) step(true);
  EXPECT_EQ(shares[0], 1.0);
  // Announced in the second step, by all, and taken in the third.
  EXPECT_EQ(shares[1], 1.0);
  EXPECT_EQ(shares[2], 31.0 / 32);
  for (std::size_t i = 1; i < shares.size(); ++i) EXPECT_LE(shares[i], shares[i - 1]);
  EXPECT_EQ(shares.back(), 6.0 / 32);
  for (int i = 0; i < 30; ++i) step(false);
  EXPECT_GE(shares.back(), 30.0 / 32);
  for (int i = 0; i < 30; ++i) step(true);
  EXPECT_LE(shares.back(), 8.0 / 32);
}

TEST_F(StagesAlone, DifferentSetsMergeNothingAndEverythingIsExchangedInstead) {
  StageExchange exchange(w, 0.5);
  for (auto& x : w) x += 0.5F;
  exchange.depart_first();
  exchange.stream()[1] += 1.0F;  // The mean of different fingerprints.
  for (std::size_t i = 3; i < exchange.first_count(); ++i) exchange.stream()[i] = 77.0F;
  ASSERT_FALSE(exchange.arrive_first());
  EXPECT_EQ(exchange.mismatches(), 1U);
  EXPECT_EQ(exchange.agreed()[0], 1.0F);
  exchange.depart_all();
  for (std::size_t i = 3; i < exchange.stream().size(); ++i) {
    EXPECT_EQ(exchange.stream()[i], 1.5F);
    exchange.stream()[i] = 2.0F;  // The mean.
  }
  exchange.arrive_all();
  EXPECT_EQ(w, std::vector<float>(320, 2.0F));
}

TEST_F(StagesAlone, ALevelThatNotAllAnnouncedIsNotTaken) {
  StageExchange exchange(w, std::nullopt);
  for (int i = 0; i < 8; ++i) {
    exchange.depart_first();
    ASSERT_TRUE(exchange.arrive_first());
    if (exchange.rest_count() == 0) continue;
    exchange.depart_rest();
    exchange.arrive_rest(true);
  }
  ASSERT_LT(exchange.share(), 1.0);
  exchange.depart_first();
  exchange.stream()[2] += 0.25F;
  ASSERT_TRUE(exchange.arrive_first());
  EXPECT_EQ(exchange.share(), 1.0);
}

}  // namespace
}  // namespace selmcast
