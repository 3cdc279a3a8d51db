// mix=stale against the closed form of DASO's merge and against its loop in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/random.h"
#include "sync/steps/stale_merge.h"
#include "sync/steps/stepper.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

TEST(StaleMerge, KeepsTheMeanAndContractsTheSpread) {
  // P = 4, S = 1: to a third. All numbers are multiples of 3 and 4, so nothing is rounded.
  Floats w{12.0F, -24.0F}, x{0.0F, 0.0F}, y{24.0F, 12.0F}, z{12.0F, 12.0F};
  std::vector<Floats*> models{&w, &x, &y, &z};
  std::vector<StaleMerge> merges;
  for (auto* model : models) merges.emplace_back(*model);
  for (auto& merge : merges) {
    merge.depart();
    merge.stream()[0] = 12.0F;  // The means.
    merge.stream()[1] = 0.0F;
    merge.arrive(4, 1);
  }
  EXPECT_EQ(w, (Floats{12.0F, -8.0F}));
  EXPECT_EQ(x, (Floats{8.0F, 0.0F}));
  EXPECT_EQ(y, (Floats{16.0F, 4.0F}));
  EXPECT_EQ(z, (Floats{12.0F, 4.0F}));
}

TEST(StaleMerge, WeighsOwnStepsTwiceAndEachRankOnce) {
  for (const std::uint32_t ranks : {1U, 2U, 4U, 64U}) {
    for (const std::uint32_t steps : {1U, 3U, 8U}) {
      Floats own{5.0F};
      StaleMerge merge(own);
      merge.depart();
      own[0] = 7.0F;  // Steps in the meantime.
      merge.stream()[0] = -3.0F;
      merge.arrive(ranks, steps);
      const double s2 = 2.0 * steps, p = ranks;
      EXPECT_NEAR(own[0], (s2 * 7.0 + p * -3.0) / (s2 + p), 1e-6);
    }
  }
  Floats own{5.0F};
  StaleMerge merge(own);
  merge.depart();
  merge.stream()[0] = 2.0F;
  merge.replace();
  EXPECT_EQ(own[0], 2.0F);
}

/// Rounds of all ranks with exact means; waits for whoever has not pushed yet.
class Hub {
 public:
  explicit Hub(std::uint32_t n) : pushed_(n, 0), streams_(n) {}

  class Seat final : public Rounds {
   public:
    Seat(Hub& hub, std::uint32_t rank) : hub_(hub), rank_(rank) {}
    void push() override { hub_.push(rank_); }
    bool settled() const noexcept override { return true; }
    Result<RoundReport> wait() override { return hub_.wait(rank_); }
    void push_part(std::size_t, std::size_t) override { FAIL() << "whole rounds only"; }
    Result<void> pass(bool, std::vector<RoundReport>&) override { return failed("lock-step only"); }

   private:
    Hub& hub_;
    std::uint32_t rank_;
  };

  void seat(std::uint32_t rank, std::span<float> stream) { streams_[rank] = stream; }
  std::size_t rounds() const { return sums_.size(); }

