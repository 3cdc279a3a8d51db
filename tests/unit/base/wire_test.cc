#include "base/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "base/random.h"

namespace selmcast {
namespace {

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

TEST(Wire, LowestByteComesFirst) {
  std::array<std::byte, 8> out{};
  store_le<std::uint64_t>(out.data(), 0x0102030405060708U);
  EXPECT_EQ(Bytes(out.begin(), out.end()), bytes_of({8, 7, 6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(load_le<std::uint64_t>(out.data()), 0x0102030405060708U);
  EXPECT_EQ(load_le<std::uint32_t>(out.data() + 1), 0x04050607U);  // Unaligned.
  EXPECT_EQ(load_le<std::uint16_t>(out.data() + 3), 0x0405U);
  EXPECT_EQ(load_le<std::uint8_t>(out.data() + 7), 1U);
}

TEST(Wire, ByteSwapReversesTheBytes) {
  static_assert(byte_swapped<std::uint8_t>(0xAB) == 0xAB);
  static_assert(byte_swapped<std::uint16_t>(0x1234) == 0x3412);
  static_assert(byte_swapped<std::uint32_t>(0x12345678U) == 0x78563412U);
  static_assert(byte_swapped<std::uint64_t>(0x0123456789ABCDEFU) == 0xEFCDAB8967452301U);
  SplitMix64 random(3);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = random();
    EXPECT_EQ(byte_swapped(byte_swapped(value)), value);
  }
}

TEST(Wire, WriterLaysOutFieldsWithoutGaps) {
  WireWriter writer;
  writer.put<std::uint8_t>(1).put<std::uint16_t>(0x0302).put_text("ab");
  EXPECT_EQ(std::move(writer).take(), bytes_of({1, 2, 3, 2, 0, 0, 0, 'a', 'b'}));
}

Bytes sample() {
  WireWriter writer;
  writer.put<std::uint8_t>(0xFE)
      .put<std::uint16_t>(0xBEEF)
      .put<std::uint32_t>(0xDEADBEEFU)
      .put<std::uint64_t>(std::numeric_limits<std::uint64_t>::max() - 1)
      .put_text("rank")
      .put_bytes({})
      .put<std::uint8_t>(7);
  return std::move(writer).take();
}

/// How many of the sample's seven fields can be read from `in`.
int fields_read(WireReader& reader) {
  if (reader.get<std::uint8_t>() != 0xFE) return 0;
  if (reader.get<std::uint16_t>() != 0xBEEF) return 1;
  if (reader.get<std::uint32_t>() != 0xDEADBEEFU) return 2;
  if (reader.get<std::uint64_t>() != std::numeric_limits<std::uint64_t>::max() - 1) return 3;
  const auto text = reader.get_bytes();
  if (!text || std::string(reinterpret_cast<const char*>(text->data()), text->size()) != "rank")
    return 4;
  const auto empty = reader.get_bytes();
  if (!empty || !empty->empty()) return 5;
  return reader.get<std::uint8_t>() == 7 ? 7 : 6;
}

TEST(Wire, RoundTrip) {
  const Bytes bytes = sample();
  WireReader reader(bytes);
  EXPECT_EQ(fields_read(reader), 7);
  EXPECT_TRUE(reader.finished());
  EXPECT_EQ(reader.remaining(), 0U);
}

TEST(Wire, TruncationAtEachLengthIsNoticed) {
  const Bytes bytes = sample();
  // Where each field ends: 1, +2, +4, +8, +4+4, +4, +1.
  const std::array<std::size_t, 7> ends{1, 3, 7, 15, 23, 27, 28};
  ASSERT_EQ(bytes.size(), ends.back());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    WireReader reader(cut);
    int whole = 0;
    for (const std::size_t end : ends) whole += end <= length ? 1 : 0;
    EXPECT_EQ(fields_read(reader), whole) << "cut to " << length;
    EXPECT_FALSE(reader.finished()) << "cut to " << length;
  }
}

TEST(Wire, AFailedReadKeepsFailing) {
  const Bytes bytes = bytes_of({1, 2, 3});
  WireReader reader(bytes);
  EXPECT_FALSE(reader.get<std::uint32_t>().has_value());
  EXPECT_FALSE(reader.get<std::uint8_t>().has_value());
  EXPECT_FALSE(reader.get_bytes().has_value());
  EXPECT_FALSE(reader.finished());
}

TEST(Wire, LeftOverBytesAreNotFinished) {
  const Bytes bytes = bytes_of({1, 2});
  WireReader reader(bytes);
  EXPECT_TRUE(reader.get<std::uint8_t>().has_value());
  EXPECT_FALSE(reader.finished());
  EXPECT_EQ(reader.remaining(), 1U);
}

TEST(Wire, ALyingLengthIsRefused) {
  for (const std::uint32_t claimed : {5U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    WireWriter writer;
    writer.put(claimed).put<std::uint32_t>(0);
    const Bytes bytes = std::move(writer).take();
    WireReader reader(bytes);
    EXPECT_FALSE(reader.get_bytes().has_value()) << claimed;
  }
}

TEST(Wire, RandomBytesNeverReadPastTheEnd) {
  SplitMix64 random(11);
  for (int round = 0; round < 2000; ++round) {
    Bytes bytes(random.below(40));
    for (auto& b : bytes) b = static_cast<std::byte>(random.below(6));
    WireReader reader(bytes);
    std::size_t taken = 0;
    for (int i = 0; i < 20; ++i) {
      if (random.chance(0.5)) {
        if (reader.get<std::uint16_t>()) taken += 2;
      } else if (const auto piece = reader.get_bytes()) {
        taken += 4 + piece->size();
        if (!piece->empty()) {
          ASSERT_GE(piece->data(), bytes.data());
          ASSERT_LE(piece->data() + piece->size(), bytes.data() + bytes.size());
        }
      }
    }
    ASSERT_LE(taken, bytes.size());
    EXPECT_TRUE(!reader.finished() || taken == bytes.size());
  }
}

}  // namespace
}  // namespace selmcast
