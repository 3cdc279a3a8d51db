#include "sync/steps/stepper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/random.h"
#include "sync/steps/delta_exchange.h"
#include "tests/unit/sync/meeting.h"

namespace selmcast {
namespace {

using testing_steps::Meeting;
using Floats = std::vector<float>;

Policy policy_of(const char* text) {
  auto policy = parse_policy(text);
  EXPECT_TRUE(policy) << (policy ? "" : policy.error().message);
  return policy ? *policy : Policy{};
}

/// One rank alone: a round closes when the test says so, and changes nothing.
class Alone final : public Rounds {
 public:
  void push() override { ++pushed; }
  void push_part(std::size_t, std::size_t) override { ++pushed; }
  bool settled() const noexcept override { return ready; }
  Result<RoundReport> wait() override {
    ++waited;
    ready = false;
    RoundReport report;
    report.round = closed++;
    return report;
  }
  Result<void> pass(bool last, std::vector<RoundReport>& reports) override {
    lasts.push_back(last);
    reports.insert(reports.end(), ended.begin(), ended.end());
    ended.clear();
    return {};
  }
  std::vector<bool> lasts;
  std::vector<RoundReport> ended;
  std::uint32_t pushed = 0, waited = 0, closed = 0;
  bool ready = false;
};

TEST(Stepper, BspRoundsAfterEveryStepAndPeriodicAfterEveryHth) {
  for (const std::uint32_t h : {1U, 4U}) {
    Floats w(3, 0.0F);
    Alone rounds;
    const auto stepper =
        make_stepper(policy_of(h == 1 ? "pace=bsp" : "pace=periodic:4"), w, rounds, 1);
    EXPECT_EQ(stepper->stream().data(), w.data());
    for (std::uint32_t step = 1; step <= 22; ++step) {
      const auto closed = stepper->step();
      ASSERT_TRUE(closed);
      EXPECT_EQ(closed->size(), step % h == 0 ? 1U : 0U) << step;
    }
    const auto rest = stepper->finish();
    ASSERT_TRUE(rest);
    EXPECT_EQ(rest->size(), h == 1 ? 0U : 1U);
    EXPECT_EQ(stepper->steps_carried(), h == 1 ? 1U : 2U);
    EXPECT_EQ(rounds.pushed, (22 + h - 1) / h);
  }
}

// Every step is handed over; rounds that ended are reported then.
TEST(Stepper, FreePacesHandOverEveryStep) {
  for (const char* pace : {"pace=async", "pace=ssp:2"}) {
    Floats w(3, 0.0F);
    Alone rounds;
    const auto stepper = make_stepper(policy_of(pace), w, rounds, 1);
    EXPECT_EQ(stepper->stream().data(), w.data());
    const auto ends = [&](std::initializer_list<std::uint32_t> numbers) {
      for (const auto number : numbers) {
        rounds.ended.emplace_back();
        rounds.ended.back().round = number;
      }
      const auto closed = stepper->step();
      EXPECT_TRUE(closed);
      std::vector<std::uint32_t> out;
      for (const auto& report : *closed) out.push_back(report.round);
      return out;
    };
    using Numbers = std::vector<std::uint32_t>;
    EXPECT_EQ(ends({}), Numbers{});
    EXPECT_EQ(ends({0, 1}), (Numbers{0, 1}));
    EXPECT_EQ(ends({}), Numbers{});
    EXPECT_EQ(ends({2}), Numbers{2});
    rounds.ended.emplace_back();
    rounds.ended.back().round = 3;
    rounds.ended.emplace_back();
    rounds.ended.back().round = 4;
    const auto rest = stepper->finish();
    ASSERT_TRUE(rest);
    ASSERT_EQ(rest->size(), 2U);
    EXPECT_EQ((*rest)[0].round, 3U);
    EXPECT_EQ((*rest)[1].round, 4U);
    EXPECT_EQ(rounds.lasts, (std::vector<bool>{false, false, false, false, true}));
    EXPECT_EQ(rounds.pushed, 0U);
  }
}

TEST(Stepper, OverlapWaitsOnlyAtItsCap) {
  Floats w(3, 0.0F);
  Alone rounds;
  const auto stepper = make_stepper(policy_of("pace=overlap:5 mix=compensate:0"), w, rounds, 1);
  ASSERT_TRUE(stepper->step());
  EXPECT_EQ(rounds.pushed, 1U);
  EXPECT_EQ(stepper->steps_carried(), 1U);
  for (std::uint32_t step = 1; step < 5; ++step) {
    const auto closed = stepper->step();
    ASSERT_TRUE(closed);
    EXPECT_TRUE(closed->empty());
    EXPECT_EQ(rounds.waited, 0U);
  }
  auto closed = stepper->step();  // five steps beyond the departure
  ASSERT_TRUE(closed && closed->size() == 1);
  EXPECT_EQ(stepper->steps_carried(), 5U);
  ASSERT_TRUE(stepper->step());
  rounds.ready = true;
  closed = stepper->step();
  ASSERT_TRUE(closed && closed->size() == 1);
  EXPECT_EQ(closed->front().round, 1U);
  EXPECT_EQ(stepper->steps_carried(), 2U);
}

struct Outcome {
  std::vector<Floats> models;
  std::vector<std::uint32_t> rounds;
  std::vector<double> done;  ///< Sum of all ranks' changes of each coordinate.
};

/// Ranks that take different times for their steps, which do not depend on the model.
Outcome play(const char* text, const std::vector<std::uint32_t>& steps, std::uint32_t elements,
             std::uint64_t seed) {
  const auto n = static_cast<std::uint32_t>(steps.size());
  const auto policy = policy_of(text);
  Outcome out{std::vector<Floats>(n, Floats(elements, 0.0F)), std::vector<std::uint32_t>(n, 0),
              std::vector<double>(elements, 0.0)};
  std::vector<std::vector<double>> done(n, std::vector<double>(elements, 0.0));
  Meeting meeting(n);
  std::vector<std::unique_ptr<Meeting::Seat>> seats;
  std::vector<std::unique_ptr<Stepper>> steppers;
  for (std::uint32_t i = 0; i < n; ++i) {
    seats.push_back(std::make_unique<Meeting::Seat>(meeting, i));
    steppers.push_back(make_stepper(policy, out.models[i], *seats[i], 99));
    meeting.streams[i] = steppers[i]->stream();
  }
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      SplitMix64 random(mix_seed(seed) + i);
      for (std::uint32_t step = 0; step < steps[i]; ++step) {
        for (std::uint32_t c = 0; c < elements; ++c) {
          const auto change = static_cast<float>(random.below(65)) / 1024.0F;
          out.models[i][c] += change;
          done[i][c] += static_cast<double>(change);
        }
        if (random.below(8) == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        const auto closed = steppers[i]->step();
        out.rounds[i] += closed ? static_cast<std::uint32_t>(closed->size()) : 1000U;
      }
      const auto rest = steppers[i]->finish();
      out.rounds[i] += rest ? static_cast<std::uint32_t>(rest->size()) : 1000U;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& own : done) {
    for (std::uint32_t c = 0; c < elements; ++c) out.done[c] += own[c];
  }
  return out;
}

// Nobody knows how many steps the others will do, and all end in the same round with the same
// parameters: the start plus the mean of everything that was done.
TEST(Stepper, AllEndTogetherWithEverythingMerged) {
  constexpr std::uint32_t elements = 70;
  const char* const policies[] = {"osp",
                                  "losp",
                                  "pace=overlap:3 mix=compensate:1",
                                  "pace=overlap mix=compensate:1 codec=slim:0.3,0.1,4",
                                  "pace=bsp mix=compensate",
                                  "slim",
                                  "pace=periodic:7 mix=compensate codec=slim:0.2,0.1,2",
                                  "osp2",
                                  "osp2 pace=stages:0",
                                  "osp2 pace=stages:0.4",
                                  "osp2 pace=stages:1"};
  for (const char* const text : policies) {
    const bool overlap = policy_of(text).has(Trait::overlapping);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const std::vector<std::uint32_t> steps =
          overlap ? std::vector<std::uint32_t>{40, 100, 7, 63} : std::vector<std::uint32_t>(4, 50);
      const auto out = play(text, steps, elements, seed);
      for (std::uint32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(out.rounds[i], out.rounds[0]) << text;
        EXPECT_EQ(out.models[i], out.models[0]) << text;
      }
      for (std::uint32_t c = 0; c < elements; ++c) {
        EXPECT_NEAR(static_cast<double>(out.models[0][c]), out.done[c] / 4, 1e-5) << text;
      }
    }
  }
}

// The lag is exactly one: what arrives in round t was computed from the parameters that round t-1
// left (or the start), whatever the delays. Each step records which round its parameters are from.
TEST(Stepper, WhatOverlapMergesIsOneRoundOld) {
  Floats w(1, 0.0F);
  Alone rounds;
  const auto stepper = make_stepper(policy_of("pace=overlap:4 mix=compensate:0"), w, rounds, 1);
  SplitMix64 random(17);
  std::uint32_t arrived = 0;  // Rounds merged into w so far.
  std::vector<std::uint32_t> based_on;
  std::vector<std::uint32_t> under_way;
  for (std::uint32_t step = 0; step < 2000; ++step) {
    based_on.push_back(arrived);
    rounds.ready = random.below(3) == 0;
    const auto pushed = rounds.pushed;
    const auto closed = stepper->step();
    ASSERT_TRUE(closed);
    if (!closed->empty()) {
      // The steps of round r (from 0) were made while round r - 1 was under way, so on what the
      // r - 1 rounds before it had left; those of the first round, on the start.
      for (const auto base : under_way) EXPECT_EQ(base, arrived == 0 ? 0 : arrived - 1);
      ++arrived;
    }
    if (rounds.pushed != pushed) under_way = std::exchange(based_on, {});
  }
  EXPECT_GT(arrived, 500U);
}

}  // namespace
}  // namespace selmcast
