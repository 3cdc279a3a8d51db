#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/system_files.h"
#include "hwconf/machine.h"

namespace selmcast {
namespace {

struct AddressListDeleter {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

std::string interface_file(const std::string& name, const char* file) {
  return "/sys/class/net/" + name + "/" + file;
}

/// The file holds Mbit/s, -1 where the driver knows no speed, and cannot be read while down.
Kbps interface_speed(const std::string& name) {
  return read_system_number(interface_file(name, "speed")).value_or(0) * 1000;
}

NetworkInterface new_interface(const ifaddrs& entry) {
  NetworkInterface interface;
  interface.name = entry.ifa_name;
  interface.index = ::if_nametoindex(entry.ifa_name);
  interface.up = (entry.ifa_flags & IFF_UP) != 0;
  interface.running = interface.up && (entry.ifa_flags & IFF_RUNNING) != 0;
  interface.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  interface.multicast = (entry.ifa_flags & IFF_MULTICAST) != 0;
  interface.mtu = static_cast<std::uint32_t>(
      read_system_number(interface_file(interface.name, "mtu")).value_or(0));
  interface.speed_kbps = interface_speed(interface.name);
  struct stat status {};
  interface.physical = ::stat(interface_file(interface.name, "device").c_str(), &status) == 0;
  return interface;
}

/// The kernel lists one entry per address; a second address may carry an alias label ("eth0:1").
NetworkInterface& interface_of(std::vector<NetworkInterface>& interfaces, const ifaddrs& entry) {
  const std::string label = entry.ifa_name;
  const std::string name = label.substr(0, label.find(':'));
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(),
                   [&name](const NetworkInterface& known) { return known.name == name; });
  if (found != interfaces.end()) return *found;
  return interfaces.emplace_back(new_interface(entry));
}

}  // namespace

std::vector<NetworkInterface> describe_interfaces() {
  std::vector<NetworkInterface> interfaces;
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, AddressListDeleter> list(raw);
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    NetworkInterface& interface = interface_of(interfaces, *entry);
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
    std::array<char, INET_ADDRSTRLEN> text{};
    if (::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      interface.ipv4.emplace_back(text.data());
    }
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const NetworkInterface& a, const NetworkInterface& b) { return a.index < b.index; });
  return interfaces;
}

}  // namespace selmcast
