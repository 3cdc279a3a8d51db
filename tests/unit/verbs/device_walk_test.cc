// Which port and GID are chosen from what a machine has, and what is said where none will do.
#include <cstring>

#include "base/random.h"
#include "tests/unit/verbs/support.h"
#include "transport/verbs/device_port.h"

namespace selmcast::verbs {
namespace {

using testing::HasSubstr;

GidEntry entry(const fake::Gid& gid) {
  GidEntry out;
  std::memcpy(out.gid.raw, gid.raw.data(), gid.raw.size());
  out.index = gid.index;
  out.type = gid.type;
  return out;
}
const fake::Gid kIpv4 = fake::ipv4_gid(3, 9);
const fake::Gid kIpv4V1 = fake::ipv4_gid(2, 9, IBV_GID_TYPE_ROCE_V1);
const fake::Gid kGlobal = fake::ipv6_gid(4, 0x20, 0x01);
const fake::Gid kUniqueLocal = fake::ipv6_gid(5, 0xFD, 0x00);
const fake::Gid kLinkLocal = fake::ipv6_gid(1, 0xFE, 0x80);

TEST(KindOf, EveryKind) {
  constexpr int kEthernet = IBV_LINK_LAYER_ETHERNET;
  EXPECT_EQ(kind_of(entry(kIpv4), kEthernet), GidKind::rocev2_ipv4);
  EXPECT_EQ(kind_of(entry(kGlobal), kEthernet), GidKind::rocev2_ipv6);
  EXPECT_EQ(kind_of(entry(kUniqueLocal), kEthernet), GidKind::rocev2_ipv6);
  EXPECT_EQ(kind_of(entry(kLinkLocal), kEthernet), GidKind::rocev2_link_local);
  // fe80::/10 ends at febf.
  EXPECT_EQ(kind_of(entry(fake::ipv6_gid(0, 0xFE, 0xBF)), kEthernet), GidKind::rocev2_link_local);
  EXPECT_EQ(kind_of(entry(fake::ipv6_gid(0, 0xFE, 0xC0)), kEthernet), GidKind::rocev2_ipv6);
  EXPECT_EQ(kind_of(entry(kIpv4V1), kEthernet), std::nullopt);
  EXPECT_EQ(kind_of(GidEntry{}, kEthernet), std::nullopt);
  EXPECT_EQ(kind_of(GidEntry{}, IBV_LINK_LAYER_INFINIBAND), std::nullopt);
  EXPECT_EQ(kind_of(entry(kLinkLocal), IBV_LINK_LAYER_INFINIBAND), GidKind::infiniband);
}

TEST(ChooseGid, TheBestKindAndOfEqualsTheFirst) {
  // Every subset of the table, against the order of preference written out.
  const std::vector<fake::Gid> all{kLinkLocal, kIpv4V1, kIpv4, kGlobal, kUniqueLocal};
  const std::vector<std::size_t> preference{2, 3, 4, 0};
  for (unsigned set = 0; set < 32; ++set) {
    std::vector<GidEntry> table;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((set >> i & 1U) == 0) continue;
      table.push_back(entry(all[i]));
      which.push_back(i);
    }
    std::optional<std::size_t> expected;
    for (const std::size_t wanted : preference) {
      const auto at = std::find(which.begin(), which.end(), wanted);
      if (at == which.end()) continue;
      expected = static_cast<std::size_t>(at - which.begin());
      break;
    }
    EXPECT_EQ(choose_gid(table, IBV_LINK_LAYER_ETHERNET), expected) << set;
  }
  EXPECT_EQ(choose_gid({entry(kLinkLocal), entry(kIpv4)}, IBV_LINK_LAYER_INFINIBAND), 0U);
}

TEST(PortWish, WhatIsAllowed) {
  const auto whole = parse_port_wish("mlx5_0:2:255");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->device, "mlx5_0");
  EXPECT_EQ(whole->port, 2);
  EXPECT_EQ(whole->gid_index, 255);
  EXPECT_EQ(parse_port_wish("").value().device, "");
  EXPECT_EQ(parse_port_wish("a").value().port, 0);
  EXPECT_EQ(parse_port_wish("a:255").value().port, 255);
  EXPECT_EQ(parse_port_wish("a:1:0").value().gid_index, 0);
}

TEST(PortWish, HostileTextsAreRefusedByName) {
  for (const std::string text : {":",
                                 ":1",
                                 "::",
                                 "a:",
                                 "a::",
                                 "a:0",
                                 "a:256",
                                 "a:-1",
                                 "a:+1",
                                 "a: 1",
                                 "a:1 ",
                                 "a:1x",
                                 "a:1:",
                                 "a:1:-1",
                                 "a:1:256",
                                 "a:1:65536",
                                 "a:1:99999999999999999999",
                                 "a:1:2:3",
                                 "a:1:0x3",
                                 "a:\xFF\xFE"}) {
    const auto got = parse_port_wish(text);
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(got.error().message, HasSubstr("'" + text + "'"));
    EXPECT_THAT(got.error().message, HasSubstr("DEVICE[:PORT[:GID_INDEX]]"));
  }
}

