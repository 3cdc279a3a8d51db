// Receive buffers under errors: none is lost, none is in two places.
#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "tests/unit/verbs/fake/model.h"
#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;
constexpr std::size_t kBuffers = 2048, kOwn = 256;

class Receiving : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { fake::reset(2); }
  void TearDown() override { expect_nothing_alive("receiving"); }
  bool shared() const { return GetParam(); }
  /// Of a device with one rank with `groups` groups joined; 32 belong to messages.
  std::size_t all_posted(std::size_t groups) const {
    return 32 + (shared() ? kBuffers : kOwn * (groups + 1));
  }
  static std::uint32_t frames_queue(const RankOn& rank) {
    const auto address = rank.transport->address();
    std::uint32_t out = 0;
    std::memcpy(&out, address.bytes.data() + 8 + 16, sizeof out);
    return out;
  }
};

TEST_P(Receiving, EachErrorStatusIsMendedAndNoBufferIsLostOrDoubled) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; ++status) {
    const auto value = static_cast<ibv_wc_status>(status);
    SCOPED_TRACE(ibv_wc_status_str(value));
    RankOn a("fake0"), b("fake1", shared());
    const auto to_b = a.to(b);
    const std::uint32_t qpn = frames_queue(b);
    bool once = true;
    fake::world().receive_status = [&](const ibv_qp& qp) {
      return qp.qp_num == qpn && std::exchange(once, false) ? value : IBV_WC_SUCCESS;
    };
    a.send(Destination::to(to_b), 1, 0);
    ASSERT_TRUE(pump({&a, &b}, [&] {
      a.send(Destination::to(to_b), 2, 1);
      return !b.received.empty();
    }));
    fake::world().receive_status = nullptr;
    ASSERT_TRUE(pump({&a, &b}, [&] { return fake::receives_posted("fake1") == all_posted(0); }));
    EXPECT_FALSE(fake::posted_twice());
    if (value != IBV_WC_WR_FLUSH_ERR) {
      EXPECT_THAT(b.transport->last_error(), HasSubstr("a receive failed: "));
      EXPECT_THAT(b.transport->last_error(), HasSubstr(ibv_wc_status_str(value)));
    }
  }
}

TEST_P(Receiving, AQueuePairThatOnlyFlushesIsMendedToo) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  fake::break_queue_pair(frames_queue(b));
  ASSERT_TRUE(pump({&a, &b}, [&] {
    a.send(Destination::to(to_b), 2, 1);
    return !b.received.empty();
  }));
  b.poll();
  EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0));
  EXPECT_FALSE(fake::posted_twice());
}

// With a shared queue nothing comes back from a queue pair in error.
TEST_P(Receiving, OneInErrorIsMendedOnItsEventWhileOthersAreHeard) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  const auto sender = a.join(1, JoinAs::send_only), member = b.join(1);
  const std::uint32_t qpn = fake::queue_pairs(IBV_QPT_UD).back();
  for (const auto event : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    b.received.clear();
    fake::break_queue_pair(qpn);
    fake::raise("fake1", event);
    EXPECT_TRUE(pump({&a, &b}, [&] {
      a.send(Destination::to(to_b), 1, 0);
      a.send(Destination::to(sender), 2, 0);
      return std::any_of(b.received.begin(), b.received.end(),
                         [](const auto& frame) { return frame[0] == std::byte{2}; });
    })) << ibv_event_type_str(event);
  }
}

// More than one poll takes is waiting when the device says so.
TEST_P(Receiving, WhatOneInErrorHasBroughtIsPolledBeforeItsRestart) {
  RankOn a("fake0"), b("fake1", shared());
  fake::world().purges = true;
  const auto to_b = a.to(b);
  for (std::uint64_t i = 0; i < 60; ++i) a.send(Destination::to(to_b), 1, i);
  ASSERT_TRUE(pump({&a}, [&] { return a.done.size() == 60; }));
  for (std::uint64_t i = 0; i < 60; ++i) a.send(Destination::to(to_b), 1, i);
  fake::break_queue_pair(frames_queue(b));
  fake::raise("fake1", IBV_EVENT_QP_FATAL);
  std::this_thread::sleep_for(milliseconds(50));  // a thread hears it
  ASSERT_TRUE(pump({&b}, [&] { return fake::receives_posted("fake1") == all_posted(0); }));
  EXPECT_FALSE(fake::posted_twice());
  if (shared()) {
    EXPECT_EQ(b.received.size(), 120U);
  }
  b.received.clear();
  ASSERT_TRUE(pump({&a, &b}, [&] {
    a.send(Destination::to(to_b), 1, 0);
    return !b.received.empty();
  }));
}

