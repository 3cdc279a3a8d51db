// A bound on packets: what is left of it for frames and for reads.
#include "tests/unit/verbs/support.h"
#include "transport/verbs/packet_size.h"

namespace selmcast::verbs_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using verbs::GidKind;

TEST(PacketSize, HeadersOfADatagram) {
  // IP, UDP 8, BTH 12, DETH 8, ICRC 4 (IBA vol. 1, 9.2 and annex A17).
  EXPECT_EQ(verbs::datagram_headers(GidKind::rocev2_ipv4), 52U);
  EXPECT_EQ(verbs::datagram_headers(GidKind::rocev2_ipv6), 72U);
  EXPECT_EQ(verbs::datagram_headers(GidKind::rocev2_link_local), 72U);
  // LRH 8, GRH 40, BTH 12, DETH 8, ICRC 4, VCRC 2.
  EXPECT_EQ(verbs::datagram_headers(GidKind::infiniband), 74U);
}

TEST(PacketSize, FramesAreWholeWords) {
  for (const auto& [bytes, frame] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {0, 0}, {51, 0}, {52, 0}, {55, 0}, {56, 4}, {1075, 1020}, {1076, 1024}, {1500, 1448}}) {
    EXPECT_EQ(verbs::datagram_within(bytes, GidKind::rocev2_ipv4), frame) << bytes;
  }
  EXPECT_EQ(verbs::datagram_within(1500, GidKind::rocev2_ipv6), 1428U);
}

TEST(PacketSize, ThePathMtuOfReads) {
  // IP, UDP 8, BTH 12, AETH 4, ICRC 4; on InfiniBand LRH 8 and VCRC 2 in the place of IP and UDP.
  for (const auto& [kind, headers] :
       std::vector<std::pair<GidKind, std::uint32_t>>{{GidKind::rocev2_ipv4, 48},
                                                      {GidKind::rocev2_ipv6, 68},
                                                      {GidKind::rocev2_link_local, 68},
                                                      {GidKind::infiniband, 30}}) {
    EXPECT_EQ(verbs::path_mtu_within(255 + headers, kind), std::nullopt);
    EXPECT_EQ(verbs::path_mtu_within(256 + headers, kind), IBV_MTU_256);
    EXPECT_EQ(verbs::path_mtu_within(511 + headers, kind), IBV_MTU_256);
    EXPECT_EQ(verbs::path_mtu_within(512 + headers, kind), IBV_MTU_512);
    EXPECT_EQ(verbs::path_mtu_within(1024 + headers, kind), IBV_MTU_1024);
    EXPECT_EQ(verbs::path_mtu_within(2048 + headers, kind), IBV_MTU_2048);
    EXPECT_EQ(verbs::path_mtu_within(4096 + headers, kind), IBV_MTU_4096);
    EXPECT_EQ(verbs::path_mtu_within(~std::uint32_t{0}, kind), IBV_MTU_4096);
  }
}

class Mtu : public testing::Test {
 protected:
  void SetUp() override { fake::reset(2); }
  void TearDown() override { expect_nothing_alive("a bound on packets"); }
  static TransportConfig bounded(const std::string& device, std::uint32_t mtu) {
    TransportConfig out = config_on(device);
    out.mtu = mtu;
    return out;
  }
  static std::uint32_t frame(std::uint32_t mtu) {
    const auto transport = open(bounded("fake0", mtu));
    return transport->capabilities().max_frame_bytes;
  }
};

TEST_F(Mtu, FramesFitPacketsOfIt) {
  EXPECT_EQ(frame(0), 1024U);
  EXPECT_EQ(frame(1500), 1024U);
  EXPECT_EQ(frame(1024), 972U);
  EXPECT_EQ(frame(576), 524U);
  EXPECT_EQ(frame(308), 256U);
  fake::world().devices[0].ports[0].gids = {fake::ipv6_gid(0, 0x20, 0x01)};
  EXPECT_EQ(frame(1024), 952U);
  const auto interfaces = be_infiniband();
  EXPECT_EQ(frame(1024), 948U);
}

TEST_F(Mtu, OneThatLeavesNoRoomIsRefusedByName) {
  for (const std::uint32_t mtu : {1U, 28U, 100U, 307U}) {
    const auto got = open_verbs(bounded("fake0", mtu));
    ASSERT_FALSE(got) << mtu;
    EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(got.error().message, AllOf(HasSubstr("mtu " + std::to_string(mtu) + ": "),
                                           HasSubstr("fake0 port 1"), HasSubstr("308")));
  }
}

TEST_F(Mtu, ReadsKeepToTheSmallerOfBothEnds) {
  const auto a = open(bounded("fake0", 576)), b = open(bounded("fake1", 0));
  const auto to_b = a->connect(b->address()), to_a = b->connect(a->address());
  ASSERT_TRUE(to_b && to_a);
  std::array<Completion, 8> out;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  bool ready = false;
  while (!ready && std::chrono::steady_clock::now() < end) {
    const bool there = a->abilities().reads->can_read(to_b->id());
    ready = b->abilities().reads->can_read(to_a->id()) && there;
    a->poll(out);
    b->poll(out);
  }
  ASSERT_TRUE(ready);
  const auto queues = fake::queue_pairs(IBV_QPT_RC);
  EXPECT_EQ(queues.size(), 4U);
  for (const std::uint32_t qpn : queues) EXPECT_EQ(fake::path_mtu_of(qpn), IBV_MTU_512);
}

}  // namespace
}  // namespace selmcast::verbs_test
