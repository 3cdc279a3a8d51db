#include "transport/uring/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace selmcast::uring {
namespace {

std::string present_interfaces() {
  std::string out;
  struct if_nameindex* const list = if_nameindex();
  if (list == nullptr) return "none can be listed";
  for (const auto* it = list; it->if_index != 0; ++it) {
    if (!out.empty()) out += ", ";
    out += it->if_name;
  }
  if_freenameindex(list);
  return out.empty() ? "none" : out;
}

Result<std::uint32_t> interface_mtu(const std::string& name) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return failed(std::string("socket: ") + std::strerror(errno));
  ifreq request{};
  name.copy(request.ifr_name, IFNAMSIZ - 1);
  const int status = ioctl(fd, SIOCGIFMTU, &request);
  const int error = errno;
  close(fd);
  if (status != 0 || request.ifr_mtu <= 0) {
    return failed("interface " + name + ": cannot read its MTU: " + std::strerror(error));
  }
  return static_cast<std::uint32_t>(request.ifr_mtu);
}

}  // namespace

Result<NetworkInterface> find_interface(const std::string& name, std::uint32_t ipv4) {
  NetworkInterface out;
  out.name = name.empty() ? "lo" : name;
  const unsigned index = out.name.size() < IFNAMSIZ ? if_nametoindex(out.name.c_str()) : 0;
  if (index == 0) {
    return bad_input("interface '" + out.name +
                     "': there is none of that name; present: " + present_interfaces());
  }
  out.index = static_cast<int>(index);

  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    return failed(std::string("cannot list interface addresses: ") + std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> addresses(raw, &freeifaddrs);
  unsigned flags = 0;
  for (const ifaddrs* it = addresses.get(); it != nullptr; it = it->ifa_next) {
    if (out.name != it->ifa_name) continue;
    flags |= it->ifa_flags;
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address;
    std::memcpy(&address, it->ifa_addr, sizeof address);
    const std::uint32_t own = ntohl(address.sin_addr.s_addr);
    if (out.ipv4 == 0 || own == ipv4) out.ipv4 = own;
  }
  if ((flags & IFF_UP) == 0) {
    return unavailable("interface " + out.name + " is down; bring it up: ip link set " + out.name +
                       " up");
  }
  if (out.ipv4 == 0) {
    return unavailable("interface " + out.name +
                       " has no IPv4 address, which UDP needs; give it one: ip addr add "
                       "ADDRESS/PREFIX dev " +
                       out.name);
  }
  out.loopback = (flags & IFF_LOOPBACK) != 0;
  auto mtu = interface_mtu(out.name);
  if (!mtu) return mtu.error();
  out.mtu = *mtu;
  return out;
}

}  // namespace selmcast::uring
