// Every expectation is read from the kernel by another road than the code under test takes.
#include "hwconf/machine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace selmcast {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A socket that answers interface ioctls.
class IoctlSocket {
 public:
  IoctlSocket() : descriptor_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  IoctlSocket(const IoctlSocket&) = delete;
  IoctlSocket& operator=(const IoctlSocket&) = delete;
  ~IoctlSocket() { ::close(descriptor_); }

  bool ask(unsigned long request, const std::string& name, ifreq& answer) const {
    answer = {};
    std::strncpy(answer.ifr_name, name.c_str(), IFNAMSIZ - 1);
    return ::ioctl(descriptor_, request, &answer) == 0;
  }

 private:
  int descriptor_;
};

std::size_t threads_online() {
  // "0-3,5": ranges of CPU numbers.
  std::istringstream ranges(file_text("/sys/devices/system/cpu/online"));
  std::size_t count = 0;
  for (std::string range; std::getline(ranges, range, ',');) {
    const std::size_t dash = range.find('-');
    const std::size_t first = std::stoul(range);
    const std::size_t last = dash == std::string::npos ? first : std::stoul(range.substr(dash + 1));
    count += last - first + 1;
  }
  return count;
}

std::size_t folders_named(const std::string& folder, const std::string& prefix) {
  std::size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) == 0 && name.size() > prefix.size() &&
        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; })) {
      ++count;
    }
  }
  return count;
}

TEST(Processor, CountsHardwareThreadsLikeSysfs) {
  EXPECT_EQ(describe_processor().threads, threads_online());
}

TEST(Processor, UsableThreadsAreThoseOfTheAffinityMask) {
  const Processor processor = describe_processor();
  EXPECT_EQ(processor.usable, std::thread::hardware_concurrency());
  EXPECT_LE(processor.usable, processor.threads);
}

TEST(Processor, AffinityOfOneThreadLeavesOneUsableAndTheMachineWhole) {
  // In a thread of its own, so that the mask ends with it.
  Processor pinned;
  bool could_pin = false;
  std::thread([&] {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    could_pin = ::sched_setaffinity(0, sizeof(one), &one) == 0;
    pinned = describe_processor();
  }).join();
  if (!could_pin) GTEST_SKIP() << "the affinity mask cannot be set here";
  EXPECT_EQ(pinned.usable, 1U);
  EXPECT_EQ(pinned.threads, threads_online());
}

TEST(Processor, NumaNodesAndCoresLikeSysfs) {
  const Processor processor = describe_processor();
  const std::size_t nodes = folders_named("/sys/devices/system/node", "node");
  EXPECT_EQ(processor.numa_nodes, nodes == 0 ? 1 : nodes);

  std::set<std::string> cores;
  for (const auto& cpu : std::filesystem::directory_iterator("/sys/devices/system/cpu")) {
    const std::string siblings = file_text(cpu.path() / "topology/core_cpus_list");
    if (!siblings.empty()) cores.insert(siblings);
  }
  if (cores.empty()) GTEST_SKIP() << "the kernel shows no core topology";
  EXPECT_EQ(processor.cores, cores.size());
}

TEST(Processor, CachesLikeSysfs) {
  const Processor processor = describe_processor();
  std::size_t compared = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/devices/system/cpu/cpu0/cache")) {
    const std::string type = file_text(entry.path() / "type");
    if (type.empty() || type == "Instruction\n") continue;
    const std::size_t level = std::stoul(file_text(entry.path() / "level"));
    const std::size_t kib = std::stoul(file_text(entry.path() / "size"));  // "512K"
    const auto found =
        std::find_if(processor.caches.begin(), processor.caches.end(),
                     [level](const CacheLevel& cache) { return cache.level == level; });
    ASSERT_NE(found, processor.caches.end()) << "level " << level;
    EXPECT_EQ(found->bytes, kib * 1024) << "level " << level;
    EXPECT_EQ(found->line_bytes, std::stoul(file_text(entry.path() / "coherency_line_size")));
    EXPECT_GE(found->count, 1U);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "the kernel shows no caches";
}

TEST(Memory, TotalIsWhatTheKernelCounts) {
  struct sysinfo info {};
  ASSERT_EQ(::sysinfo(&info), 0);
  const Memory memory = describe_memory();
  // /proc/meminfo counts in KiB.
  EXPECT_EQ(memory.total_bytes / 1024, info.totalram * info.mem_unit / 1024);
  EXPECT_EQ(memory.swap_bytes / 1024, info.totalswap * info.mem_unit / 1024);
  EXPECT_GT(memory.available_bytes, 0U);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

TEST(Interfaces, AreThoseOfSysfsInKernelOrder) {
  std::set<std::string> expected;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/net")) {
    // bonding leaves a control file here.
    if (entry.is_directory()) expected.insert(entry.path().filename());
  }
  const auto interfaces = describe_interfaces();
  std::set<std::string> seen;
  for (const NetworkInterface& interface : interfaces) {
    seen.insert(interface.name);
    EXPECT_EQ(file_text("/sys/class/net/" + interface.name + "/ifindex"),
              std::to_string(interface.index) + "\n");
  }
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(seen.size(), interfaces.size()) << "an interface is listed twice";
  EXPECT_TRUE(std::is_sorted(
      interfaces.begin(), interfaces.end(),
      [](const NetworkInterface& a, const NetworkInterface& b) { return a.index < b.index; }));
}

