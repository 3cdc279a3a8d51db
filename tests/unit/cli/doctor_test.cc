#include "cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/doctor_memory.h"

namespace selmcast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NetworkInterface network_interface(const std::string& name) {
  NetworkInterface interface;
  interface.name = name;
  interface.mtu = 1500;
  interface.up = interface.running = interface.multicast = true;
  interface.ipv4 = {"192.0.2.7"};
  return interface;
}

/// A machine on which there is nothing to mend, run by an ordinary user.
Machine good_machine() {
  Machine machine;
  machine.kernel_release = "6.1.0";
  NetworkInterface loopback = network_interface("lo");
  loopback.loopback = true;
  loopback.multicast = false;
  machine.interfaces = {loopback, network_interface("eth0")};
  machine.limits.receive_buffer_bytes = 8U << 20U;
  machine.limits.send_buffer_bytes = 1U << 20U;
  machine.limits.igmp_memberships = 20;
  machine.limits.memlock_bytes = 8U << 20U;
  machine.io_uring.usable = true;
  return machine;
}

auto finding(const std::string& what, const std::string& remedy) {
  return AllOf(Field(&Finding::what, HasSubstr(what)), Field(&Finding::remedy, HasSubstr(remedy)));
}

TEST(Doctor, FindsNothingOnAGoodMachine) {
  EXPECT_THAT(find_problems(good_machine(), {{"shm", true, ""}}), IsEmpty());
}

TEST(Doctor, PassesOnTheReasonsOfTransportsAndOfIoUring) {
  Machine machine = good_machine();
  machine.io_uring = {false, false, false, "ask the administrator"};
  EXPECT_THAT(find_problems(machine, {{"shm", true, "fine"}, {"uring", false, "no ring; do this"}}),
              ElementsAre(finding("io_uring", "ask the administrator"),
                          finding("transport uring", "no ring; do this")));
}

TEST(Doctor, NamesAnInterfaceWithoutMulticastUnlessItIsLoopback) {
  Machine machine = good_machine();
  machine.interfaces[1].multicast = false;
  EXPECT_THAT(find_problems(machine, {}),
              ElementsAre(finding("eth0", "ip link set eth0 multicast on")));
}

TEST(Doctor, SaysWhenOnlyThisHostCanTakePart) {
  Machine machine = good_machine();
  machine.interfaces[1].up = false;
  EXPECT_THAT(find_problems(machine, {}), ElementsAre(finding("loopback", "ip link set")));
  machine = good_machine();
  machine.interfaces[1].ipv4.clear();
  EXPECT_THAT(find_problems(machine, {}), ElementsAre(finding("loopback", "ip address add")));
}

TEST(Doctor, SmallReceiveBuffersMatterOnlyWhereTheyBind) {
  Machine machine = good_machine();
  machine.limits.receive_buffer_bytes = 208U << 10U;
  EXPECT_THAT(find_problems(machine, {}), ElementsAre(finding("208 KiB", "net.core.rmem_max=")));
  machine.privileges.force_receive_buffer = true;
  EXPECT_THAT(find_problems(machine, {}), IsEmpty());
}

TEST(Doctor, LockedMemoryMattersOnlyWhereItBinds) {
  Machine machine = good_machine();
  machine.limits.memlock_bytes = 64U << 10U;
  EXPECT_THAT(find_problems(machine, {}), ElementsAre(finding("64 KiB", "ulimit -l 8192")));
  machine.privileges.lock_memory = true;
  EXPECT_THAT(find_problems(machine, {}), IsEmpty());
  machine = good_machine();
  machine.limits.memlock_bytes = std::nullopt;
  EXPECT_THAT(find_problems(machine, {}), IsEmpty());
}

TEST(Doctor, FewMembershipsAndTinyPackets) {
  Machine machine = good_machine();
  machine.limits.igmp_memberships = 4;
  machine.interfaces[1].mtu = 500;
  EXPECT_THAT(find_problems(machine, {}), ElementsAre(finding("500 bytes", "mtu 1500"),
                                                      finding("only 4", "igmp_max_memberships")));
}

