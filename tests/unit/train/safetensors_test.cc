#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "safetensors_writer.h"

namespace selmcast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::entry;
using ::testing::HasSubstr;
using testing::safetensors_bytes;
using ::testing::StartsWith;
using testing::TemporaryFile;

Result<SafetensorsHeader> parse(const Bytes& file) {
  return parse_safetensors(file, file.size(), "x.safetensors");
}

std::string complaint(const Bytes& file) {
  const auto header = parse(file);
  if (header) return "accepted";
  EXPECT_EQ(header.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(header.error().message, StartsWith("x.safetensors: "));
  EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
  EXPECT_LT(header.error().message.size(), 300U);
  return header.error().message;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," +
                             entry("late", "BF16", "[4]", 24, 32) + "," +
                             entry("early", "F32", "[2,3]", 0, 24) + "}   ";
  const auto parsed = parse(safetensors_bytes(header, 32));
  ASSERT_TRUE(parsed) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 2U);
  EXPECT_EQ(parsed->tensors[0].spec.name, "early");
  EXPECT_THAT(parsed->tensors[0].spec.shape, ElementsAre(2, 3));
  EXPECT_EQ(parsed->tensors[1].dtype, Dtype::bf16);
  EXPECT_EQ(parsed->tensors[1].begin, 24U);
  EXPECT_EQ(parsed->data_offset, 8 + header.size());
  EXPECT_EQ(parsed->elements(), 10U);
}

TEST(Safetensors, AcceptsScalarsAndEmptyTensors) {
  const std::string header = "{" + entry("scalar", "F32", "[]", 0, 4) + "," +
                             entry("empty", "F32", "[0,5]", 4, 4) + "," +
                             entry("next", "F32", "[1]", 4, 8) + "}";
  const auto parsed = parse(safetensors_bytes(header, 8));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->elements(), 2U);
  EXPECT_TRUE(parse(safetensors_bytes("{}", 0)));
}

TEST(Safetensors, RefusesALyingLength) {
  EXPECT_THAT(complaint(Bytes(3)), HasSubstr("header length: the file has only 3 bytes"));
  EXPECT_THAT(complaint(safetensors_bytes(100'000'001, "{}", {})),
              HasSubstr("header length: 100000001 bytes, the format allows 100000000"));
  EXPECT_THAT(complaint(safetensors_bytes(std::numeric_limits<std::uint64_t>::max(), "{}", {})),
              HasSubstr("header length"));
  EXPECT_THAT(complaint(safetensors_bytes(3, "{}", {})),
              HasSubstr("header length: 3 bytes, the file has only 2 after it"));
  const Bytes file = safetensors_bytes("{}", 100);
  const auto shorter = parse_safetensors(std::span(file).first(9), file.size(), "x");
  ASSERT_FALSE(shorter);
  EXPECT_THAT(shorter.error().message, HasSubstr("only 1 of 2 bytes"));
}