TEST(Interfaces, FlagsMtuAndAddressLikeIoctl) {
  const IoctlSocket socket;
  for (const NetworkInterface& interface : describe_interfaces()) {
    SCOPED_TRACE(interface.name);
    ifreq answer;
    ASSERT_TRUE(socket.ask(SIOCGIFFLAGS, interface.name, answer));
    EXPECT_EQ(interface.up, (answer.ifr_flags & IFF_UP) != 0);
    EXPECT_EQ(interface.loopback, (answer.ifr_flags & IFF_LOOPBACK) != 0);
    EXPECT_EQ(interface.multicast, (answer.ifr_flags & IFF_MULTICAST) != 0);
    ASSERT_TRUE(socket.ask(SIOCGIFMTU, interface.name, answer));
    EXPECT_EQ(interface.mtu, static_cast<std::uint32_t>(answer.ifr_mtu));
    if (socket.ask(SIOCGIFADDR, interface.name, answer)) {
      sockaddr_in address{};
      std::memcpy(&address, &answer.ifr_addr, sizeof(address));
      char text[INET_ADDRSTRLEN];
      ASSERT_NE(::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text)), nullptr);
      ASSERT_FALSE(interface.ipv4.empty());
      EXPECT_EQ(interface.ipv4.front(), text);
    } else {
      EXPECT_TRUE(interface.ipv4.empty());
    }
  }
}

TEST(Limits, SocketSettingsLikeProc) {
  const Limits limits = describe_limits();
  EXPECT_EQ(std::to_string(limits.receive_buffer_bytes) + "\n",
            file_text("/proc/sys/net/core/rmem_max"));
  EXPECT_EQ(std::to_string(limits.send_buffer_bytes) + "\n",
            file_text("/proc/sys/net/core/wmem_max"));
  EXPECT_EQ(std::to_string(limits.igmp_memberships) + "\n",
            file_text("/proc/sys/net/ipv4/igmp_max_memberships"));
}

TEST(Limits, ResourceLimitsLikeProc) {
  const Limits limits = describe_limits();
  std::istringstream lines(file_text("/proc/self/limits"));
  std::size_t compared = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool memlock = line.rfind("Max locked memory", 0) == 0;
    if (!memlock && line.rfind("Max open files", 0) != 0) continue;
    std::string soft;
    std::istringstream(line.substr(26)) >> soft;
    const auto value = memlock ? limits.memlock_bytes : limits.open_files;
    EXPECT_EQ(value ? std::to_string(*value) : "unlimited", soft) << line;
    ++compared;
  }
  EXPECT_EQ(compared, 2U);
}

TEST(Privileges, RootAndCapabilitiesLikeProc) {
  const Privileges privileges = describe_privileges();
  EXPECT_EQ(privileges.root, ::geteuid() == 0);
  const std::string status = file_text("/proc/self/status");
  const std::size_t at = status.find("CapEff:");
  ASSERT_NE(at, std::string::npos);
  const unsigned long long effective = std::stoull(status.substr(at + 7), nullptr, 16);
  EXPECT_EQ(privileges.network_admin, (effective >> 12U & 1U) != 0);  // CAP_NET_ADMIN
  EXPECT_EQ(privileges.lock_memory, (effective >> 14U & 1U) != 0);    // CAP_IPC_LOCK
}

TEST(IoUring, SaysWhyWhenNotUsable) {
  const IoUring ring = probe_io_uring();
  EXPECT_EQ(ring.usable, ring.reason.empty());
  if (file_text("/proc/sys/kernel/io_uring_disabled") == "2\n") {
    EXPECT_FALSE(ring.usable);
  }
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.is_symlink() ? 1 : 0;
  }
  return count;
}

TEST(Machine, LooksWithoutLeavingAnythingOpen) {
  const std::size_t before = open_descriptors();
  const Machine machine = describe_machine();
  EXPECT_EQ(open_descriptors(), before);
  utsname names{};
  ASSERT_EQ(::uname(&names), 0);
  EXPECT_EQ(machine.kernel_release, names.release);
  EXPECT_EQ(machine.architecture, names.machine);
}

TEST(MachineFacts, NameTheMachineButNotItsAddresses) {
  Machine machine;
  machine.kernel_release = "6.1.0-test";
  machine.architecture = "x86_64";
  machine.processor = {"Example CPU", 4, 8, 6, std::nullopt, 2, {{1, 32768, 64, 4}}};
  machine.memory.total_bytes = 3ULL << 30U;
  NetworkInterface port;
  port.name = "eth9";
  port.mtu = 9000;
  port.up = true;
  port.speed_kbps = 25'000'000;
  port.ipv4 = {"192.0.2.1"};
  NetworkInterface down = port;
  down.name = "eth10";
  down.up = false;
  machine.interfaces = {port, down};
  EXPECT_EQ(machine_facts(machine),
            "kernel: 6.1.0-test x86_64\n"
            "processor: Example CPU, 4 cores, 8 threads (6 usable), 2 NUMA nodes\n"
            "caches: L1 4 x 32 KiB\n"
            "memory: 3 GiB\n"
            "interfaces up: eth9 mtu 9000 25000 Mbit/s\n");
}

TEST(MachineFacts, UnknownPartsAreSaidToBeUnknown) {
  const std::string facts = machine_facts(Machine{});
  EXPECT_THAT(facts, HasSubstr("processor: unknown"));
  EXPECT_THAT(facts, HasSubstr("interfaces up: none"));
  EXPECT_THAT(facts, Not(HasSubstr("caches")));
}

TEST(SizeText, UsesTheLargestFittingUnit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1024), "1 KiB");
  EXPECT_EQ(size_text(1536), "1.5 KiB");
  EXPECT_EQ(size_text(8ULL << 20U), "8 MiB");
  EXPECT_EQ(size_text(5ULL << 50U), "5120 TiB");
}

}  // namespace
}  // namespace selmcast