TEST(PortWish, AnyBytesEitherFitTheGrammarOrAreRefused) {
  SplitMix64 random(11);
  const std::string alphabet = "ab:0129 +-\xC3";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (std::uint64_t n = random() % 9; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const auto got = parse_port_wish(text);
    if (!got) continue;
    std::string again = got->device;
    if (got->port != 0) again += ":" + std::to_string(got->port);
    if (got->gid_index >= 0) again += ":" + std::to_string(got->gid_index);
    // Leading zeros are all that is not written back.
    std::string plain;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool begins = at > 0 && plain.find(':') != std::string::npos && plain.back() == ':';
      if (begins && text[at] == '0' && at + 1 < text.size() && text[at + 1] != ':') continue;
      plain += text[at];
    }
    EXPECT_EQ(again, plain);
  }
}

class OpenPort : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { verbs_test::expect_nothing_alive("opening a port"); }
  static fake::Port& port(std::size_t device = 0) { return fake::world().devices[device].ports[0]; }
  static Error refused(const PortWish& wish) {
    auto got = open_port(wish);
    EXPECT_FALSE(got);
    return got ? failed("") : std::move(got).error();
  }
};

TEST_F(OpenPort, RoceV2BehindRoceV1AndLinkLocal) {
  port().gids = {fake::ipv6_gid(0, 0xFE, 0x80), fake::ipv4_gid(2, 1, IBV_GID_TYPE_ROCE_V1),
                 fake::ipv4_gid(3, 1)};
  const auto got = open_port({});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->port.gid_index, 3U);
  EXPECT_EQ(got->port.kind, GidKind::rocev2_ipv4);
  EXPECT_EQ(got->port.mtu_bytes, 1024U);
  EXPECT_EQ(got->port.text(), "fake0 port 1 GID 3 (::ffff:10.0.0.1)");
}

TEST_F(OpenPort, Ipv6AndLinkLocalWhereThereIsNothingElse) {
  port().gids = {fake::ipv6_gid(0, 0xFE, 0x80), fake::ipv6_gid(1, 0x20, 0x01)};
  EXPECT_EQ(open_port({}).value().port.kind, GidKind::rocev2_ipv6);
  port().gids.pop_back();
  EXPECT_EQ(open_port({}).value().port.kind, GidKind::rocev2_link_local);
}

TEST_F(OpenPort, RoceV1OnlyNeedsAnAddress) {
  port().gids = {fake::ipv4_gid(0, 1, IBV_GID_TYPE_ROCE_V1)};
  const Error got = refused({});
  EXPECT_EQ(got.kind, ErrorKind::unavailable);
  EXPECT_EQ(got.message,
            "verbs: fake0 port 1 has no RoCE v2 GID; give its network interface an IPv4 address");
}

TEST_F(OpenPort, InfinibandHasLidAndTheFirstGid) {
  port().link_layer = IBV_LINK_LAYER_INFINIBAND;
  port().lid = 17;
  port().mtu = IBV_MTU_4096;
  port().gids = {fake::ipv6_gid(0, 0xFE, 0x80)};
  const auto got = open_port({});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->port.kind, GidKind::infiniband);
  EXPECT_EQ(got->port.lid, 17);
  EXPECT_EQ(got->port.mtu_bytes, 4096U);
}

TEST_F(OpenPort, InfinibandWithoutAGidAsksForASubnetManager) {
  port().link_layer = IBV_LINK_LAYER_INFINIBAND;
  port().gids.clear();
  EXPECT_THAT(refused({}).message, HasSubstr("fake0 port 1 has no GID; is a subnet manager"));
}

TEST_F(OpenPort, EachStateHasItsText) {
  const std::vector<std::pair<ibv_port_state, std::string>> states{
      {IBV_PORT_DOWN, "is down; check the cable"},
      {IBV_PORT_INIT, "is initialising (is a subnet manager running?)"},
      {IBV_PORT_ARMED, "is armed (the subnet manager has not activated it)"},
      {IBV_PORT_ACTIVE_DEFER, "is in no usable state"}};
  for (const auto& [state, text] : states) {
    port().state = state;
    const Error got = refused({});
    EXPECT_EQ(got.kind, ErrorKind::unavailable);
    EXPECT_THAT(got.message, HasSubstr("fake0 port 1 " + text));
  }
  port().gids[0].interface_index = 1;  // the loopback interface on every Linux machine
  EXPECT_THAT(refused({}).message, HasSubstr("; bring it up: ip link set lo up"));
}

TEST_F(OpenPort, TheFirstUsablePortOfAnyDevice) {
  fake::reset(3);
  port(0).state = IBV_PORT_DOWN;
  port(1).gids.clear();
  fake::world().devices[2].ports.insert(fake::world().devices[2].ports.begin(), fake::Port{});
  fake::world().devices[2].ports[0].state = IBV_PORT_INIT;
  const auto got = open_port({});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->port.device, "fake2");
  EXPECT_EQ(got->port.port, 2);
}

