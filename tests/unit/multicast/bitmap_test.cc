#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "multicast/frame_bitmap.h"

namespace selmcast {
namespace {

/// The same questions answered frame by frame.
struct BitmapModel {
  std::vector<bool> present;

  std::vector<NackRange> gaps_below(std::uint32_t end) const {
    std::vector<NackRange> gaps;
    end = std::min(end, static_cast<std::uint32_t>(present.size()));
    for (std::uint32_t f = 0; f < end; ++f) {
      if (present[f]) continue;
      if (!gaps.empty() && gaps.back().first + gaps.back().count == f) {
        ++gaps.back().count;
      } else {
        gaps.push_back({f, 1});
      }
    }
    return gaps;
  }
  std::uint32_t count() const {
    return static_cast<std::uint32_t>(std::count(present.begin(), present.end(), true));
  }
  std::uint32_t horizon() const {
    for (auto f = static_cast<std::uint32_t>(present.size()); f > 0; --f) {
      if (present[f - 1]) return f;
    }
    return 0;
  }
  std::uint32_t first_gap() const {
    return static_cast<std::uint32_t>(std::find(present.begin(), present.end(), false) -
                                      present.begin());
  }
};

void expect_equal(FrameBitmap& bitmap, const BitmapModel& model, std::uint32_t end,
                  std::size_t room) {
  ASSERT_EQ(bitmap.present(), model.count());
  ASSERT_EQ(bitmap.horizon(), model.horizon());
  ASSERT_EQ(bitmap.complete(), model.count() == model.present.size());
  std::vector<NackRange> out(room);
  const std::size_t found = bitmap.gaps_below(end, out);
  std::vector<NackRange> expected = model.gaps_below(end);
  expected.resize(std::min(expected.size(), room));
  ASSERT_EQ(found, expected.size());
  out.resize(found);
  ASSERT_EQ(out, expected);
  ASSERT_EQ(bitmap.first_gap(), model.first_gap());
}

void run_random(std::uint32_t frames, std::uint64_t seed) {
  SplitMix64 random(seed);
  FrameBitmap bitmap;
  bitmap.resize(frames);
  BitmapModel model{std::vector<bool>(frames)};
  for (std::uint32_t step = 0; step < 3 * frames; ++step) {
    // Mostly in order with holes, as frames come; sometimes anywhere.
    const std::uint32_t at = random.chance(0.7) ? std::min(step, frames - 1)
                                                : static_cast<std::uint32_t>(random.below(frames));
    if (random.chance(0.9)) {
      ASSERT_EQ(bitmap.contains(at), model.present[at]);
      ASSERT_EQ(bitmap.insert(at), !model.present[at]);
      model.present[at] = true;
    }
    if (random.chance(0.1)) {
      expect_equal(bitmap, model, static_cast<std::uint32_t>(random.below(frames + 70)),
                   random.below(6));
    }
  }
  expect_equal(bitmap, model, frames, frames);
  for (std::uint32_t f = 0; f < frames; ++f) bitmap.insert(f);
  EXPECT_TRUE(bitmap.complete());
  EXPECT_EQ(bitmap.first_gap(), frames);
  bitmap.clear();
  expect_equal(bitmap, BitmapModel{std::vector<bool>(frames)}, frames, 3);
}

TEST(FrameBitmap, AgreesWithBruteForce) {
  for (const std::uint32_t frames : {1U, 2U, 63U, 64U, 65U, 127U, 128U, 129U, 300U, 1000U}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(testing::Message() << frames << " frames, seed " << seed);
      run_random(frames, seed);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FrameBitmap, NoFramesIsComplete) {
  FrameBitmap bitmap;
  bitmap.resize(0);
  std::vector<NackRange> out(2);
  EXPECT_TRUE(bitmap.complete());
  EXPECT_EQ(bitmap.first_gap(), 0U);
  EXPECT_EQ(bitmap.gaps_below(10, out), 0U);
}

TEST(FrameBitmap, ResizeForgets) {
  FrameBitmap bitmap;
  bitmap.resize(10);
  bitmap.insert(3);
  bitmap.resize(5);
  EXPECT_EQ(bitmap.present(), 0U);
  EXPECT_EQ(bitmap.horizon(), 0U);
  EXPECT_FALSE(bitmap.contains(3));
}

TEST(FrameBitmap, GapsOfAHandMadePattern) {
  FrameBitmap bitmap;
  bitmap.resize(200);
  for (const std::uint32_t f : {0U, 1U, 5U, 63U, 64U, 130U}) bitmap.insert(f);
  std::vector<NackRange> out(8);
  const std::size_t n = bitmap.gaps_below(bitmap.horizon(), out);
  out.resize(n);
  EXPECT_EQ(out, (std::vector<NackRange>{{2, 3}, {6, 57}, {65, 65}}));
}

TEST(FrameBitmapDeathTest, AFrameBeyondTheEndIsAProgrammerError) {
  FrameBitmap bitmap;
  bitmap.resize(64);
  EXPECT_DEATH(bitmap.insert(64), "not a frame that counts");
  bitmap.begin(10, 20);
  EXPECT_DEATH(bitmap.insert(9), "not a frame that counts");
  EXPECT_DEATH(bitmap.insert(20), "not a frame that counts");
  EXPECT_DEATH(bitmap.begin(3, 65), "beyond the bitmap");
}

TEST(FrameBitmap, OnlyFramesOfItsRangeCount) {
  FrameBitmap bitmap;
  bitmap.resize(200);
  bitmap.insert(150);
  for (const auto& [first, end] : {std::pair{60U, 130U}, {0U, 64U}, {199U, 200U}, {5U, 6U}}) {
    bitmap.begin(first, end);
    EXPECT_EQ(bitmap.present(), 0U);
    EXPECT_EQ(bitmap.horizon(), first);
    EXPECT_EQ(bitmap.first_gap(), first);
    EXPECT_TRUE(bitmap.whole_below(first));
    EXPECT_FALSE(bitmap.whole_below(end));
    std::vector<NackRange> gaps(3);
    ASSERT_EQ(bitmap.gaps_below(1000, gaps), 1U);
    EXPECT_EQ(gaps[0], (NackRange{first, end - first}));
    for (auto f = end; f > first; --f) EXPECT_TRUE(bitmap.insert(f - 1));
    EXPECT_TRUE(bitmap.complete());
    EXPECT_TRUE(bitmap.whole_below(end));
    EXPECT_EQ(bitmap.gaps_below(1000, gaps), 0U);
  }
  bitmap.begin(7, 7);
  EXPECT_TRUE(bitmap.complete());
}

}  // namespace
}  // namespace selmcast
