#include "train/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

namespace selmcast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string line_of(const std::string& pixel, const std::string& label) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += pixel + ",";
  return line + label;
}

std::string complaint(const std::string& text) {
  const auto data = parse_digits(text, "d.csv");
  if (data) return "accepted";
  EXPECT_EQ(data.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(data.error().message.find('\n'), std::string::npos);
  return data.error().message;
}

const Dataset& digits() {
  static const Dataset data = [] {
    const auto path = find_digits();
    return *load_digits(*path);
  }();
  return data;
}

std::array<int, 10> class_counts(const std::vector<std::uint32_t>& samples) {
  std::array<int, 10> counts{};
  for (const std::uint32_t sample : samples) ++counts.at(digits().labels[sample]);
  return counts;
}

std::size_t classes_in(const std::vector<std::uint32_t>& samples) {
  const auto counts = class_counts(samples);
  return static_cast<std::size_t>(std::ranges::count_if(counts, [](int c) { return c > 0; }));
}

TEST(DigitsFile, ScalesPixels) {
  const auto data = parse_digits(line_of("4", "7") + "\r\n" + line_of("16", "0"), "d.csv");
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->size(), 2U);
  EXPECT_EQ(data->image(0)[63], 0.25F);
  EXPECT_EQ(data->image(1)[0], 1.0F);
  EXPECT_EQ(data->labels[0], 7);
}

TEST(DigitsFile, SaysWhereALineIsWrong) {
  const std::string good = line_of("3", "1") + "\n";
  EXPECT_THAT(complaint(""), HasSubstr("d.csv: empty"));
  EXPECT_THAT(complaint(good + line_of("17", "1")),
              AllOf(HasSubstr("d.csv: line 2: column 1: \"17\""), HasSubstr("0..16")));
  EXPECT_THAT(complaint(line_of("3", "10")), AllOf(HasSubstr("column 65"), HasSubstr("0..9")));
  for (const char* bad : {"-1", "+1", " 1", "1.0", "", "1e0", "x", "99999999999999999999"}) {
    EXPECT_THAT(complaint(line_of(bad, "1")), HasSubstr("line 1: column 1")) << bad;
  }
  EXPECT_THAT(complaint(good + "\n" + good), HasSubstr("line 2: only 1 columns"));
  EXPECT_THAT(complaint("1,2,3\n"), HasSubstr("line 1: only 3 columns"));
  EXPECT_THAT(complaint(line_of("3", "1,")), HasSubstr("more than 65 columns"));
  EXPECT_THAT(complaint(line_of("3", "1") + "," + good), HasSubstr("more than 65 columns"));
  EXPECT_THAT(complaint(std::string(1000, '\x01')), HasSubstr("only 1 columns"));
}

TEST(DigitsFile, SaysWhyAFileCannotBeRead) {
  EXPECT_THAT(load_digits("/nonexistent.csv").error().message, HasSubstr("cannot be read"));
  EXPECT_THAT(load_digits(::testing::TempDir()).error().message, HasSubstr("is a folder"));
}

TEST(DigitsFile, TheShippedOneIsUcis) {
  // Counts by class of optdigits.tes, from its documentation at UCI.
  const auto path = find_digits();
  ASSERT_TRUE(path) << path.error().message;
  std::array<int, 10> counts{};
  for (const auto label : digits().labels) ++counts.at(label);
  EXPECT_EQ(counts, (std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

TEST(TrainTestSplit, IsStratifiedAndSeeded) {
  const auto split = split_train_test(digits(), 1);
  EXPECT_EQ(split.test.size(), 360U);
  EXPECT_EQ(split.train.size(), 1437U);
  std::set<std::uint32_t> all(split.train.begin(), split.train.end());
  all.insert(split.test.begin(), split.test.end());
  EXPECT_EQ(all.size(), 1797U);
  EXPECT_EQ(*all.rbegin(), 1796U);
  for (const int count : class_counts(split.test))
    EXPECT_TRUE(count == 35 || count == 36 || count == 37);
  EXPECT_EQ(split_train_test(digits(), 1).test, split.test);
  EXPECT_NE(split_train_test(digits(), 2).test, split.test);
}

class Shards : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Shards, DivideTheSamplesEvenly) {
  const std::uint32_t workers = GetParam();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto split = split_train_test(digits(), seed);
    for (const ShardKind kind : {ShardKind::skew, ShardKind::iid}) {
      const auto shards = make_shards(digits(), split.train, workers, kind, seed);
      ASSERT_EQ(shards.size(), workers);
      std::vector<std::uint32_t> all;
      std::size_t smallest = all.max_size(), largest = 0;
      for (const auto& shard : shards) {
        all.insert(all.end(), shard.begin(), shard.end());
        smallest = std::min(smallest, shard.size());
        largest = std::max(largest, shard.size());
        // Fewer than six workers must hold more classes each to hold all ten together.
        if (kind == ShardKind::skew && workers >= 6) {
          ASSERT_GE(classes_in(shard), 2U) << "seed " << seed;
          ASSERT_LE(classes_in(shard), 3U) << "seed " << seed;
        }
        if (kind == ShardKind::iid && workers <= 16) {
          ASSERT_GE(classes_in(shard), 8U);
        }
      }
      ASSERT_LE(largest - smallest, 2U);
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all, split.train);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, Shards,
                         ::testing::Values(1, 2, 3, 5, 6, 8, 9, 10, 11, 16, 32, 64, 100));

TEST(ShardList, FollowTheSeed) {
  const auto split = split_train_test(digits(), 1);
  const auto first = make_shards(digits(), split.train, 8, ShardKind::skew, 1);
  EXPECT_EQ(make_shards(digits(), split.train, 8, ShardKind::skew, 1), first);
  EXPECT_NE(make_shards(digits(), split.train, 8, ShardKind::skew, 2), first);
}

TEST(ShardList, TwoSamplesAWorkerAreEnough) {
  const auto split = split_train_test(digits(), 1);
  const auto shards = make_shards(digits(), split.train, 718, ShardKind::skew, 1);
  for (const auto& shard : shards) EXPECT_TRUE(shard.size() == 2 || shard.size() == 3);
}

}  // namespace
}  // namespace selmcast