 private:
  void push(std::uint32_t rank) {
    const std::scoped_lock lock(mutex_);
    const auto round = pushed_[rank]++;
    if (sums_.size() <= round) sums_.emplace_back(streams_[0].size(), 0.0), given_.push_back(0);
    for (std::size_t i = 0; i < streams_[rank].size(); ++i) {
      sums_[round][i] += static_cast<double>(streams_[rank][i]);
    }
    ++given_[round];
    changed_.notify_all();
  }
  Result<RoundReport> wait(std::uint32_t rank) {
    std::unique_lock lock(mutex_);
    const auto round = pushed_[rank] - 1;
    changed_.wait(lock, [&] { return given_[round] == pushed_.size(); });
    for (std::size_t i = 0; i < streams_[rank].size(); ++i) {
      streams_[rank][i] = static_cast<float>(sums_[round][i] / static_cast<double>(pushed_.size()));
    }
    RoundReport report;
    report.round = round;
    report.receivers.resize(pushed_.size() - 1);
    return report;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> pushed_, given_;
  std::vector<std::vector<double>> sums_;
  std::vector<std::span<float>> streams_;
};

/// The change of rank i by its step t.
float change(std::uint32_t rank, std::uint32_t step) {
  SplitMix64 random(1000ULL * rank + step);
  return static_cast<float>(random.unit() - 0.5);
}

struct Daso {
  std::vector<double> w;          ///< By rank, after the last step.
  std::vector<std::uint32_t> at;  ///< Steps after which a merge took place.
  double end = 0.0;               ///< The mean after what was under way is merged.
};

/// The published loop.
Daso daso(std::uint32_t n, std::uint32_t steps, std::uint32_t h, std::uint32_t s) {
  Daso out;
  out.w.assign(n, 0.0);
  double sent = 0.0;
  bool under_way = false;
  for (std::uint32_t t = 1; t <= steps; ++t) {
    for (std::uint32_t i = 0; i < n; ++i) out.w[i] += static_cast<double>(change(i, t));
    if (under_way && t % h == s % h) {
      for (auto& w : out.w) w = (2.0 * s * w + sent) / (2.0 * s + n);
      out.at.push_back(t);
      under_way = false;
    }
    if (t % h == 0) {
      sent = 0.0;
      for (const double w : out.w) sent += w;
      under_way = true;
    }
  }
  for (const double w : out.w) {
    out.end += (under_way ? (2.0 * s * w + sent) / (2.0 * s + n) : w) / n;
  }
  return out;
}

TEST(Stepper, StaleFollowsThePublishedLoopAndEndsWithTheMean) {
  constexpr std::uint32_t n = 4;
  const struct {
    std::uint32_t h, s, steps;
  } cases[] = {{4, 1, 50}, {4, 3, 49}, {3, 3, 30}, {1, 1, 25}, {5, 2, 3}};
  for (const auto& c : cases) {
    const auto policy =
        parse_policy("pace=periodic:" + std::to_string(c.h) + " mix=stale:" + std::to_string(c.s));
    ASSERT_TRUE(policy) << policy.error().message;
    Hub hub(n);
    std::vector<Floats> models(n, Floats(1, 0.0F));
    std::vector<Hub::Seat> seats;
    for (std::uint32_t i = 0; i < n; ++i) seats.emplace_back(hub, i);
    std::vector<std::unique_ptr<Stepper>> steppers;
    for (std::uint32_t i = 0; i < n; ++i) {
      steppers.push_back(make_stepper(*policy, models[i], seats[i], 1));
      hub.seat(i, steppers[i]->stream());
    }
    std::vector<std::uint32_t> merged;
    for (std::uint32_t t = 1; t <= c.steps; ++t) {
      for (std::uint32_t i = 0; i < n; ++i) {
        models[i][0] += change(i, t);
        const auto closed = steppers[i]->step();
        ASSERT_TRUE(closed);
        if (i == 0 && !closed->empty()) merged.push_back(t);
      }
    }
    const auto want = daso(n, c.steps, c.h, c.s);
    EXPECT_EQ(merged, want.at) << c.h << "," << c.s;
    for (std::uint32_t i = 0; i < n; ++i) EXPECT_NEAR(models[i][0], want.w[i], 1e-5);

    std::vector<std::thread> threads;
    std::vector<std::size_t> rest(n, 0);
    for (std::uint32_t i = 0; i < n; ++i) {
      threads.emplace_back([&, i] { rest[i] = steppers[i]->finish().value().size(); });
    }
    for (auto& thread : threads) thread.join();
    for (std::uint32_t i = 0; i < n; ++i) {
      EXPECT_NEAR(models[i][0], want.end, 1e-5);
      EXPECT_EQ(models[i], models[0]);
      EXPECT_EQ(rest[i] + merged.size(), hub.rounds());
    }
  }
}

TEST(Stepper, StaleWithoutStepsContractsByTheClosedForm) {
  // Blocking rounds: push and wait with nothing in between. (2 S / (2 S + P))^r of the distance.
  constexpr std::uint32_t n = 3, s = 2, rounds = 5;
  Hub hub(n);
  std::vector<Floats> models{{1.0F}, {4.0F}, {-2.0F}};
  std::vector<std::unique_ptr<Hub::Seat>> seats;
  std::vector<std::unique_ptr<Stepper>> steppers;
  const auto policy = parse_policy("pace=periodic:2 mix=stale:2");
  for (std::uint32_t i = 0; i < n; ++i) {
    seats.push_back(std::make_unique<Hub::Seat>(hub, i));
    steppers.push_back(make_stepper(*policy, models[i], *seats[i], 1));
    hub.seat(i, steppers[i]->stream());
  }
  for (std::uint32_t r = 0; r < rounds; ++r) {
    for (auto& stepper : steppers) stepper->push();
    for (auto& stepper : steppers) ASSERT_TRUE(stepper->wait());
  }
  const double factor = std::pow(2.0 * s / (2.0 * s + n), rounds);
  const double start[] = {1.0, 4.0, -2.0};
  for (std::uint32_t i = 0; i < n; ++i) {
    EXPECT_NEAR(models[i][0], 1.0 + factor * (start[i] - 1.0), 1e-5);
  }
}

}  // namespace
}  // namespace selmcast
