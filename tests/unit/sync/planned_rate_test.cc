// The rate that a plan gives a rank in all, and when a device that can pace is told of it.
#include <gtest/gtest.h>

#include <vector>

#include "bench/null_transport.h"
#include "sync/driver.h"
#include "sync/rounds/epoch_state.h"

namespace selmcast {
namespace {

/// One round: a group, or a unicast copy for each receiver, and patches.
void add_round(Program& program, bool multicast, std::vector<Rank> receivers,
               std::vector<Rank> patches, RateFraction rate) {
  program.add_round(rate);
  if (multicast) {
    program.send({.group = 0}, receivers);
  } else {
    program.send_each({}, receivers);
  }
  program.send_each({.patch = true}, patches);
}

EpochState epoch_of(std::vector<Rank> receivers, std::vector<Rank> patches, RateFraction rate,
                    bool multicast = false) {
  EpochState out;
  out.program.members = {0, 1, 2, 3};
  add_round(out.program, multicast, std::move(receivers), std::move(patches), rate);
  return out;
}

TEST(PlannedRate, IsTheGreatestSumOfLanes) {
  EXPECT_EQ(planned_rate(epoch_of({}, {}, {900, 1}), 0), 0U);
  EXPECT_EQ(planned_rate(epoch_of({1, 2, 3}, {}, {500, 1}), 0), 1500U);
  EXPECT_EQ(planned_rate(epoch_of({1, 2}, {3}, {500, 1}, true), 0), 1000U);
  // 3 x 1000/7 = 428.57, rounded up: no lane is held below its rate.
  auto two = epoch_of({1, 2, 3}, {}, {1000, 7});
  EXPECT_EQ(planned_rate(two, 0), 429U);
  add_round(two.program, true, {1, 2}, {3}, {500, 1});
  EXPECT_EQ(planned_rate(two, 0), 1000U);
}

TEST(PlannedRate, OnlineItIsWhatTheLinkMayCarry) {
  auto epoch = epoch_of({1}, {}, {500, 1});
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
  DriverConfig config;
  config.job = 7;
  config.world = 4;
  config.frame_bytes = 1472;
  std::vector<float> parameters(1000);
  const auto made = Driver::make(transport, config, std::vector<PeerAddress>(4), parameters);
  ASSERT_TRUE(made);
  Driver& driver = **made;
  const TimePoint now{};
  const auto enter = [&](std::uint32_t number, RateFraction rate) {
    auto epoch = std::make_unique<EpochState>();
    epoch->program.epoch = number;
    epoch->program.members = {0, 1, 2, 3};
    add_round(epoch->program, false, {1, 2}, {}, rate);
    driver.offer(std::move(epoch));
    driver.progress(now);
    ASSERT_TRUE(driver.accepted());
  };
  enter(1, {4000, 1});
  driver.activate(0);
  driver.progress(now);
  ASSERT_TRUE(driver.switched());
  EXPECT_EQ(transport.limits, (std::vector<Kbps>{8000, 8000}));
  // While rounds of two plans may overlap, the greater holds.
  enter(2, {1000, 1});
  EXPECT_EQ(transport.limits.back(), 8000U);
  driver.activate(0);
  driver.progress(now);
  EXPECT_EQ(transport.limits.back(), 2000U);
  const auto told = transport.limits.size();
  driver.push();
  for (int i = 0; i < 100; ++i) driver.progress(now + std::chrono::milliseconds(i));
  EXPECT_EQ(transport.limits.size(), told);
}

}  // namespace
}  // namespace selmcast
