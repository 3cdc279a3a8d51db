#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/random.h"

namespace selmcast {
namespace {

std::span<const std::byte> text(std::string_view value) {
  return std::as_bytes(std::span(value));
}

// RFC 3720 appendix B.4.
TEST(Crc32c, Rfc3720Vectors) {
  std::vector<std::byte> bytes(32, std::byte{0});
  EXPECT_EQ(crc32c(0, bytes), 0x8A9136AAU);
  bytes.assign(32, std::byte{0xFF});
  EXPECT_EQ(crc32c(0, bytes), 0x62A8AB43U);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(0, bytes), 0x46DD794EU);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<std::byte>(31 - i);
  EXPECT_EQ(crc32c(0, bytes), 0x113FDB5CU);

  std::vector<std::byte> read_command(48, std::byte{0});  // "An iSCSI - SCSI Read (10) Command PDU"
  read_command[0] = std::byte{0x01};
  read_command[1] = std::byte{0xC0};
  read_command[16] = std::byte{0x14};
  read_command[22] = std::byte{0x04};
  read_command[27] = std::byte{0x14};
  read_command[31] = std::byte{0x18};
  read_command[32] = std::byte{0x28};
  read_command[40] = std::byte{0x02};
  EXPECT_EQ(crc32c(0, read_command), 0xD9963A56U);
}

TEST(Crc32c, CatalogueCheckValueAndEmptyInput) {
  EXPECT_EQ(crc32c(0, text("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(0, {}), 0U);
  EXPECT_EQ(crc32c(0x12345678U, {}), 0x12345678U);
}

std::uint32_t crc32c_bit_by_bit(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte b : bytes) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

TEST(Crc32c, AgreesWithTheDefinitionAndContinuesAnywhere) {
  SplitMix64 random(17);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> bytes(random.below(400));
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    const std::uint32_t whole = crc32c(0, bytes);
    ASSERT_EQ(whole, crc32c_bit_by_bit(bytes));
    const std::size_t cut = random.below(static_cast<std::uint32_t>(bytes.size() + 1));
    const std::span<const std::byte> all(bytes);
    ASSERT_EQ(crc32c(crc32c(0, all.first(cut)), all.subspan(cut)), whole);
  }
}

// Vectors of xxHash's own sanity check: a buffer from its generator, without and with its seed.
TEST(ContentHash, Xxh3SanityVectors) {
  constexpr std::uint64_t kPrime64 = 0x9E3779B185EBCA8DU;
  std::vector<std::byte> buffer(2367);
  std::uint64_t generator = 0x9E3779B1U;
  for (auto& b : buffer) {
    b = static_cast<std::byte>(generator >> 56U);
    generator *= kPrime64;
  }
  struct Vector {
    std::size_t bytes;
    std::uint64_t seed, hash;
  };
  for (const Vector& v :
       {Vector{0, 0, 0x2D06800538D394C2U}, Vector{0, kPrime64, 0xA8A6B918B2F0364AU},
        Vector{1, 0, 0xC44BDFF4074EECDBU}, Vector{1, kPrime64, 0x032BE332DD766EF8U},
        Vector{6, 0, 0x27B56A84CD2D7325U}, Vector{12, 0, 0xA713DAF0DFBB77E7U},
        Vector{24, 0, 0xA3FE70BF9D3510EBU}, Vector{48, 0, 0x397DA259ECBA1F11U},
        Vector{80, 0, 0xBCDEFBBB2C47C90AU}, Vector{195, 0, 0xCD94217EE362EC3AU},
        Vector{403, 0, 0xCDEB804D65C6DEA4U}, Vector{2048, 0, 0xDD59E2C3A5F038E0U},
        Vector{2367, 0, 0xCB37AEB9E5D361EDU}})
    EXPECT_EQ(content_hash(v.seed, std::span(buffer).first(v.bytes)), v.hash) << v.bytes;
}

}  // namespace
}  // namespace selmcast
