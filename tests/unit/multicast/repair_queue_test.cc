#include "multicast/repair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/random.h"

namespace selmcast {
namespace {

bool same(const RepairRun& a, const RepairRun& b) {
  return a.first == b.first && a.count == b.count && a.several == b.several &&
         a.receiver == b.receiver;
}

TEST(RepairQueue, OneReceiverGetsItsFramesAlone) {
  RepairQueue queue;
  queue.resize(100, 4);
  queue.request(3, {10, 5});
  EXPECT_EQ(queue.owed(), 5U);
  const auto run = queue.take(100);
  ASSERT_TRUE(run);
  EXPECT_TRUE(same(*run, {10, 5, false, 3}));
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.take(100));
}

TEST(RepairQueue, SeveralReceiversShareOneRepair) {
  RepairQueue queue;
  queue.resize(100, 4);
  queue.request(0, {10, 6});
  queue.request(2, {12, 2});
  queue.request(0, {12, 1});
  EXPECT_EQ(queue.owed(), 6U);
  std::vector<RepairRun> runs;
  while (const auto run = queue.take(100)) runs.push_back(*run);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_TRUE(same(runs[0], {10, 2, false, 0}));
  EXPECT_TRUE(same(runs[1], {12, 2, true, 0}));
  EXPECT_TRUE(same(runs[2], {14, 2, false, 0}));
}

TEST(RepairQueue, ATakenFrameCanBeAskedForAgain) {
  RepairQueue queue;
  queue.resize(10, 2);
  queue.request(0, {4, 1});
  queue.request(1, {4, 1});
  ASSERT_TRUE(queue.take(1)->several);
  queue.request(1, {4, 1});
  const auto run = queue.take(1);
  ASSERT_TRUE(run);
  EXPECT_TRUE(same(*run, {4, 1, false, 1})) << "who asked before it was taken must not count";
}

TEST(RepairQueue, TakesLowestFirstAndWraps) {
  RepairQueue queue;
  queue.resize(1000, 1);
  queue.request(0, {500, 1});
  queue.request(0, {900, 1});
  EXPECT_EQ(queue.take(9)->first, 500U);
  queue.request(0, {100, 1});
  EXPECT_EQ(queue.take(9)->first, 900U);
  EXPECT_EQ(queue.take(9)->first, 100U);
}

TEST(RepairQueue, ARunNeverWrapsAround) {
  RepairQueue queue;
  queue.resize(10, 1);
  queue.request(0, {0, 10});
  EXPECT_EQ(queue.take(8)->count, 8U);
  queue.request(0, {0, 8});
  EXPECT_TRUE(same(*queue.take(8), {8, 2, false, 0}));
  EXPECT_TRUE(same(*queue.take(8), {0, 8, false, 0}));
}

TEST(RepairQueue, ZeroFramesTakesNothing) {
  RepairQueue queue;
  queue.resize(10, 1);
  queue.request(0, {0, 1});
  EXPECT_FALSE(queue.take(0));
  EXPECT_EQ(queue.owed(), 1U);
}

TEST(RepairQueue, HighestReceiverIsNotMistakenForSeveral) {
  RepairQueue queue;
  queue.resize(3, 65'533);
  queue.request(65'532, {1, 1});
  EXPECT_TRUE(same(*queue.take(3), {1, 1, false, 65'532}));
}

/// Brute force: who asked for each frame since it was last taken.
class Model {
 public:
  void request(std::uint32_t receiver, NackRange range) {
    for (std::uint32_t f = range.first; f < range.first + range.count; ++f) {
      owed_[f].insert(receiver);
    }
  }
  std::size_t owed() const { return owed_.size(); }
  /// The lowest owed frame at or above the end of the last run, wrapping.
  std::uint32_t next() const {
    const auto it = owed_.lower_bound(cursor_);
    return it == owed_.end() ? owed_.begin()->first : it->first;
  }
  void expect_run(const RepairRun& run, std::uint32_t frames_max) {
    ASSERT_EQ(run.first, next());
    ASSERT_GE(run.count, 1U);
    ASSERT_LE(run.count, frames_max);
    for (std::uint32_t f = run.first; f < run.first + run.count; ++f) {
      ASSERT_TRUE(owed_.contains(f)) << "frame " << f << " was not owed";
      ASSERT_EQ(run.several, owed_[f].size() > 1);
      if (!run.several) {
        ASSERT_EQ(*owed_[f].begin(), run.receiver);
      }
      owed_.erase(f);
    }
    const auto after = owed_.find(run.first + run.count);
    if (run.count < frames_max && after != owed_.end()) {
      const bool goes_on = run.several ? after->second.size() > 1
                                       : after->second == std::set<std::uint32_t>{run.receiver};
      ASSERT_FALSE(goes_on) << "the run could have been longer";
    }
    cursor_ = run.first + run.count;
  }
  void clear() {
    owed_.clear();
    cursor_ = 0;
  }

 private:
  std::map<std::uint32_t, std::set<std::uint32_t>> owed_;
  std::uint32_t cursor_ = 0;
};

void run_random(std::uint32_t frames, std::uint32_t receivers, std::uint64_t seed) {
  SplitMix64 random(seed);
  RepairQueue queue;
  queue.resize(frames, receivers);
  Model model;
  for (int step = 0; step < 2000; ++step) {
    if (random.chance(0.5)) {
      const auto first = static_cast<std::uint32_t>(random.below(frames));
      const auto count =
          1 + static_cast<std::uint32_t>(random.below(std::min(frames - first, 20U)));
      const auto receiver = static_cast<std::uint32_t>(random.below(receivers));
      queue.request(receiver, {first, count});
      model.request(receiver, {first, count});
    } else {
      const auto most = 1 + static_cast<std::uint32_t>(random.below(10));
      const auto run = queue.take(most);
      ASSERT_EQ(run.has_value(), model.owed() > 0);
      if (run) model.expect_run(*run, most);
      if (testing::Test::HasFatalFailure()) return;
    }
    if (random.chance(0.002)) {
      queue.clear();
      model.clear();
    }
    ASSERT_EQ(queue.owed(), model.owed());
    ASSERT_EQ(queue.empty(), model.owed() == 0);
  }
}

TEST(RepairQueue, AgreesWithBruteForce) {
  for (const std::uint32_t frames : {1U, 63U, 64U, 65U, 200U, 1000U}) {
    for (const std::uint32_t receivers : {1U, 2U, 7U}) {
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(testing::Message() << frames << "/" << receivers << "/" << seed);
        run_random(frames, receivers, seed);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(RepairQueueDeathTest, ARangeBeyondTheEndIsAProgrammerError) {
  RepairQueue queue;
  queue.resize(10, 1);
  EXPECT_DEATH(queue.request(0, {5, 0xFFFFFFFF}), "beyond the queue");
  EXPECT_DEATH(queue.request(1, {0, 1}), "receiver index");
}

}  // namespace
}  // namespace selmcast
