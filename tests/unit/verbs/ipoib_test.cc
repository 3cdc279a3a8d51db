// The interface of an InfiniBand port, found by its hardware address.
#include "tests/unit/verbs/support.h"
#include "transport/verbs/device_port.h"

namespace selmcast::verbs_test {
namespace {

using testing::HasSubstr;

const std::string kPort = "f4:52:14:03:00:7b:cb:a1", kOtherPort = "f4:52:14:03:00:7b:cb:a2";

ibv_gid gid_of_port() {
  return {{0xFE, 0x80, 0, 0, 0, 0, 0, 9, 0xF4, 0x52, 0x14, 0x03, 0, 0x7B, 0xCB, 0xA1}};
}
std::string found_in(const Interfaces& interfaces) {
  return verbs::ipoib_interface(gid_of_port(), interfaces.folder());
}

TEST(Ipoib, ByTheLastEightBytes) {
  const Interfaces interfaces;
  EXPECT_EQ(found_in(interfaces), "");
  interfaces.add("ib0", kOtherPort);
  EXPECT_EQ(found_in(interfaces), "");
  interfaces.add("ib1", kPort);
  EXPECT_EQ(found_in(interfaces), "ib1");
  EXPECT_EQ(verbs::ipoib_interface(gid_of_port(), interfaces.folder() + "/none"), "");
}

TEST(Ipoib, OfSeveralTheDefaultPartitionsThenOneWithAnAddressThenTheFirst) {
  const Interfaces interfaces;
  interfaces.add("ib0.8001", kPort, "0x8001");
  EXPECT_EQ(found_in(interfaces), "ib0.8001");
  interfaces.add("ib3", kPort);
  EXPECT_EQ(found_in(interfaces), "ib3");
  interfaces.add("ib2", kPort);
  EXPECT_EQ(found_in(interfaces), "ib2");
  // A bond has no file of its partition.
  interfaces.add("lo", kPort);
  std::filesystem::remove(interfaces.folder() + "/lo/pkey");
  EXPECT_EQ(found_in(interfaces), "lo");
  interfaces.add("lo", kPort, "0x8001");
  EXPECT_EQ(found_in(interfaces), "ib2");
}

TEST(Ipoib, WhatIsNoSuchInterfaceIsPassedOver) {
  const std::string whole = "80:00:02:08:fe:80:00:00:00:00:00:00:" + kPort;
  for (const std::string text :
       {"", "80", "00:00:00:00:00:00", "x", ":::::::::::::::::::::::::::::::::::::::::"}) {
    const Interfaces interfaces;
    interfaces.add("ib0", kPort);
    interfaces.write("ib0", "address", text);
    EXPECT_EQ(found_in(interfaces), "") << text;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    const Interfaces interfaces;
    interfaces.add("ib0", kPort);
    std::string hostile = whole;
    hostile[at] = '-';
    interfaces.write("ib0", "address", hostile);
    EXPECT_EQ(found_in(interfaces), "") << hostile;
  }
  const Interfaces interfaces;
  interfaces.add("eth0", kPort);
  interfaces.write("eth0", "type", "1");
  interfaces.add("ib0", kPort);
  std::filesystem::remove(interfaces.folder() + "/ib0/type");
  std::ofstream(interfaces.folder() + "/bonding_masters") << "bond0\n";
  EXPECT_EQ(found_in(interfaces), "");
  interfaces.add("ib1", kPort, "nonsense");
  EXPECT_EQ(found_in(interfaces), "ib1");
}

class OnInfiniband : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    interfaces_ = be_infiniband();
  }
  void TearDown() override { expect_nothing_alive("opening on InfiniBand"); }
  static void refuses(const std::string& remedy) {
    const auto got = try_open("fake0");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(got.error().message, HasSubstr("needs an IPv4 address on its IPoIB interface"));
    EXPECT_THAT(got.error().message, HasSubstr(remedy));
    EXPECT_THAT(verbs::describe_ports().at(0), HasSubstr(remedy));
  }

  std::unique_ptr<Interfaces> interfaces_;
};

TEST_F(OnInfiniband, TheKernelNamesNoInterfaceWithTheGid) {
  EXPECT_TRUE(try_open("fake0"));
  EXPECT_THAT(verbs::describe_ports().at(0),
              testing::EndsWith("on lo, frames of up to 1024 bytes"));
}

TEST_F(OnInfiniband, WithoutAnInterfaceOrItsAddressItIsRefusedWithTheRemedy) {
  interfaces_->add("lo", kOtherPort);
  refuses("modprobe ib_ipoib, ip addr add ADDRESS dev ib0");
  interfaces_->add("ib7", "02:00:00:00:00:00:00:01");
  refuses("ip addr add ADDRESS dev ib7");
}

}  // namespace
}  // namespace selmcast::verbs_test
