// The rate that a plan gives a rank in all, and when a device that can pace is told of it.
#include "sync/planned_rate.h"

#include <gtest/gtest.h>

#include <vector>

#include "bench/null_transport.h"
#include "sync/engine.h"

namespace selmcast {
namespace {

RoundPlan plan_of(std::vector<Rank> receivers, std::vector<Rank> patches, RateFraction rate) {
  RoundPlan out;
  out.receivers = std::move(receivers);
  out.patches = std::move(patches);
  out.rate = rate;
  return out;
}

/// As the engine makes it: a lane for each unicast copy, or one for the group.
EpochState epoch_of(std::vector<RoundPlan> cycle) {
  EpochState out;
  out.program.members = {0, 1, 2, 3};
  for (const RoundPlan& plan : cycle) {
    const std::size_t lanes = plan.multicast ? 1 : plan.receivers.size();
    out.lanes.emplace_back(lanes + plan.patches.size());
  }
  out.program.cycle = std::move(cycle);
  return out;
}

TEST(PlannedRate, IsTheGreatestSumOfLanes) {
  EXPECT_EQ(planned_rate(epoch_of({plan_of({}, {}, {900, 1})}), 0), 0U);
  EXPECT_EQ(planned_rate(epoch_of({plan_of({1, 2, 3}, {}, {500, 1})}), 0), 1500U);
  auto group = plan_of({1, 2}, {3}, {500, 1});
  group.multicast = true;
  EXPECT_EQ(planned_rate(epoch_of({group}), 0), 1000U);
  // 3 x 1000/7 = 428.57, rounded up: no lane is held below its rate.
  EXPECT_EQ(planned_rate(epoch_of({plan_of({1, 2, 3}, {}, {1000, 7}), group}), 0), 1000U);
  EXPECT_EQ(planned_rate(epoch_of({plan_of({1, 2, 3}, {}, {1000, 7})}), 0), 429U);
}

TEST(PlannedRate, OnlineItIsWhatTheLinkMayCarry) {
  auto epoch = epoch_of({plan_of({1}, {}, {500, 1})});
  epoch.program.members = {4, 6, 9};
  epoch.program.online.emplace();
  epoch.program.online->tx_kbps = {100, 200, 300};
  EXPECT_EQ(planned_rate(epoch, 6), 200U);
  EXPECT_EQ(planned_rate(epoch, 5), 0U);
}

/// Goes nowhere, and notes what it is told of rates.
class PacedTransport final : public NullTransport, public Pacing {
 public:
  PacedTransport() { abilities_.pacing = this; }
  bool limit_rate(Kbps wire_kbps) noexcept override {
    limits.push_back(wire_kbps);
    return true;
  }

  std::vector<Kbps> limits;
};

TEST(PlannedRate, TheDeviceHearsOfItWhenThePlanChangesAndNeverElse) {
  PacedTransport transport;
  EngineConfig config;
  config.job = 7;
  config.world = 4;
  config.frame_bytes = 1472;
  std::vector<float> parameters(1000);
  Engine engine(transport, config);
  ASSERT_TRUE(engine.set_up(std::vector<PeerAddress>(4), parameters));
  const TimePoint now{};
  const auto enter = [&](std::uint32_t number, RateFraction rate) {
    auto epoch = std::make_unique<EpochState>();
    epoch->program.epoch = number;
    epoch->program.members = {0, 1, 2, 3};
    epoch->program.cycle = {plan_of({1, 2}, {}, rate)};
    engine.offer(std::move(epoch));
    engine.progress(now);
    ASSERT_TRUE(engine.accepted());
  };
  enter(1, {4000, 1});
  engine.activate(0);
  engine.progress(now);
  ASSERT_TRUE(engine.switched());
  EXPECT_EQ(transport.limits, (std::vector<Kbps>{8000, 8000}));
  // While rounds of two plans may overlap, the greater holds.
  enter(2, {1000, 1});
  EXPECT_EQ(transport.limits.back(), 8000U);
  engine.activate(0);
  engine.progress(now);
  EXPECT_EQ(transport.limits.back(), 2000U);
  const auto told = transport.limits.size();
  engine.push();
  for (int i = 0; i < 100; ++i) engine.progress(now + std::chrono::milliseconds(i));
  EXPECT_EQ(transport.limits.size(), told);
}

}  // namespace
}  // namespace selmcast
