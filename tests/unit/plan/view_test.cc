#include "plan/view.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace selmcast {
namespace {

View sample() {
  return {.epoch = 7,
          .seed = 0x1122334455667788,
          .members = {0, 2, 65'000},
          .tx_kbps = {1, 0, (Kbps{1} << 53U) - 1},
          .rx_kbps = {5, 6, 7}};
}

TEST(View, BytesHaveTheDocumentedLayout) {
  View view{.epoch = 0x0A0B0C0D, .seed = 2, .members = {3}, .tx_kbps = {4}, .rx_kbps = {5}};
  const unsigned char expected[] = {'S', 'M', 'V', '1', 0x0D, 0x0C, 0x0B, 0x0A, 2, 0, 0, 0, 0, 0,
                                    0,   0,   1,   0,   0,    0,    3,    0,    0, 0, 4, 0, 0, 0,
                                    0,   0,   0,   0,   5,    0,    0,    0,    0, 0, 0, 0};
  const auto bytes = serialize(view);
  ASSERT_EQ(bytes.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
}

TEST(View, ComesBackEqual) {
  const auto view = parse_view(serialize(sample()));
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(*view, sample());
}

TEST(View, RefusesEveryTruncationAndExcess) {
  auto bytes = serialize(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto view = parse_view(std::span(bytes).first(size));
    ASSERT_FALSE(view.has_value()) << size;
    EXPECT_EQ(view.error().kind, ErrorKind::bad_input);
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(parse_view(bytes).has_value());
}

TEST(View, FlippedBitsGiveAnErrorOrAValidView) {
  const auto good = serialize(sample());
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto view = parse_view(bytes);
    if (!view) continue;
    EXPECT_EQ(serialize(*view), bytes) << "what is accepted must be what was sent";
    EXPECT_TRUE(std::is_sorted(view->members.begin(), view->members.end()));
  }
}

TEST(View, RandomBytesNeverPass) {
  SplitMix64 random(4);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random.below(120));
    for (auto& b : bytes) b = static_cast<std::byte>(random.below(256));
    EXPECT_FALSE(parse_view(bytes).has_value());
  }
}

TEST(View, NamesWhatIsWrong) {
  const auto expect = [](const View& view, const char* text) {
    const auto parsed = parse_view(serialize(view));
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_NE(parsed.error().message.find(text), std::string::npos) << parsed.error().message;
  };
  auto view = sample();
  view.members = {0, 2, 2};
  expect(view, "member 2 is rank 2");
  view.members = {2, 0, 3};
  expect(view, "member 1 is rank 0");
  view = sample();
  view.rx_kbps[1] = Kbps{1} << 53U;
  expect(view, "rank 2 has a rate of 2^53");
  expect(View{}, "0 members");
  view = {};
  for (Rank r = 0; r < 65'536; ++r) view.members.push_back(r);
  view.tx_kbps.assign(65'536, 1);
  view.rx_kbps.assign(65'536, 1);
  expect(view, "65536 members");

  auto bytes = serialize(sample());
  bytes[16] = bytes[17] = bytes[18] = bytes[19] = std::byte{0xFF};  // A count far beyond the bytes.
  EXPECT_FALSE(parse_view(bytes).has_value());
  bytes = serialize(sample());
  bytes[3] = std::byte{'2'};
  const auto later = parse_view(bytes);
  ASSERT_FALSE(later.has_value());
  EXPECT_NE(later.error().message.find("another version"), std::string::npos);
}

}  // namespace
}  // namespace selmcast
