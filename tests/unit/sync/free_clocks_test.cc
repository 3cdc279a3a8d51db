#include <gtest/gtest.h>

#include "sync/free/clocks.h"

namespace selmcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint moment(Duration since_start) {
  return TimePoint(since_start);
}

TEST(FreeClocks, KnowledgeOnlyGrows) {
  Clocks clocks(0, 3, seconds(1));
  EXPECT_TRUE(clocks.learn(1, {1, 0, 0, false, false}, moment(seconds(1))));
  EXPECT_TRUE(clocks.learn(1, {1, 4, 4, false, false}, moment(seconds(1))));
  EXPECT_FALSE(clocks.learn(1, {1, 3, 0, false, false}, moment(seconds(1))));
  EXPECT_FALSE(clocks.learn(1, {1, 4, 4, false, false}, moment(seconds(1))));
  EXPECT_EQ(clocks.of(1).round, 4U);
  EXPECT_TRUE(clocks.learn(1, {2, 4, 4, false, false}, moment(seconds(1))));
  EXPECT_FALSE(clocks.learn(1, {1, 4, 4, false, false}, moment(seconds(1))));
  EXPECT_EQ(clocks.of(1).epoch, 2U);
  EXPECT_TRUE(clocks.learn(1, {2, 4, 5, true, false}, moment(seconds(1))));
  EXPECT_TRUE(clocks.learn(1, {2, 5, 5, true, true}, moment(seconds(1))));
  EXPECT_FALSE(clocks.learn(1, {2, 5, 5, false, false}, moment(seconds(1))));
  EXPECT_TRUE(clocks.of(1).stopped && clocks.of(1).finished);
}

TEST(FreeClocks, WhoCounts) {
  Clocks clocks(0, 4, seconds(1));
  EXPECT_TRUE(clocks.all_ended(0));
  EXPECT_FALSE(clocks.all_ended(1));
  for (Rank r = 1; r < 4; ++r) clocks.learn(r, {1, r, r, false, false}, moment({}));
  EXPECT_TRUE(clocks.all_ended(1));
  EXPECT_FALSE(clocks.all_ended(2));
  clocks.lose(1);
  EXPECT_TRUE(clocks.all_ended(2)) << "the dead do not count";
  clocks.learn(2, {1, 2, 2, true, false}, moment({}));
  EXPECT_TRUE(clocks.all_ended(3)) << "nor do those that have stopped";
  EXPECT_FALSE(clocks.all_ended(4));
  EXPECT_FALSE(clocks.all_stopped());
  clocks.learn(3, {2, 3, 3, true, true}, moment({}));
  EXPECT_TRUE(clocks.all_stopped());
  EXPECT_FALSE(clocks.all_finished());
  EXPECT_FALSE(clocks.all_in(2));
  clocks.learn(2, {2, 3, 2, true, true}, moment({}));
  EXPECT_TRUE(clocks.all_finished());
  EXPECT_TRUE(clocks.all_in(2));
}

// Asked after 2 ms, and then at intervals that double from 2 ms to 50 ms.
TEST(FreeClocks, AsksEverMoreSeldom) {
  Clocks clocks(0, 3, seconds(10));
  clocks.learn(1, {1, 7, 7, false, false}, moment({}));
  const Clocks::Waits waits{5, false, false, 0};
  std::vector<Duration::rep> asked;
  for (Duration t{}; t < milliseconds(200); t += milliseconds(1)) {
    clocks.wait_for(waits, moment(t));
    while (const auto rank = clocks.to_ask(moment(t))) {
      EXPECT_EQ(*rank, 2U) << "rank 1 is far enough";
      asked.push_back(t / milliseconds(1));
    }
  }
  EXPECT_EQ(asked, (std::vector<Duration::rep>{2, 4, 8, 16, 32, 64, 114, 164}));
  clocks.learn(2, {1, 5, 5, false, false}, moment(milliseconds(200)));
  clocks.wait_for(waits, moment(milliseconds(200)));
  EXPECT_EQ(clocks.next_timer(), kNever);
}

TEST(FreeClocks, SilenceForATimeoutOrNoMoveForThreeMakesASuspect) {
  Clocks clocks(0, 3, seconds(1));
  const Clocks::Waits waits{1, false, false, 0};
  const auto suspect = [&](Duration t) {
    clocks.wait_for(waits, moment(t));
    return clocks.suspect(moment(t));
  };
  EXPECT_EQ(suspect(seconds(5)), std::nullopt) << "the wait begins now";
  EXPECT_EQ(suspect(milliseconds(5'999)), std::nullopt);
  clocks.note_alive(2, moment(milliseconds(5'999)));
  EXPECT_EQ(suspect(seconds(6)), Rank{1});
  EXPECT_EQ(suspect(seconds(6)), std::nullopt) << "once";
  // Rank 2 answers all the time; at 7 s its application does a step.
  clocks.learn(2, {1, 0, 1, false, false}, moment(seconds(7)));
  for (Duration t = seconds(6); t < milliseconds(9'999); t += milliseconds(500)) {
    clocks.note_alive(2, moment(t));
    EXPECT_EQ(suspect(t), std::nullopt) << t / milliseconds(1);
  }
  clocks.note_alive(2, moment(milliseconds(9'999)));
  EXPECT_EQ(suspect(milliseconds(9'999)), std::nullopt);
  EXPECT_EQ(suspect(seconds(10)), Rank{2});
}

// What happened before a wait does not count against anybody.
TEST(FreeClocks, EveryWaitBeginsAnew) {
  Clocks clocks(0, 2, seconds(1));
  clocks.wait_for({1, false, false, 0}, moment(seconds(1)));
  clocks.learn(1, {1, 1, 1, false, false}, moment(milliseconds(1'500)));
  clocks.wait_for({1, false, false, 0}, moment(milliseconds(1'500)));
  clocks.wait_for({2, false, false, 0}, moment(seconds(60)));
  EXPECT_EQ(clocks.suspect(moment(seconds(60))), std::nullopt);
  EXPECT_EQ(clocks.next_timer(), moment(seconds(60) + milliseconds(2)));
}

}  // namespace
}  // namespace selmcast
