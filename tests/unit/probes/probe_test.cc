#include "probes/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "transport/sim/sim_network.h"

namespace selmcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

/// Every rank of a job in one thread and virtual time.
class SimJob {
 public:
  SimJob(SimConfig sim, ProbeConfig config)
      : world_(static_cast<std::uint32_t>(sim.links.size())),
        network_(std::move(sim)),
        store_(world_),
        crashed_(world_, false) {
    for (Rank r = 0; r < world_; ++r) {
      transports_.push_back(network_.attach(r));
      clients_.push_back(store_.client(r));
    }
    endpoints_.resize(world_);
    for (Rank r = 0; r < world_; ++r) {
      std::vector<EndpointId> ids(world_);
      for (Rank peer = 0; peer < world_; ++peer) {
        if (peer == r) continue;
        auto endpoint = transports_[r]->connect(transports_[peer]->address());
        endpoints_[r].push_back(std::move(endpoint).value());
        ids[peer] = endpoints_[r].back().id();
      }
      auto probe = Probe::create(*transports_[r], *clients_[r], ids, config);
      probes_.push_back(std::move(probe).value());
    }
  }

  /// Steps all ranks until every live one is done or failed; false when `limit` passes first.
  bool run(Duration limit) {
    outcomes_.assign(world_, Result<bool>(false));
    const TimePoint end = network_.clock().now() + limit;
    while (network_.clock().now() < end) {
      const TimePoint now = network_.clock().now();
      if (on_time_ && now >= act_at_) std::exchange(on_time_, nullptr)();
      if (now < next_turn_) {
        network_.advance_to(
            std::max(std::min(next_turn_, network_.next_event()), now + Duration(1)));
        continue;
      }
      next_turn_ = now + between_turns_;
      TimePoint next = kNever;
      bool all_over = true;
      for (Rank r = 0; r < world_; ++r) {
        if (crashed_[r]) continue;
        if (outcomes_[r] && !*outcomes_[r]) outcomes_[r] = probes_[r]->step(now);
        const bool over = !outcomes_[r] || *outcomes_[r];
        all_over = all_over && over;
        if (!over) next = std::min(next, probes_[r]->next_wakeup());
      }
      if (all_over) return true;
      next = std::min(next, network_.next_event());
      network_.advance_to(std::max(next, now + Duration(1)));
    }
    return false;
  }

  /// Ranks run only so often from now on, as on a machine that is busy with other things.
  void starve(Duration between_turns) { between_turns_ = between_turns; }
  void at(TimePoint when, std::function<void()> act) {
    act_at_ = when;
    on_time_ = std::move(act);
  }
  void crash(Rank rank, Duration notice) {
    network_.crash(rank, notice);
    crashed_[rank] = true;
  }

  SimNetwork& network() { return network_; }
  LocalStore& store() { return store_; }
  Duration elapsed() const { return network_.clock().now() - TimePoint{}; }
  const Result<bool>& outcome(Rank rank) const { return outcomes_[rank]; }
  const std::vector<LinkEstimate>& estimates(Rank rank) const { return probes_[rank]->estimates(); }
  std::uint32_t world() const { return world_; }

 private:
  std::uint32_t world_;
  SimNetwork network_;
  LocalStore store_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Rendezvous>> clients_;
  std::vector<std::vector<Endpoint>> endpoints_;
  std::vector<std::unique_ptr<Probe>> probes_;
  std::vector<Result<bool>> outcomes_;
  std::vector<bool> crashed_;
  TimePoint act_at_{}, next_turn_{};
  Duration between_turns_{};
  std::function<void()> on_time_;
};

SimConfig links_of(const std::vector<std::pair<Kbps, Kbps>>& rates) {
  SimConfig sim;
  for (const auto& [tx, rx] : rates) {
    SimLink link;
    link.tx_kbps = tx;
    link.rx_kbps = rx;
    sim.links.push_back(link);
  }
  return sim;
}

ProbeConfig every_rank_a_host(std::size_t world) {
  ProbeConfig config;
  config.host_of_rank.resize(world);
  std::iota(config.host_of_rank.begin(), config.host_of_rank.end(), 0U);
  return config;
}

