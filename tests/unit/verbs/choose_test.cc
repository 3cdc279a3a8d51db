// transport=auto where there are RDMA devices, and which of them is taken.
#include "transport/backends/choose.h"

#include <net/if.h>

#include "tests/unit/verbs/support.h"
#include "transport/verbs/device_port.h"

namespace selmcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class ChooseDevice : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    fake::world().devices.resize(1);
    auto second = fake::world().devices.front();
    second.name = "fake1";
    fake::world().devices.push_back(second);
    put_behind(0, 0);
    put_behind(1, ::if_nametoindex("lo"));
  }
  void TearDown() override { verbs_test::expect_nothing_alive("choosing a device"); }

  static void put_behind(std::size_t device, unsigned interface) {
    for (auto& port : fake::world().devices[device].ports) {
      for (auto& gid : port.gids) gid.interface_index = interface;
    }
  }
  static Result<ChosenTransport> choose(const std::string& name, std::uint32_t mtu) {
    LocalStore store(1);
    TransportWish wish;
    wish.name = name;
    wish.config.mtu = mtu;
    wish.timeout = 1s;
    StoreAddress at;
    at.path = "/run/the-store";
    return choose_transport(*store.client(0), at, wish);
  }
};

TEST_F(ChooseDevice, ThatBehindTheInterfaceElseTheFirst) {
  const auto behind = verbs::port_behind("lo");
  ASSERT_TRUE(behind) << behind.error().message;
  EXPECT_EQ(behind->name, "fake1:1");
  EXPECT_TRUE(behind->behind);
  for (const std::string interface : {"", "nope0"}) {
    const auto first = verbs::port_behind(interface);
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_EQ(first->name, "fake0:1");
    EXPECT_FALSE(first->behind);
  }
}

TEST_F(ChooseDevice, APortThatIsNotUsableIsPassedOver) {
  fake::world().devices[0].ports[0].state = IBV_PORT_DOWN;
  EXPECT_EQ(verbs::port_behind("").value().name, "fake1:1");
  fake::world().devices[1].ports[0].state = IBV_PORT_DOWN;
  const auto none = verbs::port_behind("lo");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::unavailable);
  EXPECT_THAT(none.error().message, HasSubstr("fake0 port 1 is down"));
  EXPECT_THAT(none.error().message, HasSubstr("fake1 port 1 is down"));
}

TEST_F(ChooseDevice, AutoTakesADeviceWhereSharedMemoryIsRuledOut) {
  const auto chosen = choose("auto", 1024);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_STREQ(chosen->transport->capabilities().name, "verbs");
  EXPECT_EQ(chosen->notice,
            "transport=auto chose verbs: every rank has a usable RDMA device; not shm, for rank 0 "
            "names an interface or an MTU");
  EXPECT_EQ(chosen->way,
            "device fake1:1 was taken because it is behind interface lo and the store at "
            "file:/run/the-store is on this host");
}

TEST_F(ChooseDevice, OneThatIsBehindAnotherInterfaceIsSaidToBeTheFirst) {
  put_behind(1, 0);
  const auto chosen = choose("verbs", 0);
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_EQ(chosen->notice, "");
  EXPECT_THAT(chosen->way, HasSubstr("device fake0:1 was taken because it is the first usable"));
}

}  // namespace
}  // namespace selmcast
