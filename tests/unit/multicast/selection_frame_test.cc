// Payloads of REQUEST and PLAN: bytes written out by hand, round trips, and hostile sizes.
#include "multicast/selection_frame.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace selmcast {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

TEST(SelectionFrame, MarksAreLittleEndianWordsInTheOrderOfMembers) {
  const std::array<std::uint16_t, 3> marks = {0x0102, kNoReceiver, 7};
  std::array<std::byte, 6> out{};
  EXPECT_EQ(encode_marks(marks, out), 6U);
  const auto want = bytes({2, 1, 0xFF, 0xFF, 7, 0});
  EXPECT_TRUE(std::equal(out.begin(), out.end(), want.begin(), want.end()));
  std::array<std::uint16_t, 3> back{};
  EXPECT_TRUE(parse_marks(out, back));
  EXPECT_EQ(back, marks);
}

TEST(SelectionFrame, MarksOfAnotherNumberOfMembersAreRefused) {
  const auto payload = bytes({1, 0, 2, 0, 3, 0});
  for (std::size_t members = 0; members < 6; ++members) {
    std::vector<std::uint16_t> out(members);
    EXPECT_EQ(parse_marks(payload, out), members == 3);
  }
  std::array<std::uint16_t, 2> two{};
  EXPECT_FALSE(parse_marks(bytes({1, 0, 2}), two));
}

TEST(SelectionFrame, APlanIsARateAndOneBitPerMember) {
  std::array<std::uint8_t, 10> receivers = {1, 0, 0, 0, 0, 0, 0, 1, 0, 1};
  std::array<std::byte, 16> out{};
  EXPECT_EQ(encode_plan(0x0A0B, receivers, out), 10U);
  const auto want = bytes({0x0B, 0x0A, 0, 0, 0, 0, 0, 0, 0x81, 0x02});
  EXPECT_TRUE(std::equal(want.begin(), want.end(), out.begin()));
  std::array<std::uint8_t, 10> back{};
  const auto rate = parse_plan(std::span(out).first(10), back);
  ASSERT_TRUE(rate);
  EXPECT_EQ(*rate, Kbps{0x0A0B});
  EXPECT_EQ(back, receivers);
}

TEST(SelectionFrame, PlansOfAnotherSizeWithoutARateOrWithStrayBitsAreRefused) {
  const auto good = bytes({1, 0, 0, 0, 0, 0, 0, 0, 0x07});
  for (std::size_t members = 0; members < 20; ++members) {
    std::vector<std::uint8_t> out(members);
    // One byte of bits: 1 to 8 members, and bits 0 to 2 must be members.
    EXPECT_EQ(parse_plan(good, out).has_value(), members >= 3 && members <= 8) << members;
  }
  std::array<std::uint8_t, 3> three{};
  EXPECT_FALSE(parse_plan(bytes({0, 0, 0, 0, 0, 0, 0, 0, 0x07}), three));
  EXPECT_FALSE(parse_plan(bytes({1, 0, 0}), three));
  EXPECT_FALSE(parse_plan({}, three));
}

}  // namespace
}  // namespace selmcast