void expect_rates(SimJob& job, const std::vector<std::pair<Kbps, Kbps>>& rates, double tolerance) {
  for (Rank r = 0; r < job.world(); ++r) {
    ASSERT_TRUE(job.outcome(r)) << job.outcome(r).error().message;
    const LinkEstimate& e = job.estimates(0)[r];
    const auto near = [&](Kbps measured, Kbps configured) {
      EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(configured),
                  tolerance * static_cast<double>(configured))
          << "rank " << r;
    };
    near(e.transmit.available_kbps, rates[r].first);
    near(e.receive.available_kbps, rates[r].second);
    EXPECT_LE(e.transmit.low_kbps, e.transmit.available_kbps);
    EXPECT_GE(e.transmit.high_kbps, e.transmit.available_kbps);
    EXPECT_LE(e.receive.low_kbps, e.receive.available_kbps);
    EXPECT_GE(e.receive.high_kbps, e.receive.available_kbps);
  }
}

TEST(Probe, HeterogeneousLinksComeOutWithinFivePercent) {
  const std::vector<std::pair<Kbps, Kbps>> rates{
      {100'000, 200'000}, {400'000, 100'000}, {200'000, 400'000}, {150'000, 300'000}};
  SimJob job(links_of(rates), every_rank_a_host(rates.size()));
  ASSERT_TRUE(job.run(seconds(20)));
  expect_rates(job, rates, 0.05);
}

TEST(Probe, SlowAndFastLinks) {
  const std::vector<std::pair<Kbps, Kbps>> rates{{2'000, 3'000}, {5'000, 4'000}, {4'000, 3'000}};
  SimJob slow(links_of(rates), every_rank_a_host(rates.size()));
  ASSERT_TRUE(slow.run(seconds(60)));
  expect_rates(slow, rates, 0.05);
  const std::vector<std::pair<Kbps, Kbps>> fast_rates{
      {3'000'000, 2'000'000}, {2'500'000, 4'000'000}, {2'000'000, 3'000'000}};
  SimJob fast(links_of(fast_rates), every_rank_a_host(fast_rates.size()));
  ASSERT_TRUE(fast.run(seconds(20)));
  expect_rates(fast, fast_rates, 0.05);
}

TEST(Probe, RanksOfOneHostMeasureTheirShares) {
  const std::vector<std::pair<Kbps, Kbps>> rates(8, {500'000, 500'000});
  ProbeConfig config;
  config.host_of_rank.assign(8, 3);
  SimJob job(links_of(rates), config);
  ASSERT_TRUE(job.run(seconds(20)));
  // Everyone sends to everyone at equal rates: by chance a receiver is served by nobody for a
  // moment while another has a queue, so the whole runs a little below the links' rates.
  expect_rates(job, rates, 0.10);
  EXPECT_LT(job.elapsed(), milliseconds(1500));
}

TEST(Probe, TwoHostsOfTwoRanks) {
  const std::vector<std::pair<Kbps, Kbps>> rates{
      {200'000, 200'000}, {200'000, 200'000}, {200'000, 200'000}, {200'000, 200'000}};
  ProbeConfig config;
  config.host_of_rank = {7, 7, 9, 9};
  SimJob job(links_of(rates), config);
  ASSERT_TRUE(job.run(seconds(20)));
  expect_rates(job, rates, 0.10);
}

