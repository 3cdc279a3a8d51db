// mix=cumulative: the table against an independent loop, and what it promises.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "sync/policy_coherence.h"
#include "sync/steps/cumulative_mix.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

/// n ranks that deliver to one another as told.
struct Gossip {
  Gossip(std::uint32_t n, const Floats& start) : models(n, start) {
    for (std::uint32_t r = 0; r < n; ++r) mixes.emplace_back(models[r], n, r);
  }
  void depart() {
    for (auto& mix : mixes) mix.depart();
  }
  void deliver(std::uint32_t from, std::uint32_t to) {
    mixes[to].table()->put(from, 0, std::as_bytes(mixes[from].stream()));
  }
  void arrive() {
    for (auto& mix : mixes) mix.arrive();
  }
  std::vector<Floats> models;
  std::vector<CumulativeMix> mixes;
};

/// Of everybody's steps, all of them multiples of 1/64: sums of some hundreds are exact.
float step_of(SplitMix64& random) {
  return (static_cast<float>(random.below(129)) - 64.0F) / 64.0F;
}

// The rule written down anew: lists of steps instead of sums, and who has heard how many of them.
TEST(CumulativeMix, FollowsAnIndependentLoop) {
  constexpr std::uint32_t n = 5, elements = 7;
  SplitMix64 random(11);
  const Floats start(elements, 2.0F);
  Gossip gossip(n, start);
  std::vector<std::vector<Floats>> steps(n);  // By rank and round.
  std::vector<std::vector<std::size_t>> heard(n, std::vector<std::size_t>(n, 0));
  for (std::size_t round = 1; round <= 60; ++round) {
    for (std::uint32_t r = 0; r < n; ++r) {
      Floats step(elements);
      for (std::uint32_t i = 0; i < elements; ++i) {
        step[i] = step_of(random);
        const float before = gossip.models[r][i];
        gossip.models[r][i] += step[i];
        step[i] = gossip.models[r][i] - before;  // What it came to after rounding.
      }
      steps[r].push_back(step);
      heard[r][r] = round;
    }
    gossip.depart();
    for (std::uint32_t from = 0; from < n; ++from) {
      for (std::uint32_t to = 0; to < n; ++to) {
        if (from == to || random.below(3) != 0) continue;
        for (auto times = 1 + random.below(2); times > 0; --times) gossip.deliver(from, to);
        heard[to][from] = round;
      }
    }
    gossip.arrive();
    for (std::uint32_t r = 0; r < n; ++r) {
      for (std::uint32_t i = 0; i < elements; ++i) {
        double want = 2.0;
        for (std::uint32_t from = 0; from < n; ++from) {
          for (std::size_t t = 0; t < heard[r][from]; ++t) {
            want += static_cast<double>(steps[from][t][i]) / n;
          }
        }
        ASSERT_NEAR(static_cast<double>(gossip.models[r][i]), want, 1e-5) << "round " << round;
      }
    }
  }
}

TEST(CumulativeMix, WhenAllHaveHeardAllTheyHoldTheSameBits) {
  constexpr std::uint32_t n = 4, elements = 9;
  SplitMix64 random(5);
  Gossip gossip(n, Floats(elements, 1.0F));
  std::vector<double> done(elements, 0.0);
  for (std::uint32_t round = 0; round < 40; ++round) {
    for (auto& model : gossip.models) {
      for (std::uint32_t i = 0; i < elements; ++i) {
        // Whole multiples of n, so that nothing is ever rounded.
        const auto step = static_cast<float>(n * random.below(5));
        model[i] += step;
        done[i] += static_cast<double>(step);
      }
    }
    gossip.depart();
    for (std::uint32_t to = 0; to < n; ++to) gossip.deliver((to + 1 + round % 2) % n, to);
    gossip.arrive();
  }
  gossip.depart();
  for (std::uint32_t from = 0; from < n; ++from) {
    for (std::uint32_t to = 0; to < n; ++to) {
      if (from != to) gossip.deliver(from, to);
    }
  }
  gossip.arrive();
  for (const auto& model : gossip.models) {
    for (std::uint32_t i = 0; i < elements; ++i) {
      EXPECT_EQ(static_cast<double>(model[i]), 1.0 + done[i] / n);
    }
  }
}

TEST(CumulativeMix, SmallStepsAreNotLostInALargeSum) {
  Floats w{0.0F};
  CumulativeMix mix(w, 2, 0);
  w[0] = 0x1p24F;
  mix.depart();
  mix.arrive();
  EXPECT_EQ(w[0], 0x1p23F);
  // Each is half a unit in the last place of a float32 of 2^24, which would stay there for ever.
  for (int i = 0; i < 1000; ++i) {
    w[0] += 1.0F;
    mix.depart();
    mix.arrive();
  }
  EXPECT_EQ(mix.stream()[0], 0x1p24F + 1000.0F);
}

TEST(CumulativeMix, MemoryAndAgesAreBounded) {
  const auto policy = parse_policy("select=selmcast:2 mix=cumulative");
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(to_string(*policy),
            "share=even select=selmcast:2 route=star pace=bsp mix=cumulative codec=identity "
            "order=fifo groups=rows");
  EXPECT_TRUE(check_policy(*policy, 17));
  EXPECT_TRUE(check_policy(*policy, 18));  // The usual bound is 8 rounds however many ranks.
  EXPECT_TRUE(check_policy(*parse_policy("select=selmcast:2,8 mix=cumulative"), 18));
  const auto old = check_policy(*parse_policy("select=selmcast:2,9 mix=cumulative"), 18);
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().message.find("9 rounds old"), std::string::npos) << old.error().message;
  const auto any = check_policy(*parse_policy("select=random:2 mix=cumulative"), 4);
  ASSERT_FALSE(any);
  EXPECT_NE(any.error().message.find("of any age"), std::string::npos) << any.error().message;
  // 8 ranks: 19 copies; 4 GiB / 19 = 226 050 910.3.
  EXPECT_TRUE(check_parameters(*policy, 8, 226'050'910));
  const auto large = check_parameters(*policy, 8, 226'050'911);
  ASSERT_FALSE(large);
  EXPECT_NE(large.error().message.find("19 copies"), std::string::npos) << large.error().message;
  EXPECT_TRUE(check_parameters(*parse_policy("mix=age"), 8, std::uint64_t{1} << 40U));
}

}  // namespace
}  // namespace selmcast
