// Receive buffers by themselves: which completion means which buffer, and batches of queues that
// go.
#include "transport/verbs/receive_slots.h"

#include "tests/unit/verbs/support.h"
#include "transport/verbs/ud_queue_pair.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kCount = 100, kQueue = 7;

class Slots : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    opened_ = open_port({}).value();
    pd_.reset(ibv_alloc_pd(opened_.context.get()));
    channel_.reset(ibv_create_comp_channel(opened_.context.get()));
    cq_.reset(ibv_create_cq(opened_.context.get(), 512, nullptr, channel_.get(), 0));
    slots_ = ReceiveSlots::make(pd_.get(), opened_.port, kCount, 1024).value();
    UdSettings settings;
    settings.cq = cq_.get();
    settings.receive_depth = kCount;
    qp_ = make_ud(pd_.get(), opened_.port, settings).value();
  }
  ReceiveQueue queue() const { return {.qp = qp_.get()}; }
  std::vector<ibv_wc> completions() {
    std::vector<ibv_wc> out(512);
    out.resize(static_cast<std::size_t>(ibv_poll_cq(cq_.get(), 512, out.data())));
    return out;
  }

  OpenedPort opened_;
  ProtectionDomain pd_;
  CompletionChannel channel_;
  CompletionQueue cq_;
  std::unique_ptr<ReceiveSlots> slots_;
  QueuePair qp_;
};

TEST_F(Slots, CompletionsFromBeforeARestartNameNoBuffer) {
  ASSERT_EQ(slots_->post_free(queue(), kQueue, kCount), kCount);
  EXPECT_EQ(slots_->held_by(kQueue), kCount);
  fake::break_queue_pair(qp_->qp_num);
  ASSERT_EQ(restart_ud(qp_.get(), opened_.port), 0);
  slots_->queue_gone(kQueue);
  ASSERT_EQ(slots_->post_free(queue(), kQueue, kCount), kCount);
  const auto stale = completions();
  ASSERT_EQ(stale.size(), kCount);
  for (const ibv_wc& wc : stale) EXPECT_FALSE(slots_->ended(number_of(wc.wr_id)));
  fake::inject(qp_->qp_num, std::vector<std::uint8_t>(10, 1));
  const auto fresh = completions();
  ASSERT_EQ(fresh.size(), 1U);
  const auto slot = slots_->ended(number_of(fresh[0].wr_id));
  ASSERT_TRUE(slot);
  EXPECT_EQ(slots_->frame(*slot)[9], std::byte{1});
  slots_->lend(*slot);
  // Told twice it is the same buffer, which is lent by now.
  EXPECT_FALSE(slots_->ended(number_of(fresh[0].wr_id)));
  slots_->free(*slot);
  EXPECT_FALSE(slots_->ended(number_of(fresh[0].wr_id)));
  EXPECT_FALSE(slots_->ended(~std::uint64_t{0} >> 8U));
}

TEST_F(Slots, ABatchGoesWithItsQueue) {
  ASSERT_EQ(slots_->post_free(queue(), kQueue, kCount), kCount);
  fake::inject(qp_->qp_num, std::vector<std::uint8_t>(10, 1));
  const auto slot = slots_->ended(number_of(completions().at(0).wr_id));
  ASSERT_TRUE(slot);
  slots_->repost(*slot, queue(), kQueue);
  ASSERT_EQ(restart_ud(qp_.get(), opened_.port), 0);
  slots_->queue_gone(kQueue);
  EXPECT_EQ(slots_->post_free(queue(), kQueue, kCount), kCount);
  EXPECT_EQ(slots_->flush_error(), 0);
  EXPECT_EQ(fake::receives_posted("fake0"), kCount);
  EXPECT_FALSE(fake::posted_twice());
}

TEST_F(Slots, WhatIsRefusedIsFreeAndSaid) {
  fake::world().fail("ibv_post_recv", 2, ENOMEM);
  EXPECT_EQ(slots_->post_free(queue(), kQueue, kCount), ReceiveSlots::kBatch);
  EXPECT_EQ(slots_->flush_error(), ENOMEM);
  slots_->clear_flush_error();
  EXPECT_EQ(slots_->post_free(queue(), kQueue, kCount), kCount - ReceiveSlots::kBatch);
  EXPECT_EQ(slots_->held_by(kQueue), kCount);
}

}  // namespace
}  // namespace selmcast::verbs