TEST(Probe, ARateIsBoundedByWhatTheOthersTake) {
  const std::vector<std::pair<Kbps, Kbps>> rates{
      {1'000'000, 100'000}, {100'000, 100'000}, {100'000, 100'000}};
  SimJob job(links_of(rates), every_rank_a_host(3));
  ASSERT_TRUE(job.run(seconds(20)));
  EXPECT_NEAR(static_cast<double>(job.estimates(0)[0].transmit.available_kbps), 200'000, 10'000);
}

// Each turn finds a whole train's frames waiting: one instant, from which no rate follows.
TEST(Probe, ABusyMachineUnderestimatesInsteadOfFailing) {
  SimJob job(links_of({{100'000, 100'000}, {100'000, 100'000}}), every_rank_a_host(2));
  job.starve(milliseconds(400));
  ASSERT_TRUE(job.run(seconds(600)));
  for (Rank r = 0; r < 2; ++r) {
    ASSERT_TRUE(job.outcome(r)) << job.outcome(r).error().message;
    for (const auto& link : job.estimates(r)) {
      EXPECT_GT(link.transmit.available_kbps, 0U);
      EXPECT_LE(link.transmit.available_kbps, 105'000U);
      EXPECT_GT(link.receive.available_kbps, 0U);
      EXPECT_LE(link.receive.available_kbps, 105'000U);
    }
  }
}

// Turns of 15 ms leave the rates of the unstamped probe up to 13 % low here.
TEST(Probe, StampedArrivalsTellTheRateToABusyMachine) {
  for (const int turn : {2, 10, 15}) {
    SimConfig sim = links_of({{300'000, 80'000}, {300'000, 120'000}, {300'000, 100'000}});
    sim.arrival_times = true;
    SimJob job(sim, every_rank_a_host(3));
    job.starve(milliseconds(turn));
    ASSERT_TRUE(job.run(seconds(600)));
    for (Rank r = 0; r < 3; ++r) {
      ASSERT_TRUE(job.outcome(r)) << job.outcome(r).error().message;
      const auto rate = static_cast<double>(sim.links[r].rx_kbps);
      EXPECT_NEAR(static_cast<double>(job.estimates(0)[r].receive.available_kbps), rate,
                  .001 * rate)
          << "rank " << r << ", turns of " << turn << " ms";
    }
  }
}

TEST(Probe, LatencyIsHalfARoundTrip) {
  SimConfig sim = links_of({{1'000'000, 1'000'000}, {1'000'000, 1'000'000}});
  for (SimLink& link : sim.links) link.delay = milliseconds(2);
  SimJob job(sim, every_rank_a_host(2));
  ASSERT_TRUE(job.run(seconds(20)));
  for (Rank r = 0; r < 2; ++r) {
    EXPECT_GE(job.estimates(r)[r].latency, milliseconds(2));
    EXPECT_LT(job.estimates(r)[r].latency, std::chrono::microseconds(2100));
  }
}

TEST(Probe, LossIsThatOfTheLinks) {
  // Loss arises at the receivers' ports: 4 % of what rank 1 is to receive, nothing elsewhere.
  const std::vector<std::pair<Kbps, Kbps>> rates(4, {200'000, 200'000});
  SimConfig sim = links_of(rates);
  sim.links[1].loss = 0.04;
  ProbeConfig config = every_rank_a_host(4);
  config.pings = 6000;
  config.ping_time = milliseconds(600);
  SimJob job(sim, config);
  ASSERT_TRUE(job.run(seconds(20)));
  expect_rates(job, rates, 0.05 + 0.04);
  // 6000 pings to rank 1: standard deviation sqrt(0.04 * 0.96 / 6000) = 0.0025.
  EXPECT_NEAR(job.estimates(2)[1].receive.loss, 0.04, 0.0127);
  EXPECT_EQ(job.estimates(2)[0].receive.loss, 0.0);
  EXPECT_EQ(job.estimates(2)[1].transmit.loss, 0.0);
  // A third of what rank 0 sends goes to rank 1; deviation sqrt(0.04 * 0.96 * 2000) / 6000.
  EXPECT_NEAR(job.estimates(2)[0].transmit.loss, 0.04 / 3, 0.0073);
}

TEST(Probe, SurvivesLossDuplicationReorderingAndCorruption) {
  const std::vector<std::pair<Kbps, Kbps>> rates(3, {300'000, 300'000});
  SimConfig sim = links_of(rates);
  for (SimLink& link : sim.links) {
    link.loss = 0.05;
    link.duplicate = 0.01;
    link.reorder = 0.02;
    link.corrupt = 0.02;
  }
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    sim.seed = seed;
    SimJob job(sim, every_rank_a_host(3));
    ASSERT_TRUE(job.run(seconds(20)));
    // A lost frame takes no place on the receiver's link, but a frame lost is one less delivered.
    expect_rates(job, rates, 0.15);
  }
}

TEST(Probe, AllRanksEndWithTheSameEstimates) {
  const std::vector<std::pair<Kbps, Kbps>> rates(3, {100'000, 100'000});
  SimJob job(links_of(rates), every_rank_a_host(3));
  ASSERT_TRUE(job.run(seconds(20)));
  for (Rank r = 1; r < 3; ++r) {
    for (Rank of = 0; of < 3; ++of) {
      const LinkEstimate& a = job.estimates(0)[of];
      const LinkEstimate& b = job.estimates(r)[of];
      EXPECT_EQ(a.rank, of);
      EXPECT_EQ(a.transmit.available_kbps, b.transmit.available_kbps);
      EXPECT_EQ(a.receive.available_kbps, b.receive.available_kbps);
      EXPECT_EQ(a.transmit.loss, b.transmit.loss);
      EXPECT_EQ(a.latency, b.latency);
      EXPECT_EQ(b.repeats, 3U);
    }
  }
}

TEST(Probe, EqualSeedsReplay) {
  const auto hash = [] {
    SimConfig sim = links_of({{100'000, 100'000}, {200'000, 50'000}, {80'000, 100'000}});
    sim.links[1].loss = 0.03;
    SimJob job(sim, every_rank_a_host(3));
    EXPECT_TRUE(job.run(seconds(20)));
    return job.network().trace_hash();
  };
  EXPECT_EQ(hash(), hash());
}

TEST(Probe, ALoneRankHasNothingToMeasure) {
  SimJob job(links_of({{1000, 1000}}), every_rank_a_host(1));
  ASSERT_TRUE(job.run(seconds(1)));
  ASSERT_EQ(job.estimates(0).size(), 1U);
  EXPECT_EQ(job.estimates(0)[0].transmit.available_kbps, 0U);
}

// Failures.

TEST(Probe, ADeadRankIsNamedWhenTheStoreKnows) {
  for (const int at_ms : {0, 20, 150, 700, 1500}) {
    SCOPED_TRACE(at_ms);
    const std::vector<std::pair<Kbps, Kbps>> rates(4, {100'000, 100'000});
    SimJob job(links_of(rates), every_rank_a_host(4));
    job.at(TimePoint{} + milliseconds(at_ms), [&] {
      job.crash(2, seconds(100));
      job.store().declare_lost(2);
    });
    ASSERT_TRUE(job.run(seconds(30)));
    for (const Rank r : {0U, 1U, 3U}) {
      ASSERT_FALSE(job.outcome(r));
      EXPECT_THAT(job.outcome(r).error().message, AllOf(HasSubstr("rank 2"), HasSubstr("lost")));
    }
  }
}

TEST(Probe, ADeadRankIsNamedWhenTheTransportKnows) {
  SimJob job(links_of({{100'000, 100'000}, {100'000, 100'000}, {100'000, 100'000}}),
             every_rank_a_host(3));
  job.at(TimePoint{} + milliseconds(100), [&] { job.crash(1, milliseconds(1)); });
  ASSERT_TRUE(job.run(seconds(30)));
  for (const Rank r : {0U, 2U}) {
    ASSERT_FALSE(job.outcome(r));
    EXPECT_THAT(job.outcome(r).error().message, HasSubstr("rank 1"));
  }
}

TEST(Probe, ASilentRankIsNamedByTheDeadline) {
  for (const int at_ms : {0, 20, 150, 400, 700, 1100, 1400}) {
    SCOPED_TRACE(at_ms);
    const std::vector<std::pair<Kbps, Kbps>> rates(4, {100'000, 100'000});
    ProbeConfig config = every_rank_a_host(4);
    config.timeout = seconds(2);
    SimJob job(links_of(rates), config);
    // Nobody is told: not the transport (notice for never) and not the store.
    job.at(TimePoint{} + milliseconds(at_ms), [&] { job.crash(2, kNever - TimePoint{}); });
    ASSERT_TRUE(job.run(seconds(10)));
    EXPECT_LT(job.elapsed(), milliseconds(at_ms) + 2 * seconds(2));
    for (const Rank r : {0U, 1U, 3U}) {
      ASSERT_FALSE(job.outcome(r));
      EXPECT_THAT(job.outcome(r).error().message, HasSubstr("rank 2"));
    }
  }
}

TEST(Probe, ACutBetweenTwoRanksNamesOneOfThem) {
  const std::vector<std::pair<Kbps, Kbps>> rates(4, {100'000, 100'000});
  ProbeConfig config = every_rank_a_host(4);
  config.timeout = seconds(2);
  SimJob job(links_of(rates), config);
  job.network().partition(1, 3, true);
  ASSERT_TRUE(job.run(seconds(10)));
  for (Rank r = 0; r < 4; ++r) {
    ASSERT_FALSE(job.outcome(r));
    EXPECT_THAT(job.outcome(r).error().message,
                testing::AnyOf(HasSubstr("rank 1"), HasSubstr("rank 3")));
  }
}

TEST(Probe, AConfigurationThatDoesNotFitIsBadInput) {
  SimNetwork network(links_of({{0, 0}, {0, 0}}));
  LocalStore store(2);
  const auto transport = network.attach(0);
  const auto client = store.client(0);
  const std::vector<EndpointId> peers(2);
  const auto message = [&](const ProbeConfig& config, std::span<const EndpointId> ids) {
    auto probe = Probe::create(*transport, *client, ids, config);
    EXPECT_FALSE(probe);
    EXPECT_EQ(probe.error().kind, ErrorKind::bad_input);
    return probe.error().message;
  };
  EXPECT_THAT(message(every_rank_a_host(3), peers), HasSubstr("host_of_rank has 3 entries"));
  EXPECT_THAT(message(every_rank_a_host(2), std::span(peers).first(1)), HasSubstr("1 endpoints"));
  ProbeConfig config = every_rank_a_host(2);
  config.repeats = 0;
  EXPECT_THAT(message(config, peers), HasSubstr("repeats is 0"));
}

}  // namespace
}  // namespace selmcast