TEST(Doctor, JsonHoldsWhatTheTableShows) {
  const Machine machine = good_machine();
  const auto json =
      doctor_json(machine, {{"uring", false, "why"}}, {{"a problem", "its remedy"}}, {});
  EXPECT_EQ(json["machine"]["kernel"], "6.1.0");
  EXPECT_EQ(json["machine"]["cpu_quota"], nullptr);
  EXPECT_EQ(json["limits"]["memlock_bytes"], 8U << 20U);
  ASSERT_EQ(json["interfaces"].size(), 2U);
  EXPECT_EQ(json["interfaces"][1]["name"], "eth0");
  EXPECT_EQ(json["interfaces"][1]["ipv4"].dump(), R"(["192.0.2.7"])");
  EXPECT_EQ(json["transports"][0]["usable"], false);
  EXPECT_EQ(json["transports"][0]["reason"], "why");
  EXPECT_EQ(json["problems"][0]["remedy"], "its remedy");

  Machine unlimited = machine;
  unlimited.limits.memlock_bytes = std::nullopt;
  EXPECT_EQ(doctor_json(unlimited, {}, {}, {})["limits"]["memlock_bytes"], nullptr);
}

TEST(Doctor, TextNamesTransportsReasonsAndRemedies) {
  const std::string text =
      doctor_text(good_machine(), {{"shm", true, "rings"}, {"dpdk", false, "not built in"}},
                  {{"a problem", "its remedy"}}, {});
  EXPECT_THAT(text, HasSubstr("shm     usable      rings\n"));
  EXPECT_THAT(text, HasSubstr("dpdk    not usable  not built in\n"));
  EXPECT_THAT(text, HasSubstr("192.0.2.7"));
  EXPECT_THAT(text, HasSubstr("a problem\n      -> its remedy\n"));
  EXPECT_THAT(doctor_text(good_machine(), {}, {}, {}), HasSubstr("Nothing to mend"));
}

MemoryState memory_of(PageKind pages) {
  return {.buffer_bytes = 8U << 20U, .pages = pages, .huge_bytes = 6U << 20U, .buffer_error = ""};
}

std::vector<Finding> memory_problems(const MemoryState& memory, bool rdma) {
  std::vector<Finding> out;
  find_memory_problems(memory, rdma, out);
  return out;
}

TEST(DoctorMemory, NamesThePagesOfBuffers) {
  EXPECT_THAT(memory_text(memory_of(PageKind::hugetlb)), HasSubstr("huge pages (vm.nr_hugepages)"));
  EXPECT_THAT(memory_text(memory_of(PageKind::transparent)),
              HasSubstr("transparent huge pages, 6 MiB of 8 MiB huge"));
  EXPECT_THAT(memory_text(memory_of(PageKind::plain)), HasSubstr("plain pages"));
  EXPECT_EQ(memory_json(memory_of(PageKind::transparent))["buffer_pages"], "transparent");
  EXPECT_EQ(memory_json(memory_of(PageKind::transparent))["huge_bytes"], 6U << 20U);
  MemoryState none;
  none.buffer_error = "no 9 bytes of memory; use fewer";
  EXPECT_EQ(memory_json(none)["buffer_pages"], nullptr);
  EXPECT_THAT(memory_text(none), HasSubstr("no 9 bytes of memory"));
  EXPECT_THAT(memory_problems(none, false), ElementsAre(finding("no 9 bytes", "use fewer")));
}

TEST(DoctorMemory, PlainPagesMatterWhereThereIsADevice) {
  EXPECT_THAT(memory_problems(memory_of(PageKind::plain), false), IsEmpty());
  EXPECT_THAT(memory_problems(memory_of(PageKind::plain), true),
              ElementsAre(finding("plain pages", "vm.nr_hugepages")));
  EXPECT_THAT(memory_problems(memory_of(PageKind::transparent), true), IsEmpty());
}

TEST(DoctorMemory, WhatIsTriedIsThere) {
  const MemoryState here = describe_device_memory();
  EXPECT_EQ(here.buffer_error, "");
  EXPECT_GE(here.buffer_bytes, 8U << 20U);
}

}  // namespace
}  // namespace selmcast
