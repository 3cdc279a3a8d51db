#include "multicast/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/random.h"
#include "base/wire.h"

namespace selmcast {
namespace {

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

Bytes encode(const FrameHeader& header, std::span<const std::byte> payload) {
  Bytes out(kFrameHeaderBytes + payload.size());
  if (!payload.empty()) std::memcpy(out.data() + kFrameHeaderBytes, payload.data(), payload.size());
  encode_frame(header, std::span(out).subspan(kFrameHeaderBytes), out.data());
  return out;
}

FrameHeader golden_header() {
  return {.kind = FrameKind::data,
          .job = 0x11223344,
          .sender = 0x1234,
          .stream = 0x5678,
          .epoch = 0x01020304,
          .round = 0xAABBCCDD,
          .check = 0x96182CA2,
          .offset = 0x334455667788,
          .length = 5,
          .flags = frame_flag::kRepair | frame_flag::kPatch,
          .weight = 0x1123};
}

/// Written by hand from the layout comment; both checksums come from a bitwise CRC32C in Python.
Bytes golden_frame() {
  return bytes_of({0xAC, 0x5E, 0x02, 0x01, 0x44, 0x33, 0x22, 0x11, 0x34, 0x12, 0x78, 0x56,
                   0x04, 0x03, 0x02, 0x01, 0xDD, 0xCC, 0xBB, 0xAA, 0xA2, 0x2C, 0x18, 0x96,
                   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x05, 0x00, 0x03, 0x00,
                   0x5D, 0x6A, 0x21, 0x44, 0xDE, 0xAD, 0xBE, 0xEF, 0x99});
}

/// Makes the checksum right after a field was changed by hand.
void seal(Bytes& frame) {
  const std::span<const std::byte> all(frame);
  const bool data = frame[3] == std::byte{1};
  store_le(frame.data() + 36,
           crc32c(crc32c(0, all.first(36)), data ? all.first(0) : all.subspan(40)));
}

TEST(Frame, EncodesTheGoldenBytes) {
  const Bytes payload = bytes_of({0xDE, 0xAD, 0xBE, 0xEF, 0x99});
  EXPECT_EQ(encode(golden_header(), payload), golden_frame());
}

TEST(Frame, ParsesTheGoldenBytes) {
  const Bytes frame = golden_frame();
  const ParsedFrame parsed = parse_frame(frame, 0x11223344);
  ASSERT_EQ(parsed.error, FrameError::none);
  EXPECT_EQ(parsed.header, golden_header());
  EXPECT_EQ(parsed.payload.data(), frame.data() + 40);
  EXPECT_EQ(parsed.payload.size(), 5U);
}

TEST(Frame, HeaderWithoutPayload) {
  const FrameHeader header{.kind = FrameKind::ack,
                           .job = 1,
                           .sender = 2,
                           .epoch = 3,
                           .round = 4,
                           .flags = frame_flag::kGaveUp};
  const Bytes golden =
      bytes_of({0xAC, 0x5E, 2, 5, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4,    0,    0,    0,
                0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0xF8, 0x2B, 0xD0, 0xE2});
  EXPECT_EQ(encode(header, {}), golden);
  EXPECT_EQ(parse_frame(golden, 1).header, header);
}

TEST(Frame, TruncationAtEveryLengthIsRefused) {
  const Bytes frame = golden_frame();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    // A copy of exactly this size, so that the address sanitizer sees a read past the end.
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    const FrameError expected = size < 40 ? FrameError::short_frame : FrameError::length;
    EXPECT_EQ(parse_frame(cut, 0x11223344).error, expected) << size;
  }
}

TEST(Frame, TrailingBytesAreRefused) {
  Bytes frame = golden_frame();
  frame.push_back(std::byte{0});
  EXPECT_EQ(parse_frame(frame, 0x11223344).error, FrameError::length);
}

TEST(Frame, EveryFlippedBitIsDetected) {
  Bytes frame = golden_frame();
  const auto intact = [&] {
    const ParsedFrame parsed = parse_frame(frame, 0x11223344);
    return parsed.error == FrameError::none && payload_check(parsed.payload) == parsed.header.check;
  };
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(intact()) << "bit " << bit;
    // The header is believed before the payload is read.
    const bool in_header = bit < 8 * std::size_t{kFrameHeaderBytes};
    EXPECT_EQ(parse_frame(frame, 0x11223344).error != FrameError::none, in_header) << bit;
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  EXPECT_TRUE(intact());
}

TEST(Frame, EveryFlippedBitOfAControlFrameIsDetected) {
  Bytes frame = encode({.kind = FrameKind::tail, .job = 3, .offset = 77, .length = 9},
                       bytes_of({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(parse_frame(frame, 3).error, FrameError::none) << "bit " << bit;
    frame[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
  EXPECT_EQ(parse_frame(frame, 3).error, FrameError::none);
}

TEST(Frame, NamesWhatIsWrong) {
  const auto error_with = [](std::size_t at, int value) {
    Bytes frame = golden_frame();
    frame[at] = static_cast<std::byte>(value);
    seal(frame);
    return parse_frame(frame, 0x11223344).error;
  };
  EXPECT_EQ(error_with(0, 0xAD), FrameError::magic);
  EXPECT_EQ(error_with(2, 1), FrameError::version);
  EXPECT_EQ(error_with(3, 0), FrameError::kind);
  EXPECT_EQ(error_with(3, 11), FrameError::kind);
  EXPECT_EQ(error_with(3, 7), FrameError::none);
  EXPECT_EQ(error_with(32, 6), FrameError::length);
  EXPECT_EQ(error_with(4, 0x45), FrameError::foreign_job);
  Bytes frame = golden_frame();
  frame[20] = std::byte{0};
  EXPECT_EQ(parse_frame(frame, 0x11223344).error, FrameError::checksum);
  EXPECT_EQ(parse_frame(golden_frame(), 7).error, FrameError::foreign_job);
}

TEST(Frame, ARefusedFrameCarriesNothing) {
  const ParsedFrame parsed = parse_frame(golden_frame(), 7);
  EXPECT_EQ(parsed.header, FrameHeader{});
  EXPECT_TRUE(parsed.payload.empty());
}

TEST(Frame, LargestPayloadFitsAndOneByteMoreDoesNot) {
  FrameHeader header{.job = 9, .length = static_cast<std::uint16_t>(kFramePayloadMax)};
  Bytes payload(kFramePayloadMax, std::byte{0x5A});
  Bytes frame = encode(header, payload);
  EXPECT_EQ(parse_frame(frame, 9).error, FrameError::none);
  frame.push_back(std::byte{0});
  store_le(frame.data() + 32, static_cast<std::uint16_t>(kFramePayloadMax + 1));
  seal(frame);
  EXPECT_EQ(parse_frame(frame, 9).error, FrameError::length);
}

TEST(Frame, RandomFramesRoundTrip) {
  SplitMix64 random(7);
  for (int i = 0; i < 2000; ++i) {
    Bytes payload(random.below(1500));
    for (std::byte& b : payload) b = static_cast<std::byte>(random.below(256));
    const auto kind = static_cast<FrameKind>(1 + random.below(6));
    const bool data = kind == FrameKind::data;
    const FrameHeader header{
        .kind = kind,
        .job = static_cast<std::uint32_t>(random()),
        .sender = static_cast<Rank>(random.below(65'536)),
        .stream = static_cast<std::uint16_t>(random()),
        .epoch = static_cast<std::uint32_t>(random()),
        .round = static_cast<std::uint32_t>(random()),
        .check = static_cast<std::uint32_t>(random()),
        .offset = data ? random() >> 16U : random(),
        .length = static_cast<std::uint16_t>(payload.size()),
        .flags = static_cast<std::uint16_t>(random()),
        .weight = data ? 1 + static_cast<std::uint32_t>(random.below(65'536)) : 1};
    const Bytes frame = encode(header, payload);
    const ParsedFrame parsed = parse_frame(frame, header.job);
    ASSERT_EQ(parsed.error, FrameError::none);
    ASSERT_EQ(parsed.header, header);
    ASSERT_TRUE(
        std::equal(payload.begin(), payload.end(), parsed.payload.begin(), parsed.payload.end()));
  }
}

TEST(Frame, RandomBytesAreRefusedWithoutHarm) {
  SplitMix64 random(11);
  for (int i = 0; i < 20'000; ++i) {
    Bytes noise(random.below(120));
    for (std::byte& b : noise) b = static_cast<std::byte>(random.below(256));
    EXPECT_NE(parse_frame(noise, 0).error, FrameError::none);
  }
}

TEST(FrameDeathTest, ALyingLengthIsAProgrammerError) {
  std::array<std::byte, 64> out{};
  const FrameHeader header{.length = 3};
  EXPECT_DEATH(encode_frame(header, {}, out.data()), "length field");
}

TEST(Frame, EveryNameIsDistinct) {
  std::set<std::string> names;
  for (int e = 0; e <= static_cast<int>(FrameError::foreign_job); ++e) {
    names.insert(to_string(static_cast<FrameError>(e)));
  }
  EXPECT_EQ(names.size(), 8U);
  names.clear();
  for (int k = 1; k <= 7; ++k) names.insert(to_string(static_cast<FrameKind>(k)));
  EXPECT_EQ(names,
            (std::set<std::string>{"ack", "alive", "credit", "data", "evict", "nack", "tail"}));
}

// NACK payloads.

TEST(Nack, GoldenBytesRoundTrip) {
  const std::vector<NackRange> ranges{{1, 2}, {0x01020304, 5}};
  Bytes out(16);
  ASSERT_EQ(encode_nack(ranges, out), 16U);
  EXPECT_EQ(out, bytes_of({1, 0, 0, 0, 2, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0}));
  std::array<NackRange, 4> parsed{};
  ASSERT_EQ(parse_nack(out, 0x01020304 + 5, parsed), 2);
  EXPECT_EQ(parsed[0], ranges[0]);
  EXPECT_EQ(parsed[1], ranges[1]);
}

TEST(Nack, EncodesOnlyWholeRangesThatFit) {
  const std::vector<NackRange> ranges{{1, 1}, {3, 1}, {5, 1}};
  Bytes out(23);
  EXPECT_EQ(encode_nack(ranges, out), 16U);
  EXPECT_EQ(encode_nack(ranges, std::span(out).first(7)), 0U);
  EXPECT_EQ(encode_nack({}, out), 0U);
}

int parse_ranges(std::initializer_list<NackRange> ranges, std::uint32_t frames,
                 std::size_t room = 8) {
  const std::vector<NackRange> list(ranges);
  Bytes payload(list.size() * 8);
  encode_nack(list, payload);
  std::vector<NackRange> out(room);
  return parse_nack(payload, frames, out);
}

TEST(Nack, HostilePayloadsAreMalformed) {
  constexpr std::uint32_t kMax = 0xFFFFFFFF;
  EXPECT_EQ(parse_ranges({{0, 0}}, 10), -1) << "an empty range";
  EXPECT_EQ(parse_ranges({{0, 10}}, 10), 1);
  EXPECT_EQ(parse_ranges({{0, 11}}, 10), -1);
  EXPECT_EQ(parse_ranges({{9, 1}}, 10), 1);
  EXPECT_EQ(parse_ranges({{10, 1}}, 10), -1);
  EXPECT_EQ(parse_ranges({{kMax, kMax}}, kMax), -1) << "the sum wraps around";
  EXPECT_EQ(parse_ranges({{5, kMax - 3}}, 10), -1) << "the sum wraps to 2";
  EXPECT_EQ(parse_ranges({{kMax - 1, 1}}, kMax), 1);
  EXPECT_EQ(parse_ranges({{0, 1}}, 0), -1) << "a round without frames";
  EXPECT_EQ(parse_ranges({{1, 1}, {3, 1}}, 10, 1), -1) << "more ranges than there is room for";
  EXPECT_EQ(parse_ranges({{1, 1}, {30, 1}}, 10), -1) << "the second is bad";
  EXPECT_EQ(parse_ranges({}, 10), 0);
}

TEST(Nack, SizesThatAreNoMultipleOfEightAreMalformed) {
  std::array<NackRange, 8> out{};
  for (std::size_t size = 0; size <= 40; ++size) {
    const Bytes payload(size, std::byte{1});
    const int expected = size % 8 == 0 ? static_cast<int>(size / 8) : -1;
    EXPECT_EQ(parse_nack(payload, 0xFFFFFFFF, out), expected) << size;
  }
}

}  // namespace
}  // namespace selmcast
