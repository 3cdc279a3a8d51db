// The mapping of groups and peers to UDP addresses, and the table of ids.
#include <gtest/gtest.h>

#include <set>
#include <unordered_set>
#include <vector>

#include "transport/uring/udp_address.h"

namespace selmcast::uring {
namespace {

TEST(UringGroupAddress, DistinctIndicesOfAJobHaveDistinctAddressesAndMacs) {
  for (const std::uint64_t job : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    std::unordered_set<std::uint32_t> addresses;
    std::unordered_set<std::uint32_t> macs;
    for (std::uint32_t index = 0; index < kGroupsPerJob; ++index) {
      const auto target = group_target(job, index);
      ASSERT_TRUE(target.has_value());
      addresses.insert(target->ipv4);
      macs.insert(target->ipv4 & 0x7FFFFFU);  // what Ethernet keeps, RFC 1112
    }
    EXPECT_EQ(addresses.size(), kGroupsPerJob);
    EXPECT_EQ(macs.size(), kGroupsPerJob);
  }
  EXPECT_GE(kGroupsPerJob, 2U * 65536U);
}

TEST(UringGroupAddress, LiesInOrganisationLocalScopeAndNotWithReservedMacs) {
  for (std::uint64_t job = 0; job < 200; ++job) {
    const auto target = group_target(job, static_cast<std::uint32_t>(job * 1301));
    ASSERT_TRUE(target.has_value());
    EXPECT_GE(target->ipv4, 0xEFC00000U);  // 239.192.0.0
    EXPECT_LE(target->ipv4, 0xEFC3FFFFU);  // 239.195.255.255
    // The MAC addresses of 224.0.0.0/24, which switches flood.
    EXPECT_GT(target->ipv4 & 0x7FFFFFU, 0xFFU);
    EXPECT_GE(target->port, kGroupPortFirst);
    EXPECT_LE(target->port, kGroupPortLast);
  }
}

TEST(UringGroupAddress, InverseFindsTheIndexAndRefusesOtherAddresses) {
  for (std::uint64_t job = 7; job < 40; ++job) {
    for (const std::uint32_t index : {0U, 1U, 19U, 65535U, 131072U, kGroupsPerJob - 1}) {
      const auto target = group_target(job, index);
      ASSERT_TRUE(target.has_value());
      EXPECT_EQ(group_index(job, target->ipv4), index);
    }
  }
  EXPECT_EQ(group_index(7, 0xE0000001U), std::nullopt);  // 224.0.0.1
  EXPECT_EQ(group_index(7, 0xEFC40000U), std::nullopt);  // 239.196.0.0
  EXPECT_EQ(group_index(7, 0xEFBFFFFFU), std::nullopt);
  EXPECT_EQ(group_index(7, 0x7F000001U), std::nullopt);
}

TEST(UringGroupAddress, RefusesIndicesPastTheEnd) {
  EXPECT_EQ(group_target(1, kGroupsPerJob), std::nullopt);
  EXPECT_EQ(group_target(1, ~std::uint32_t{0}), std::nullopt);
}

TEST(UringGroupAddress, APortPerJobAndMostJobsDiffer) {
  std::set<std::uint16_t> ports;
  std::set<std::uint32_t> first_addresses;
  for (std::uint64_t job = 1; job <= 100; ++job) {
    EXPECT_EQ(group_target(job, 0)->port, group_target(job, 77)->port);
    ports.insert(group_target(job, 0)->port);
    first_addresses.insert(group_target(job, 0)->ipv4);
  }
  EXPECT_GT(ports.size(), 90U);  // expected 98.9 of 100 over 4536 ports
  EXPECT_GT(first_addresses.size(), 95U);
}

TEST(UringPeerAddress, RoundTrip) {
  const UdpTarget peer{.ipv4 = 0xC0A80102U, .port = 61234};
  const auto back = decode_peer(encode_peer(peer));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, peer);
}

TEST(UringPeerAddress, RefusesHostileBytes) {
  const PeerAddress good = encode_peer({.ipv4 = 0x0A000001U, .port = 9});
  EXPECT_TRUE(decode_peer(good));
  for (std::uint32_t size = 0; size <= 96; ++size) {
    PeerAddress cut = good;
    cut.size = size;
    EXPECT_EQ(decode_peer(cut).has_value(), size == good.size) << size;
  }
  PeerAddress huge = good;
  huge.size = 97;
  EXPECT_FALSE(decode_peer(huge));
  for (std::uint32_t at = 0; at < 6; ++at) {  // magic and version
    PeerAddress wrong = good;
    wrong.bytes[at] ^= std::byte{0x10};
    ASSERT_FALSE(decode_peer(wrong)) << at;
    EXPECT_EQ(decode_peer(wrong).error().kind, ErrorKind::bad_input);
  }
  EXPECT_FALSE(decode_peer(encode_peer({.ipv4 = 0x0A000001U, .port = 0})));
  EXPECT_FALSE(decode_peer(encode_peer({.ipv4 = 0, .port = 9})));
  EXPECT_FALSE(decode_peer(encode_peer({.ipv4 = 0xEFC00001U, .port = 9})));  // multicast
  EXPECT_FALSE(decode_peer(encode_peer({.ipv4 = 0xFFFFFFFFU, .port = 9})));  // broadcast
}

}  // namespace
}  // namespace selmcast::uring