TEST_P(Receiving, WaitingTakesAllEventsOfCompletions) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  b.transport->wait({});
  for (std::size_t i = 1; i <= 10; ++i) {
    a.send(Destination::to(to_b), 1, 0);
    b.transport->wait({});  // sees the frame itself, and asks for another event
    b.poll();
    ASSERT_EQ(b.received.size(), i);
  }
  b.transport->wait({});
  const auto begun = std::chrono::steady_clock::now();
  b.transport->wait(milliseconds(100));
  EXPECT_GE(std::chrono::steady_clock::now() - begun, milliseconds(90));
}

TEST_P(Receiving, LentBuffersSurviveARestart) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  b.keep = true;
  for (std::uint64_t i = 0; i < 10; ++i) a.send(Destination::to(to_b), 1, i);
  ASSERT_TRUE(pump({&a, &b}, [&] { return b.kept.size() == 10; }));
  const std::uint32_t qpn = frames_queue(b);
  bool once = true;
  fake::world().receive_status = [&](const ibv_qp& qp) {
    return qp.qp_num == qpn && std::exchange(once, false) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
  };
  b.keep = false;
  ASSERT_TRUE(pump({&a, &b}, [&] {
    a.send(Destination::to(to_b), 1, 10);
    return b.received.size() > 10;
  }));
  b.poll();
  EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0) - 10);
  for (const std::uint32_t token : b.kept) {
    const ReceiveRequest back{token};
    b.transport->post_receives({&back, 1});
  }
  EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0));
  EXPECT_FALSE(fake::posted_twice());
}

TEST_P(Receiving, RefusedReceivesArePostedAgain) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  fake::world().fail(shared() ? "ibv_post_srq_recv" : "ibv_post_recv", 1, ENOMEM, 3);
  for (std::uint64_t i = 0; i < 10; ++i) a.send(Destination::to(to_b), 1, i);
  ASSERT_TRUE(pump({&a, &b}, [&] {
    return b.received.size() == 10 && fake::receives_posted("fake1") == all_posted(0);
  }));
  EXPECT_FALSE(fake::posted_twice());
}

TEST_P(Receiving, RestartsThatFailAreTriedAtGrowingIntervals) {
  RankOn a("fake0"), b("fake1", shared());
  const auto to_b = a.to(b);
  const std::uint32_t qpn = frames_queue(b);
  bool once = true;
  fake::world().receive_status = [&](const ibv_qp& qp) {
    return qp.qp_num == qpn && std::exchange(once, false) ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS;
  };
  a.send(Destination::to(to_b), 1, 0);
  constexpr int kFail = 7;
  fake::world().fail("ibv_modify_qp", 1, EINVAL, kFail);
  const auto start = std::chrono::steady_clock::now();
  std::size_t polls = 0;
  while (fake::world().calls["ibv_modify_qp"] <= kFail) b.poll(), ++polls;
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds((1 << kFail) - 1));
  EXPECT_GT(polls, static_cast<std::size_t>(kFail));
  EXPECT_THAT(b.transport->last_error(), HasSubstr("bringing a queue pair back on fake1"));
  ASSERT_TRUE(pump({&a, &b}, [&] {
    a.send(Destination::to(to_b), 1, 0);
    return !b.received.empty();
  }));
}

TEST_P(Receiving, FramesOfAGroupThatWasLeftAreNotHandedOver) {
  for (const bool purges : {false, true}) {
    RankOn a("fake0"), b("fake1", shared());
    fake::world().purges = purges;
    const auto sender = a.join(1, JoinAs::send_only);
    auto left = b.join(1);
    a.send(Destination::to(sender), 1, 0);
    left.reset();
    a.send(Destination::to(sender), 1, 1);
    ASSERT_TRUE(pump({&a, &b}, [&] { return a.done.size() == 2; }));
    b.poll();
    EXPECT_TRUE(b.received.empty());
    EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0));
    left = b.join(1);
    a.send(Destination::to(sender), 1, 2);
    ASSERT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 1; }));
  }
}

