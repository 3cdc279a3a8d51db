// Rates that devices hold queues to: which, when they are set, and what happens where they are
// refused.
#include <cerrno>

#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint32_t kLeast = 1'000, kMost = 100'000'000;

class DevicePacing : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    for (auto& device : fake::world().devices) device.pacing = paces(IBV_QPT_UD);
  }
  void TearDown() override { expect_nothing_alive("pacing"); }

  static ibv_packet_pacing_caps paces(ibv_qp_type type) {
    return {.qp_rate_limit_min = kLeast, .qp_rate_limit_max = kMost, .supported_qpts = 1U << type};
  }
  /// Rates of all UD queue pairs but those without any.
  static std::vector<std::uint32_t> rates() {
    std::vector<std::uint32_t> out;
    for (const auto qpn : fake::queue_pairs(IBV_QPT_UD)) {
      if (const auto rate = fake::rate_of(qpn); rate != 0) out.push_back(rate);
    }
    return out;
  }
  static int asked() { return fake::world().calls["ibv_modify_qp_rate_limit"]; }
};

TEST_F(DevicePacing, TheQueueThatSendsIsHeldToTheRankTotal) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(5'000'000));
  EXPECT_THAT(rates(), ElementsAre(5'000'000));
  // Once a change of plan, never for frames.
  const int before = asked();
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(5'000'000));
  for (std::uint64_t i = 0; i < 20; ++i) a.send(Destination::to(to_b), 1, i);
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 20 && a.done.size() == 20; }));
  EXPECT_EQ(asked(), before);
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(6'000'000));
  EXPECT_THAT(rates(), ElementsAre(6'000'000));
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(0));
  EXPECT_THAT(rates(), IsEmpty());
  EXPECT_THAT(a.transport->notices(), IsEmpty());
}

TEST_F(DevicePacing, RailsCarryEqualSharesRoundedUp) {
  RankOn a("fake0+fake1");
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(10'000'001));
  EXPECT_THAT(rates(), ElementsAre(5'000'001, 5'000'001));
}

TEST_F(DevicePacing, OnlyWhereTheDevicePacesThisTypeOfQueuePair) {
  for (const auto& pacing :
       {paces(IBV_QPT_RC), paces(IBV_QPT_RAW_PACKET), ibv_packet_pacing_caps{}}) {
    fake::world().devices[0].pacing = pacing;
    RankOn a("fake0");
    EXPECT_EQ(a.transport->abilities().pacing, nullptr);
    EXPECT_EQ(asked(), 0);
    EXPECT_THAT(a.transport->notices(), IsEmpty());
  }
}

TEST_F(DevicePacing, ARateOutsideTheDevicesRangeEndsAnEarlierOne) {
  RankOn a("fake0");
  for (const Kbps outside : {Kbps{kLeast} - 1, Kbps{kMost} + 1, Kbps{1} << 40U}) {
    for (const Kbps inside : {Kbps{kLeast}, Kbps{kMost}}) {
      EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(inside));
      EXPECT_THAT(rates(), ElementsAre(inside));
      EXPECT_FALSE(a.transport->abilities().pacing->limit_rate(outside));
      EXPECT_THAT(rates(), IsEmpty());
    }
  }
  EXPECT_THAT(a.transport->notices(), IsEmpty());
}

TEST_F(DevicePacing, ARefusalIsOneNoticeAndTheDeviceIsNotAskedAgain) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  fake::world().fail("ibv_modify_qp_rate_limit", 1, ENOSPC);
  EXPECT_FALSE(a.transport->abilities().pacing->limit_rate(5'000'000));
  EXPECT_FALSE(a.transport->abilities().pacing->limit_rate(6'000'000));
  EXPECT_EQ(asked(), 1);
  EXPECT_THAT(a.transport->notices(),
              ElementsAre(testing::AllOf(HasSubstr("fake0 port 1"), HasSubstr("No space left"))));
  EXPECT_EQ(a.transport->last_error(), "");
  a.send(Destination::to(to_b), 1, 0);
  EXPECT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 1 && a.done.size() == 1; }));
}

TEST_F(DevicePacing, ARefusedChangeLeavesNoRateOfAnEarlierPlan) {
  RankOn a("fake0");
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(5'000'000));
  fake::world().fail("ibv_modify_qp_rate_limit", 1, ENOSPC);
  EXPECT_FALSE(a.transport->abilities().pacing->limit_rate(50'000'000));
  EXPECT_THAT(rates(), IsEmpty());
}

TEST_F(DevicePacing, AQueueBroughtBackFromAnErrorIsHeldToItsRateAgain) {
  RankOn a("fake0"), b("fake1");
  const auto to_b = a.to(b);
  EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(5'000'000));
  bool bad = true;
  fake::world().send_status = [&](const ibv_qp&, const ibv_send_wr&) {
    return std::exchange(bad, false) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
  };
  a.send(Destination::to(to_b), 1, 0);
  ASSERT_TRUE(pump({&a, &b}, [&] {
    return a.send(Destination::to(to_b), 1, 1).accepted == 1 && !b.received.empty();
  }));
  EXPECT_THAT(rates(), ElementsAre(5'000'000));
}

TEST_F(DevicePacing, ARateForAQueueInErrorHoldsOnceItIsBack) {
  for (const bool known : {false, true}) {
    RankOn a("fake0"), b("fake1");
    const auto to_b = a.to(b);
    EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(5'000'000));
    for (const auto qpn : fake::queue_pairs(IBV_QPT_UD)) {
      if (fake::rate_of(qpn) != 0) fake::break_queue_pair(qpn);
    }
    if (known) {
      a.send(Destination::to(to_b), 1, 0);
      a.poll();
    }
    EXPECT_TRUE(a.transport->abilities().pacing->limit_rate(7'000'000));
    ASSERT_TRUE(pump({&a, &b}, [&] {
      return a.send(Destination::to(to_b), 1, 1).accepted == 1 && !b.received.empty();
    }));
    EXPECT_THAT(rates(), ElementsAre(7'000'000));
    EXPECT_THAT(a.transport->notices(), IsEmpty()) << "an error is no refusal";
  }
}

TEST_F(DevicePacing, ADeviceThatAnswersNoQuestionsPacesNothing) {
  fake::world().fail("ibv_query_device_ex", 1, EOPNOTSUPP, 100);
  RankOn a("fake0");
  EXPECT_EQ(a.transport->abilities().pacing, nullptr);
  EXPECT_EQ(asked(), 0);
}

}  // namespace
}  // namespace selmcast::verbs_test
