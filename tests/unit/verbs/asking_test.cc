// How often a peer that does not answer is asked for a way to read, by a clock moved by hand.
#include "tests/unit/verbs/support.h"
#include "transport/verbs/rail.h"

namespace selmcast::verbs_test {
namespace {

using testing::ElementsAre;

class Asking : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset(2);
    verbs::RailSettings settings;
    settings.wish.device = "fake0";
    settings.send_depth = 64;
    settings.buffers = 64;
    rail_ = verbs::Rail::make(settings).value();
    settings.wish.device = "fake1";
    peer_ = verbs::Rail::make(settings).value();
    way_ = rail_->reach(peer_->address()).value();
    rail_->reads().add(7, peer_->address(), way_.get());
  }
  void TearDown() override {
    way_.reset();
    rail_.reset();
    peer_.reset();
    expect_nothing_alive("asking");
  }
  /// Milliseconds from `from` on at which asks go out, until `to`, a step a millisecond.
  std::vector<int> asks(int from, int to) {
    std::vector<int> out;
    for (int ms = from; ms < to; ++ms) {
      const auto before = rail_->reads().messages_sent();
      rail_->reads().progress(TimePoint(std::chrono::seconds(100)) + milliseconds(ms));
      // The completions of the messages make room for further ones.
      std::array<ibv_wc, 16> done;
      const int count = ibv_poll_cq(rail_->cq(), 16, done.data());
      for (int i = 0; i < count; ++i) rail_->reads().on_message(done[static_cast<std::size_t>(i)]);
      if (rail_->reads().messages_sent() != before) out.push_back(ms - from);
    }
    return out;
  }

  verbs::AddressHandle way_;
  std::unique_ptr<verbs::Rail> rail_, peer_;
};

TEST_F(Asking, PausesDoubleUpToABound) {
  EXPECT_FALSE(rail_->reads().ready(7));
  // 20, 40, 80 and then 160 ms apart.
  EXPECT_THAT(asks(0, 1000), ElementsAre(0, 20, 60, 140, 300, 460, 620, 780, 940));
}

TEST_F(Asking, ALaterConnectionBeginsWithShortPauses) {
  EXPECT_FALSE(rail_->reads().ready(7));
  asks(0, 1000);
  rail_->reads().give_up();
  EXPECT_FALSE(rail_->reads().ready(7));
  const auto again = asks(2000, 2200);
  ASSERT_GE(again.size(), 3U);
  EXPECT_EQ(again[1] - again[0], 20);
  EXPECT_EQ(again[2] - again[1], 40);
}

}  // namespace
}  // namespace selmcast::verbs_test
