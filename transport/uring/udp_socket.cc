#include "transport/uring/udp_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace selmcast::uring {
namespace {

// SO_MEMINFO and the place of the drop counter in its answer (linux/sock_diag.h; not in glibc).
constexpr int kSoMeminfo = 55;
constexpr std::size_t kMeminfoDrops = 8;

// Asked for, not assumed: as root the kernel grants it, else it caps it at net.core.rmem_max.
constexpr int kReceiveBuffer = 8 << 20;
// Room for some dozen requests; more would only hide a slow link from the pacer.
constexpr int kSendBuffer = 1 << 20;

Error refused(const char* what) {
  const int error = errno;
  const std::string text = std::string("UDP socket: ") + what + ": " + std::strerror(error);
  if (error == EMFILE || error == ENFILE) {
    return unavailable(text + "; raise the limit of open files (ulimit -n)");
  }
  if (error == ENOPROTOOPT || error == EINVAL) {
    return unavailable(text + "; the kernel is too old, 6.0 or later is needed");
  }
  return failed(text);
}

template <class T>
bool set_option(int fd, int level, int option, const T& value) noexcept {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

Result<UniqueFd> open_udp_socket() {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return refused("socket()");
  if (!set_option(fd.get(), SOL_UDP, UDP_GRO, 1)) return refused("UDP_GRO");
  if (!set_option(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, kReceiveBuffer) &&
      !set_option(fd.get(), SOL_SOCKET, SO_RCVBUF, kReceiveBuffer)) {
    return refused("SO_RCVBUF");
  }
  return fd;
}

sockaddr_in socket_address(std::uint32_t ipv4, std::uint16_t port) noexcept {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(ipv4);
  out.sin_port = htons(port);
  return out;
}

bool bind_to(int fd, const sockaddr_in& address) noexcept {
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

ip_mreqn membership(std::uint32_t group, const NetworkInterface& interface) noexcept {
  ip_mreqn out{};
  out.imr_multiaddr.s_addr = htonl(group);
  out.imr_address.s_addr = htonl(interface.ipv4);
  out.imr_ifindex = interface.index;
  return out;
}

}  // namespace

Result<UniqueFd> open_unicast_socket(const NetworkInterface& interface) {
  auto socket = open_udp_socket();
  if (!socket) return socket;
  const int fd = socket->get();
  if (!set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, kSendBuffer) &&
      !set_option(fd, SOL_SOCKET, SO_SNDBUF, kSendBuffer)) {
    return refused("SO_SNDBUF");
  }
  if (!set_option(fd, IPPROTO_IP, IP_MULTICAST_IF, membership(0, interface)) ||
      !set_option(fd, IPPROTO_IP, IP_MULTICAST_TTL, 1) ||
      !set_option(fd, IPPROTO_IP, IP_MULTICAST_LOOP, 1)) {
    return refused("multicast options");
  }
  if (!bind_to(fd, socket_address(interface.ipv4, 0))) {
    return refused(("bind to the address of " + interface.name).c_str());
  }
  return socket;
}

Result<UniqueFd> open_group_socket(std::uint16_t port) {
  auto socket = open_udp_socket();
  if (!socket) return socket;
  const int fd = socket->get();
  if (!set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1)) return refused("SO_REUSEADDR");
  if (!set_option(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0)) return refused("IP_MULTICAST_ALL");
  if (!set_option(fd, IPPROTO_IP, IP_PKTINFO, 1)) return refused("IP_PKTINFO");
  if (bind_to(fd, socket_address(INADDR_ANY, port))) return socket;
  if (errno == EADDRINUSE) {
    return unavailable("UDP port " + std::to_string(port) +
                       ", which this job's id gives for multicast, is held by another program; "
                       "stop that one (ss -lunp) or start the job again under another id");
  }
  return refused("bind to the group port");
}

int change_membership(int fd, std::uint32_t group, const NetworkInterface& interface,
                      bool member) noexcept {
  const int option = member ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP;
  return set_option(fd, IPPROTO_IP, option, membership(group, interface)) ? 0 : errno;
}

Result<std::uint16_t> bound_port(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return refused("getsockname()");
  }
  return ntohs(address.sin_port);
}

std::uint64_t granted_receive_buffer(int fd) noexcept {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) != 0 || bytes < 0) return 0;
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t socket_drops(int fd) noexcept {
  std::array<std::uint32_t, 16> values{};
  socklen_t size = sizeof values;
  if (getsockopt(fd, SOL_SOCKET, kSoMeminfo, values.data(), &size) != 0) return 0;
  return size > kMeminfoDrops * sizeof values[0] ? values[kMeminfoDrops] : 0;
}

std::uint32_t memberships_per_socket() {
  std::uint32_t limit = 0;
  std::ifstream file("/proc/sys/net/ipv4/igmp_max_memberships");
  // Where it cannot be read, or is absurd, the kernel's own default of 20 holds.
  if (!(file >> limit) || limit == 0) limit = 20;
  return limit;
}

}  // namespace selmcast::uring
