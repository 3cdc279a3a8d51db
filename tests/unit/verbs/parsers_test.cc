// What peers send: addresses and messages, right and hostile.
#include <gmock/gmock.h>

#include <cstring>

#include "base/random.h"
#include "transport/verbs/device_port.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/verbs_address.h"
#include "transport/verbs/wire_up.h"

namespace selmcast::verbs {
namespace {

RailAddress random_rail(SplitMix64& random) {
  RailAddress out;
  for (auto& byte : out.gid.raw) byte = static_cast<std::uint8_t>(random());
  out.frames_qpn = 2 + static_cast<std::uint32_t>(random() % (kQueuePairNumberMax - 2));
  out.wire_up_qpn =
      random() % 4 == 0 ? 0 : 2 + static_cast<std::uint32_t>(random() % (kQueuePairNumberMax - 2));
  out.lid = static_cast<std::uint16_t>(random());
  return out;
}

WireUp random_message(SplitMix64& random) {
  return {.kind = random() % 2 == 0 ? WireUp::Kind::ask : WireUp::Kind::answer,
          .job = random(),
          .attempt = random(),
          .sender = random_rail(random),
          .qpn = 2 + static_cast<std::uint32_t>(random() % (kQueuePairNumberMax - 2)),
          .psn = static_cast<std::uint32_t>(random() % (1U << 24U)),
          .mtu = static_cast<ibv_mtu>(IBV_MTU_256 + random() % 5)};
}

TEST(NumaNode, ADeviceThatIsNotThereHasNone) {
  EXPECT_FALSE(numa_node_of("no such device"));
}

TEST(VerbsAddress, RoundTrip) {
  SplitMix64 random(1);
  for (int i = 0; i < 2000; ++i) {
    VerbsAddress address;
    address.rail_count = 1 + static_cast<std::uint32_t>(random() % kRailsMax);
    for (std::uint32_t r = 0; r < address.rail_count; ++r) address.rails[r] = random_rail(random);
    const auto got = decode_address(encode_address(address));
    ASSERT_TRUE(got);
    ASSERT_EQ(got->rail_count, address.rail_count);
    for (std::uint32_t r = 0; r < kRailsMax; ++r) EXPECT_EQ(got->rails[r], address.rails[r]);
  }
}

TEST(VerbsAddress, TheBytesAreTheDocumentedOnes) {
  VerbsAddress address;
  address.rail_count = 1;
  address.rails[0].gid.raw[0] = 0xAA;
  address.rails[0].gid.raw[15] = 0xBB;
  address.rails[0].frames_qpn = 0x010203;
  address.rails[0].wire_up_qpn = 0x040506;
  address.rails[0].lid = 0x0708;
  const std::string expected(
      "VRBS\x01\0\x01\0\xAA\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xBB\x03\x02\x01\0\x06\x05\x04\0\x08\x07",
      34);
  const auto got = encode_address(address);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.bytes.data()), got.size), expected);
}

TEST(VerbsAddress, EveryPrefixAndLengtheningIsRefused) {
  SplitMix64 random(2);
  VerbsAddress address;
  address.rail_count = 2;
  address.rails[0] = random_rail(random);
  address.rails[1] = random_rail(random);
  PeerAddress wire = encode_address(address);
  const std::uint32_t size = wire.size;
  for (std::uint32_t cut = 0; cut <= wire.bytes.size() + 8; ++cut) {
    wire.size = cut;
    EXPECT_EQ(decode_address(wire).has_value(), cut == size) << cut;
  }
}

