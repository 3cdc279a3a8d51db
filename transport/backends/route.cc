#include "transport/backends/route.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/unique_fd.h"

namespace selmcast {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
using InterfaceList = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

constexpr const char* kRemedy = "; name the interface to use";

std::optional<std::uint32_t> ipv4_of(const sockaddr* address) noexcept {
  if (address == nullptr || address->sa_family != AF_INET) return std::nullopt;
  sockaddr_in v4{};
  std::memcpy(&v4, address, sizeof v4);
  return ntohl(v4.sin_addr.s_addr);
}

/// The same host; ports do not count.
bool same_host(const sockaddr* a, const sockaddr* b) noexcept {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) return ipv4_of(a) == ipv4_of(b);
  if (a->sa_family != AF_INET6) return false;
  sockaddr_in6 left{}, right{};
  std::memcpy(&left, a, sizeof left);
  std::memcpy(&right, b, sizeof right);
  return std::memcmp(&left.sin6_addr, &right.sin6_addr, sizeof left.sin6_addr) == 0;
}

bool is_loopback(const sockaddr* address) noexcept {
  if (const auto v4 = ipv4_of(address)) return *v4 >> 24U == 127;
  sockaddr_in6 v6{};
  std::memcpy(&v6, address, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

const ifaddrs* holder_of(const InterfaceList& list, const sockaddr* address) noexcept {
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    if (same_host(it->ifa_addr, address)) return it;
  }
  return nullptr;
}

/// The local end of a datagram socket that is connected to `entry`; an errno, or 0.
int local_end(const addrinfo& entry, sockaddr_storage& local) noexcept {
  const UniqueFd fd(::socket(entry.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  socklen_t size = sizeof local;
  const bool good = fd && ::connect(fd.get(), entry.ai_addr, entry.ai_addrlen) == 0 &&
                    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &size) == 0;
  return good ? 0 : errno;
}

StoreRoute loopback_to(const std::string& store) {
  return {"lo", 0, true, "the store at " + store + " is on this host"};
}

Result<StoreRoute> interface_of(const std::string& store, const sockaddr* there,
                                const sockaddr* local) {
  if (is_loopback(there)) return loopback_to(store);
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    return unavailable(std::string("the network interfaces cannot be listed: ") +
                       std::strerror(errno) + kRemedy);
  }
  const InterfaceList list(raw, &::freeifaddrs);
  const ifaddrs* const own = holder_of(list, local);
  // Some hosts have the address by which others know them on lo and are reached through several
  // interfaces: which of them is not to be seen from the address.
  if (own == nullptr || (own->ifa_flags & IFF_LOOPBACK) != 0) {
    return unavailable("the kernel's route to the store at " + store +
                       " starts from an address that is on no network interface but lo" + kRemedy);
  }
  StoreRoute out;
  out.interface = own->ifa_name;
  out.ipv4 = ipv4_of(local).value_or(0);
  out.why = same_host(there, local)
                ? "the store's address " + store + " is on it"
                : "the kernel's route to the store at " + store + " goes through it";
  return out;
}

}  // namespace

Result<StoreRoute> route_to(const StoreAddress& store) {
  const std::string name = to_string(store);
  if (store.kind == StoreAddress::Kind::unix_socket) return loopback_to(name);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  const int rc =
      ::getaddrinfo(store.host.c_str(), std::to_string(store.port).c_str(), &hints, &raw);
  const AddressList list(raw, &::freeaddrinfo);
  if (rc != 0) {
    return bad_input(name + ": host '" + store.host + "' does not resolve: " + ::gai_strerror(rc));
  }
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    sockaddr_storage local{};
    error = local_end(*entry, local);
    if (error != 0) continue;
    return interface_of(name, entry->ai_addr, reinterpret_cast<const sockaddr*>(&local));
  }
  return unavailable("no route leads to the store at " + name + ": " + std::strerror(error) +
                     kRemedy);
}

}  // namespace selmcast
