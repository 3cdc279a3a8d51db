#include "tools/papers/fluid.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace selmcast {
namespace {

Stream stream(Rank sender, std::vector<Rank> receivers, double left = 1.0, double deadline = 0.0) {
  return {sender, std::move(receivers), left, deadline, 0.0};
}

std::vector<double> rates(const Cards& cards, std::vector<Stream> streams, bool fair) {
  std::vector<Stream*> all;
  for (auto& one : streams) all.push_back(&one);
  fair ? max_min_rates(cards, all) : deadline_rates(cards, all);
  std::vector<double> out;
  for (const auto& one : streams) out.push_back(one.rate);
  return out;
}

// By hand: receiver 1 (rate 3) is shared by streams 0 and 1, which get 1.5 each; the multicast 1 is
// held there, so stream 2 has the other 8.5 of receiver 2.
TEST(Fluid, MaxMinByHand) {
  const Cards cards = {{100, 100, 100, 100}, {10, 3, 10, 10}};
  const auto got = rates(cards, {stream(0, {1}), stream(2, {1, 3}), stream(0, {3})}, true);
  EXPECT_DOUBLE_EQ(got[0], 1.5);
  EXPECT_DOUBLE_EQ(got[1], 1.5);
  EXPECT_DOUBLE_EQ(got[2], 8.5);
}

TEST(Fluid, SendersAreCardsToo) {
  const Cards cards = {{4, 100, 100}, {100, 100, 100}};
  const auto got = rates(cards, {stream(0, {1}), stream(0, {2}), stream(1, {2})}, true);
  EXPECT_DOUBLE_EQ(got[0], 2);
  EXPECT_DOUBLE_EQ(got[1], 2);
  EXPECT_DOUBLE_EQ(got[2], 98);
}

// By hand: the earlier deadline gets its 5 of the 10, the later its 4, and the earlier the rest.
TEST(Fluid, DeadlinesByHand) {
  const Cards cards = {{100, 100, 100}, {10, 10, 10}};
  const auto got = rates(cards, {stream(0, {2}, 40, 10), stream(1, {2}, 10, 2)}, false);
  EXPECT_DOUBLE_EQ(got[1], 6);
  EXPECT_DOUBLE_EQ(got[0], 4);
  // A deadline that has passed takes all.
  const auto late = rates(cards, {stream(0, {2}, 40, 10), stream(1, {2}, 10, -1)}, false);
  EXPECT_DOUBLE_EQ(late[1], 10);
  EXPECT_DOUBLE_EQ(late[0], 0);
}

// By hand: at receiver 2 the earlier deadline takes the 8 its sender has, the later the other 2. At
// receiver 3 it takes 5 of the same 8: the sender pays once.
TEST(Fluid, ReplicasByHand) {
  const Cards cards = {{8, 100, 100, 100}, {10, 10, 10, 5}};
  std::vector<Stream> streams = {stream(1, {2}, 1, 9), stream(0, {2}, 1, 2), stream(0, {3}, 1, 2),
                                 stream(1, {3}, 0, 1)};
  std::vector<Stream*> all;
  for (auto& one : streams) all.push_back(&one);
  replicated_rates(cards, all);
  EXPECT_DOUBLE_EQ(streams[0].rate, 2);
  EXPECT_DOUBLE_EQ(streams[1].rate, 8);
  EXPECT_DOUBLE_EQ(streams[2].rate, 5);
  EXPECT_DOUBLE_EQ(streams[3].rate, 0);  // Nothing left.
}

/// What each card carries, and whether the stream meets a full one (on which, if `fair`, no other
/// stream is faster).
void check_allocation(const Cards& cards, const std::vector<Stream>& streams, bool fair) {
  const auto n = cards.tx.size();
  std::vector<double> tx(n), rx(n), fastest_tx(n), fastest_rx(n);
  for (const auto& one : streams) {
    tx[one.sender] += one.rate;
    fastest_tx[one.sender] = std::max(fastest_tx[one.sender], one.rate);
    for (const auto j : one.receivers) {
      rx[j] += one.rate;
      fastest_rx[j] = std::max(fastest_rx[j], one.rate);
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    EXPECT_LE(tx[r], cards.tx[r] * (1 + 1e-9));
    EXPECT_LE(rx[r], cards.rx[r] * (1 + 1e-9));
  }
  for (const auto& one : streams) {
    const auto held = [&](double used, double card, double fastest) {
      return used > card * (1 - 1e-9) && (!fair || one.rate > fastest * (1 - 1e-9));
    };
    bool ok = held(tx[one.sender], cards.tx[one.sender], fastest_tx[one.sender]);
    for (const auto j : one.receivers) ok = ok || held(rx[j], cards.rx[j], fastest_rx[j]);
    EXPECT_TRUE(ok);
  }
}

// A max-min allocation is the one where each stream meets a full card on which none is faster; a
// work-conserving one is where each meets a full card.
TEST(Fluid, EveryStreamMeetsAFullCard) {
  SplitMix64 random(8);
  for (int instance = 0; instance < 300; ++instance) {
    const auto n = static_cast<Rank>(2 + random.below(9));
    Cards cards;
    for (Rank r = 0; r < n; ++r) {
      cards.tx.push_back(1 + 9 * random.unit());
      cards.rx.push_back(1 + 9 * random.unit());
    }
    std::vector<Stream> streams;
    for (int s = 0; s < 12; ++s) {
      const auto sender = static_cast<Rank>(random.below(n));
      std::vector<Rank> receivers;
      for (Rank j = 0; j < n; ++j) {
        if (j != sender && random.chance(0.4)) receivers.push_back(j);
      }
      if (!receivers.empty()) {
        streams.push_back(stream(sender, receivers, 1 + random.unit(), 4 * random.unit() - 1));
      }
    }
    for (const bool fair : {true, false}) {
      std::vector<Stream*> all;
      for (auto& one : streams) all.push_back(&one);
      fair ? max_min_rates(cards, all) : deadline_rates(cards, all);
      check_allocation(cards, streams, fair);
    }
  }
}

// Sizes 1 and 3 into one receiver of rate 2: both at 1 until 1, then the second at 2 for 1 more.
TEST(Fluid, FairCompletionByHand) {
  const Cards cards = {{9, 9, 9}, {9, 9, 2}};
  EXPECT_NEAR(fair_completion_ms(cards, {stream(0, {2}, 1), stream(1, {2}, 3)}), 2.0, 1e-9);
  EXPECT_EQ(fair_completion_ms(cards, {}), 0.0);
  EXPECT_EQ(fair_completion_ms(cards, {stream(0, {2}, 0)}), 0.0);
}

}  // namespace
}  // namespace selmcast