TEST_F(OpenPort, WithNoUsablePortEachIsExplained) {
  fake::reset(2);
  port(0).state = IBV_PORT_DOWN;
  fake::world().devices[1].ports.resize(2);
  port(1).gids.clear();
  const Error got = refused({});
  EXPECT_EQ(got.kind, ErrorKind::unavailable);
  EXPECT_THAT(got.message, HasSubstr("fake0 port 1 is down"));
  EXPECT_THAT(got.message, HasSubstr("fake1 port 1 has no RoCE v2 GID"));
  EXPECT_THAT(got.message, HasSubstr("fake1 port 2 has no RoCE v2 GID"));
  EXPECT_EQ(got.message.find('\n'), std::string::npos);
}

TEST_F(OpenPort, WishesAreFollowedOrRefused) {
  fake::reset(2);
  port(1).gids.push_back(fake::ipv6_gid(7, 0x20, 0x01));
  port(1).gids.push_back(fake::ipv4_gid(8, 1, IBV_GID_TYPE_ROCE_V1));
  const auto got = open_port({.device = "fake1", .port = 1, .gid_index = 7});
  ASSERT_TRUE(got);
  EXPECT_EQ(got->port.gid_index, 7U);
  EXPECT_EQ(got->port.kind, GidKind::rocev2_ipv6);
  const auto refuses = [](const PortWish& wish, const std::string& text) {
    const Error error = refused(wish);
    EXPECT_EQ(error.kind, ErrorKind::bad_input);
    EXPECT_THAT(error.message, HasSubstr(text));
  };
  refuses({.device = "mlx5_0"}, "no device is called 'mlx5_0'; there are: fake0, fake1");
  refuses({.device = "fake", .port = 1}, "no device is called 'fake'");
  refuses({.device = "fake1", .port = 2}, "fake1 has 1 port(s), not 2");
  refuses({.device = "fake1", .port = 1, .gid_index = 5}, "GID index 5 of fake1 port 1 is empty");
  refuses({.device = "fake1", .port = 1, .gid_index = 8},
          "GID index 8 of fake1 port 1 is not RoCE");
}

TEST_F(OpenPort, GidsBeyondWhatAnAddressVectorCanNameAreNotChosen) {
  port().gid_table_length = 1024;
  port().gids = {fake::ipv4_gid(300, 1)};
  EXPECT_THAT(refused({}).message, HasSubstr("no RoCE v2 GID"));
  port().gids.push_back(fake::ipv6_gid(255, 0xFE, 0x80));
  EXPECT_EQ(open_port({}).value().port.gid_index, 255U);
}

TEST_F(OpenPort, AGidTableThatCannotBeReadIsSaidSo) {
  fake::world().fail("ibv_query_gid_ex", 1, EPERM, 1000);
  const Error got = refused({});
  EXPECT_EQ(got.kind, ErrorKind::unavailable);
  EXPECT_THAT(got.message, HasSubstr("the GIDs of fake0 port 1 cannot be read"));
  EXPECT_THAT(got.message, HasSubstr("/dev/infiniband"));
}

TEST_F(OpenPort, NoDeviceAndNoKernelSupport) {
  fake::reset(0);
  EXPECT_EQ(refused({}).kind, ErrorKind::unavailable);
  EXPECT_THAT(refused({}).message, HasSubstr("no RDMA device; load the NIC's driver"));
  fake::world().fail("ibv_get_device_list", 1, ENOSYS);
  EXPECT_THAT(refused({}).message, HasSubstr("ib_uverbs is not loaded"));
}

TEST_F(OpenPort, DoctorSeesEveryPort) {
  fake::reset(2);
  fake::world().devices[0].ports.push_back(port(0));
  port(0).state = IBV_PORT_DOWN;
  port(1).gids[0].interface_index = 1;
  const auto lines = describe_ports();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], HasSubstr("fake0 port 1 is down"));
  EXPECT_EQ(lines[1], "verbs: fake0 port 2 GID 1 (::ffff:10.0.0.1), frames of up to 1024 bytes");
  EXPECT_THAT(lines[2], HasSubstr("fake1 port 1 GID 1 (::ffff:10.0.0.2) on lo, frames"));
}

TEST_F(OpenPort, DeviceListsAreRead) {
  fake::reset(4);
  for (const std::string text : {"+", "fake0+", "+fake0", "fake0++fake1"}) {
    const auto got = verbs_test::try_open(text);
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(got.error().message, HasSubstr("a device's name is missing"));
  }
  EXPECT_THAT(verbs_test::try_open("fake0+fake0").error().message, HasSubstr("named twice"));
  EXPECT_THAT(verbs_test::try_open("fake0+fake1+fake2+fake3").error().message,
              HasSubstr("stripes over at most 3"));
  EXPECT_TRUE(verbs_test::try_open("fake0+fake1+fake2"));
}

}  // namespace
}  // namespace selmcast::verbs