TEST(VerbsAddress, HostileBytesAreRefusedOrMeanWhatTheySay) {
  SplitMix64 random(3);
  std::uint32_t accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    VerbsAddress address;
    address.rail_count = 1 + static_cast<std::uint32_t>(random() % kRailsMax);
    for (auto& rail : address.rails) rail = random_rail(random);
    PeerAddress wire = encode_address(address);
    for (std::uint64_t n = random() % 4; n > 0; --n) {
      wire.bytes[random() % wire.bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) wire.size = static_cast<std::uint32_t>(random() % 200);
    const auto got = decode_address(wire);
    if (!got) {
      EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
      continue;
    }
    ++accepted;
    const PeerAddress again = encode_address(*got);
    ASSERT_EQ(again.size, wire.size);
    ASSERT_EQ(std::memcmp(again.bytes.data(), wire.bytes.data(), wire.size), 0);
  }
  EXPECT_GT(accepted, 1000U);
}

TEST(VerbsAddress, RefusalsSayWhatIsWrong) {
  SplitMix64 random(4);
  VerbsAddress address;
  address.rail_count = 1;
  address.rails[0] = random_rail(random);
  const auto text = [&](std::size_t at, std::uint8_t byte) {
    PeerAddress wire = encode_address(address);
    wire.bytes[at] = static_cast<std::byte>(byte);
    const auto got = decode_address(wire);
    return got ? std::string("accepted") : got.error().message;
  };
  EXPECT_THAT(text(0, 'X'), testing::HasSubstr("same transport"));
  EXPECT_THAT(text(4, 9), testing::HasSubstr("version 9"));
  EXPECT_THAT(text(6, 0), testing::HasSubstr("0 devices"));
  EXPECT_THAT(text(6, 4), testing::HasSubstr("4 devices"));
  EXPECT_THAT(text(27, 1), testing::HasSubstr("queue pair number"));
  address.rails[0].frames_qpn = 2;
  EXPECT_THAT(text(24, 1), testing::HasSubstr("queue pair number 1"));
  address.rails[0].wire_up_qpn = kMulticastQueuePair;
  EXPECT_THAT(text(0, 'V'), testing::HasSubstr("16777215"));
}

TEST(WireUpMessage, RoundTrip) {
  SplitMix64 random(5);
  std::array<std::byte, kWireUpBytes> wire{};
  for (int i = 0; i < 20'000; ++i) {
    const WireUp message = random_message(random);
    encode_wire_up(message, wire);
    EXPECT_EQ(decode_wire_up(wire), message);
  }
}

TEST(WireUpMessage, HostileBytesAreRefusedOrMeanWhatTheySay) {
  SplitMix64 random(6);
  std::uint32_t accepted = 0, refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::array<std::byte, kWireUpBytes> wire{}, again{};
    encode_wire_up(random_message(random), wire);
    for (std::uint64_t n = random() % 3; n > 0; --n) {
      wire[random() % wire.size()] = static_cast<std::byte>(random());
    }
    const auto got = decode_wire_up(wire);
    if (!got) {
      ++refused;
      continue;
    }
    ++accepted;
    encode_wire_up(*got, again);
    ASSERT_EQ(again, wire);
    ASSERT_TRUE(got->qpn > 1 && got->qpn < kQueuePairNumberMax && got->psn < 1U << 24U);
  }
  EXPECT_GT(accepted, 1000U);
  EXPECT_GT(refused, 1000U);
}

TEST(WireUpMessage, OtherSizesAreRefused) {
  SplitMix64 random(7);
  std::vector<std::byte> wire(kWireUpBytes + 40);
  encode_wire_up(random_message(random), std::span<std::byte, kWireUpBytes>(wire.data(), 64));
  for (std::size_t size = 0; size <= wire.size(); ++size) {
    EXPECT_EQ(decode_wire_up({wire.data(), size}).has_value(), size == kWireUpBytes);
  }
}

TEST(Explain, EveryStatusHasItsNameAndTheUsualOnesACause) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_GENERAL_ERR; ++status) {
    const auto value = static_cast<ibv_wc_status>(status);
    EXPECT_THAT(explain_status(value), testing::StartsWith(ibv_wc_status_str(value)));
  }
  for (const auto status :
       {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR, IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR,
        IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_FATAL_ERR}) {
    EXPECT_THAT(explain_status(status), testing::HasSubstr(": "));
  }
}

}  // namespace
}  // namespace selmcast::verbs