TEST_P(Receiving, ManyLeavesBetweenTwoPollsDoNotOverrunTheCompletionQueue) {
  RankOn a("fake0"), b("fake1", shared());
  for (std::uint32_t i = 0; i < 100; ++i) const auto briefly = b.join(i % 3);
  EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0));
  const auto to_b = a.to(b);
  a.send(Destination::to(to_b), 1, 0);
  EXPECT_TRUE(pump({&a, &b}, [&] { return b.received.size() == 1; }));
}

TEST_P(Receiving, ShortAndOverlongDatagramsGiveTheirBuffersBack) {
  RankOn b("fake1", shared());
  const std::uint32_t qpn = frames_queue(b);
  fake::inject(qpn, {});
  b.poll();
  EXPECT_TRUE(b.received.empty());
  EXPECT_EQ(fake::receives_posted("fake1"), all_posted(0));
  fake::inject(qpn, std::vector<std::uint8_t>(1025, 1));
  ASSERT_TRUE(pump({&b}, [&] { return fake::receives_posted("fake1") == all_posted(0); }));
  ASSERT_TRUE(pump({&b}, [&] {
    fake::inject(qpn, std::vector<std::uint8_t>(1024, 1));  // lost until the restart
    return !b.received.empty();
  }));
}

TEST_P(Receiving, TenThousandRandomStepsConserveTheBuffers) {
  for (const bool purges : {false, true}) {
    SplitMix64 random(purges ? 21 : 22);
    RankOn a("fake0"), b("fake1", shared());
    fake::world().purges = purges;
    const auto to_b = a.to(b);
    std::array<Membership, 5> senders, members;
    for (std::uint32_t g = 0; g < 5; ++g) senders[g] = a.join(g, JoinAs::send_only);
    bool wrong = false;
    fake::world().receive_status = [&](const ibv_qp& qp) {
      const bool here = std::string(qp.context->device->name) == "fake1";
      return here && std::exchange(wrong, false) ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
    };
    b.keep = true;
    for (int step = 0; step < 10'000; ++step) {
      const auto g = static_cast<std::uint32_t>(random() % 5);
      switch (random() % 8) {
        case 0:
          if (members[g]) {
            members[g].reset();
          } else if (auto made = b.transport->join({g}, JoinAs::receiver)) {
            members[g] = std::move(made).value();
          }
          break;
        case 1:
          if (random() % 16 == 0) wrong = true;
          break;
        case 2:
          if (random() % 32 == 0) {
            fake::world().fail(shared() ? "ibv_post_srq_recv" : "ibv_post_recv", 1, ENOMEM);
          }
          break;
        case 3:
          b.poll();
          break;
        case 4:
          if (b.kept.empty()) break;
          std::swap(b.kept[random() % b.kept.size()], b.kept.back());
          {
            const ReceiveRequest back{b.kept.back()};
            b.transport->post_receives({&back, 1});
          }
          b.kept.pop_back();
          break;
        case 5:
          a.send(Destination::to(to_b), 1, 0);
          a.poll();
          break;
        default:
          a.send(Destination::to(senders[g]), static_cast<std::uint8_t>(g), 0);
          a.poll();
      }
      if (step % 32 == 0) {
        ASSERT_FALSE(fake::posted_twice()) << step;
      }
    }
    wrong = false;
    fake::world().fail("", 0, 0);
    for (const std::uint32_t token : b.kept) {
      const ReceiveRequest back{token};
      b.transport->post_receives({&back, 1});
    }
    b.keep = false;
    for (auto& member : members) member.reset();
    ASSERT_TRUE(pump({&a, &b}, [&] { return fake::receives_posted("fake1") == all_posted(0); }))
        << fake::receives_posted("fake1") << " of " << all_posted(0);
    // Own queues: all the other buffers are free, or these could not be joined.
    for (std::uint32_t g = 0; g < 5; ++g) members[g] = b.join(g);
    EXPECT_EQ(fake::receives_posted("fake1"), all_posted(5));
    EXPECT_FALSE(fake::posted_twice());
  }
}

INSTANTIATE_TEST_SUITE_P(Queues, Receiving, testing::Bool(),
                         [](const auto& of) { return of.param ? "Shared" : "Own"; });

}  // namespace
}  // namespace selmcast::verbs_test