TEST(Safetensors, RefusesWhatIsNotTheFormatsJson) {
  const auto of = [](const std::string& header) { return complaint(safetensors_bytes(header, 4)); };
  EXPECT_THAT(of(""), HasSubstr("does not begin with {"));
  EXPECT_THAT(of("[]"), HasSubstr("does not begin with {"));
  EXPECT_THAT(of(" {}"), HasSubstr("does not begin with {"));
  EXPECT_THAT(of("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(of("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(of("{\"\xff\":{}}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(of("{\"a\":1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(of("{\"a\":5}"), HasSubstr("tensor \"a\": a number where an object is needed"));
  EXPECT_THAT(of("{\"a\":null}"), HasSubstr("null where an object"));
  EXPECT_THAT(of("{\"a\":{\"dtype\":4}}"), HasSubstr("dtype: a number where a string is needed"));
  EXPECT_THAT(of("{\"a\":{\"shape\":\"4\"}}"), HasSubstr("shape: a string where a list"));
  EXPECT_THAT(of("{\"a\":{\"shape\":[-1]}}"),
              HasSubstr("shape: a negative number where an integer"));
  EXPECT_THAT(of("{\"a\":{\"shape\":[1.5]}}"), HasSubstr("shape: a fraction"));
  EXPECT_THAT(of("{\"a\":{\"shape\":[18446744073709551616]}}"), HasSubstr("beyond 64 bits"));
  EXPECT_THAT(of("{\"a\":{\"shape\":[true]}}"), HasSubstr("true or false"));
  EXPECT_THAT(of("{\"a\":{\"strides\":[1]}}"), HasSubstr("unknown field \"strides\""));
  EXPECT_THAT(of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}"),
              HasSubstr("dtype appears twice"));
  EXPECT_THAT(of("{\"a\":{}}"), HasSubstr("tensor \"a\": dtype is missing"));
  EXPECT_THAT(of("{\"a\":{\"dtype\":\"F32\"}}"), HasSubstr("shape is missing"));
  EXPECT_THAT(of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}"),
              HasSubstr("data_offsets is missing"));
  EXPECT_THAT(of("{\"__metadata__\":{\"k\":1}}"),
              HasSubstr("__metadata__: a number where a string"));
  EXPECT_THAT(of("{\"__metadata__\":{\"k\":{}}}"), HasSubstr("__metadata__"));
  EXPECT_THAT(of("{\"__metadata__\":{},\"__metadata__\":{}}"), HasSubstr("appears twice"));
}

TEST(Safetensors, DeepNestingEndsAtTheFirstLevelTooMany) {
  // Deep enough to overflow the stack of a parser that recurses.
  for (const char* open : {"[", "{\"a\":"}) {
    std::string header = "{\"a\":";
    while (header.size() < 20'000'000) header += open;
    EXPECT_THAT(complaint(safetensors_bytes(header, 0)), HasSubstr("tensor \"a\""));
  }
}

TEST(Safetensors, RefusesShapesAndOffsetsThatDisagree) {
  const auto of = [](const std::string& entries, std::size_t data) {
    return complaint(safetensors_bytes("{" + entries + "}", data));
  };
  EXPECT_THAT(of(entry("a", "F31", "[1]", 0, 4), 4), HasSubstr("dtype: \"F31\" is not known"));
  EXPECT_THAT(of(entry("a", "F32", "[2]", 0, 4), 4),
              AllOf(HasSubstr("tensor \"a\": shape: needs 8 bytes"), HasSubstr("give 4")));
  EXPECT_THAT(of(entry("a", "F32", "[1]", 4, 0), 4), HasSubstr("begin 4 is after end 0"));
  EXPECT_THAT(of(entry("a", "F32", "[2]", 0, 8), 4), HasSubstr("end 8 is beyond the file's 4"));
  EXPECT_THAT(of("\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}", 4),
              HasSubstr("data_offsets: 1 numbers"));
  EXPECT_THAT(of("\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}", 4),
              HasSubstr("data_offsets: 3 numbers"));
  // 2^32 * 2^32 * 4 bytes is 0 modulo 2^64.
  EXPECT_THAT(of(entry("a", "F32", "[4294967296,4294967296]", 0, 0), 0),
              HasSubstr("shape: more bytes than 64 bits"));
  EXPECT_THAT(of(entry("a", "F64", "[2305843009213693952]", 0, 0), 0), HasSubstr("64 bits"));
}

TEST(Safetensors, TensorsCoverTheDataExactlyOnce) {
  const auto of = [](const std::string& entries, std::size_t data) {
    return complaint(safetensors_bytes("{" + entries + "}", data));
  };
  const std::string first = entry("a", "U8", "[4]", 0, 4) + ",";
  EXPECT_THAT(of(first + entry("b", "U8", "[4]", 2, 6), 6),
              HasSubstr("tensor \"b\": data_offsets: begin 2 overlaps"));
  EXPECT_THAT(of(first + entry("b", "U8", "[4]", 0, 4), 4), HasSubstr("overlaps"));
  EXPECT_THAT(of(first + entry("b", "U8", "[4]", 5, 9), 9),
              HasSubstr("begin 5 leaves a gap from 4"));
  EXPECT_THAT(of(entry("a", "U8", "[4]", 1, 5), 5), HasSubstr("leaves a gap from 0"));
  EXPECT_THAT(of(entry("a", "U8", "[4]", 0, 4), 5), HasSubstr("end at byte 4 of 5"));
  EXPECT_THAT(of("", 1), HasSubstr("end at byte 0 of 1"));
  EXPECT_THAT(of(first + entry("a", "U8", "[4]", 4, 8), 8), HasSubstr("the name appears twice"));
  EXPECT_THAT(of(first + entry("\\u0061", "U8", "[4]", 4, 8), 8), HasSubstr("twice"));
}

TEST(Safetensors, MessagesStayShortAndPrintable) {
  const std::string name = std::string(5000, 'n') + "\\n\\u001b[31m";
  EXPECT_THAT(complaint(safetensors_bytes("{" + entry(name, "Q", "[1]", 0, 4) + "}", 4)),
              HasSubstr("nnn...\""));
  const std::string control =
      complaint(safetensors_bytes("{" + entry("a\\u001b\\n", "Q", "[1]", 0, 4) + "}", 4));
  EXPECT_THAT(control, HasSubstr("\"a??\""));
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string header = "{" + entry("a", "F32", "[2]", 0, 8) + "}";
  const Bytes whole = safetensors_bytes(header, 8);
  ASSERT_TRUE(parse(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(complaint(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size))),
              "accepted")
        << size;
  }
}

TEST(Safetensors, LoadsAndConverts) {
  Bytes data(4 + 4 + 4);
  store_le(data.data(), std::bit_cast<std::uint32_t>(-1.25F));
  store_le(data.data() + 4, std::uint16_t{0x3C00});  // 1 in binary16
  store_le(data.data() + 6, std::uint16_t{0xC500});  // -5
  store_le(data.data() + 8, std::uint16_t{0x4049});  // 3.140625 in bfloat16
  store_le(data.data() + 10, std::uint16_t{0x0000});
  const std::string header = "{" + entry("h", "F16", "[2]", 4, 8) + "," +
                             entry("f", "F32", "[1]", 0, 4) + "," +
                             entry("b", "BF16", "[2]", 8, 12) + "}";
  const TemporaryFile file("load", safetensors_bytes(header.size(), header, data));
  const auto loaded = load_safetensors(file.path());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_THAT(loaded->values, ElementsAre(-1.25F, 1.0F, -5.0F, 3.140625F, 0.0F));
  ASSERT_EQ(loaded->set.tensors.size(), 3U);
  EXPECT_EQ(loaded->set.tensors[0].name, "f");
  EXPECT_EQ(loaded->set.parameters(), 5U);
  EXPECT_EQ(read_safetensors_header(file.path()).value().elements(), 5U);
}

TEST(Safetensors, LoadsMoreThanOneBlock) {
  constexpr std::size_t kCount = 100'001;
  Bytes data(kCount * 4);
  for (std::size_t i = 0; i < kCount; ++i) {
    store_le(data.data() + 4 * i, std::bit_cast<std::uint32_t>(static_cast<float>(i)));
  }
  const std::string header =
      "{" + entry("a", "F32", "[" + std::to_string(kCount) + "]", 0, data.size()) + "}";
  const TemporaryFile file("blocks", safetensors_bytes(header.size(), header, data));
  const auto loaded = load_safetensors(file.path());
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_EQ(loaded->values.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(loaded->values[i], static_cast<float>(i));
}

TEST(Safetensors, SaysWhyAFileCannotBeLoaded) {
  EXPECT_THAT(load_safetensors("/nonexistent/p.safetensors").error().message,
              StartsWith("/nonexistent/p.safetensors: cannot be read"));
  EXPECT_THAT(load_safetensors("/dev/zero").error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(load_safetensors(::testing::TempDir()).error().message, HasSubstr("regular file"));
  const TemporaryFile integers("integers",
                               safetensors_bytes("{" + entry("a", "I64", "[1]", 0, 8) + "}", 8));
  EXPECT_THAT(load_safetensors(integers.path()).error().message,
              HasSubstr("tensor \"a\": dtype: I64 cannot be averaged"));
  const TemporaryFile nothing("nothing", safetensors_bytes("{}", 0));
  EXPECT_THAT(load_safetensors(nothing.path()).error().message, HasSubstr("holds no parameters"));
}

/// binary16 by its definition, in double.
double f16_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Safetensors, HalfPrecisionIsExactForEveryValue) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = float_of_f16(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    if ((bits & 0x7C00U) == 0x7C00U) {
      ASSERT_EQ(std::isinf(value), (bits & 0x3FFU) == 0) << bits;
      ASSERT_EQ(std::isnan(value), (bits & 0x3FFU) != 0) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), f16_by_definition(static_cast<std::uint16_t>(bits)));
    }
  }
  EXPECT_EQ(float_of_bf16(0x3F80), 1.0F);
  EXPECT_EQ(float_of_bf16(0xFF80), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_of_bf16(0x0001), 0x1p-133F);
}

}  // namespace
}  // namespace selmcast
