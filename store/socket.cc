#include "store/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace selmcast::store {
namespace {

constexpr int kBacklog = 1024;

std::string system_text(int code) {
  return std::strerror(code);
}

Result<sockaddr_un> unix_address(const StoreAddress& at) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  if (at.path.empty() || at.path.size() >= sizeof out.sun_path) {
    return bad_input(to_string(at) + ": a socket path has 1 to " +
                     std::to_string(sizeof out.sun_path - 1) + " bytes, this one has " +
                     std::to_string(at.path.size()) + "; choose a shorter path");
  }
  std::memcpy(out.sun_path, at.path.data(), at.path.size());
  return out;
}

int bind_unix(int fd, const sockaddr_un& address) noexcept {
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

/// Makes room at a path that exists: only a socket that refuses connections is removed.
Result<void> clear_stale(const StoreAddress& at, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(at.path.c_str(), &info) != 0) return {};  // Gone meanwhile.
  if (!S_ISSOCK(info.st_mode)) {
    return bad_input(to_string(at) + ": exists and is not a socket; choose another path");
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int rc =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (rc == 0 || (errno != ECONNREFUSED && errno != ENOENT)) {
    return bad_input(to_string(at) + ": in use by another server; choose another path");
  }
  ::unlink(at.path.c_str());
  return {};
}

Result<Listener> listen_unix(const StoreAddress& at) {
  const auto address = unix_address(at);
  if (!address) return address.error();
  Listener out{UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), at};
  if (!out.fd) return unavailable(to_string(at) + ": no socket: " + system_text(errno));
  int code = bind_unix(out.fd.get(), *address);
  if (code == EADDRINUSE) {
    if (auto cleared = clear_stale(at, *address); !cleared) return cleared.error();
    code = bind_unix(out.fd.get(), *address);
  }
  if (code != 0) return bad_input(to_string(at) + ": cannot listen there: " + system_text(code));
  struct stat info {};
  if (::lstat(at.path.c_str(), &info) == 0) {
    out.device = info.st_dev;
    out.inode = info.st_ino;
  }
  if (::listen(out.fd.get(), kBacklog) != 0) {
    const int listen_code = errno;
    remove_socket_file(out);
    return unavailable(to_string(at) + ": cannot listen there: " + system_text(listen_code));
  }
  return out;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// Blocks as long as the system's resolver does. An empty list: try again later.
Result<AddressList> resolve(const StoreAddress& at, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &list);
  AddressList out(list, &::freeaddrinfo);
  if (rc == 0) return out;
  if (rc == EAI_AGAIN) return AddressList(nullptr, &::freeaddrinfo);
  return bad_input(to_string(at) + ": host '" + at.host +
                   "' does not resolve: " + ::gai_strerror(rc));
}

std::uint16_t port_of(int fd) noexcept {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (bound.ss_family == AF_INET6) {
    std::memcpy(&v6, &bound, sizeof v6);
    return ntohs(v6.sin6_port);
  }
  std::memcpy(&v4, &bound, sizeof v4);
  return ntohs(v4.sin_port);
}

Result<Listener> listen_tcp(const StoreAddress& at) {
  const auto list = resolve(at, AI_PASSIVE);
  if (!list) return list.error();
  int code = EADDRNOTAVAIL;
  for (const addrinfo* entry = list->get(); entry != nullptr; entry = entry->ai_next) {
    Listener out{
        UniqueFd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), at};
    // Lets a restarted server take its port back from connections in TIME_WAIT; a live listener
    // still holds it.
    const int on = 1;
    if (out.fd) ::setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (out.fd && ::bind(out.fd.get(), entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::listen(out.fd.get(), kBacklog) == 0) {
      out.at.port = port_of(out.fd.get());
      return out;
    }
    code = errno;
  }
  if (code == EADDRINUSE) {
    return bad_input(to_string(at) + ": port " + std::to_string(at.port) +
                     " is in use; choose another port");
  }
  if (code == EADDRNOTAVAIL) {
    return bad_input(to_string(at) + ": '" + at.host + "' is not an address of this machine");
  }
  return bad_input(to_string(at) + ": cannot listen there: " + system_text(code));
}

/// A connect() to a free local port can meet itself: both ends are then the same address.
bool connected_to_itself(int fd) noexcept {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof here;
  socklen_t there_size = sizeof there;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) != 0) return false;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) != 0) return false;
  return here.ss_family != AF_UNIX && here_size == there_size &&
         std::memcmp(&here, &there, here_size) == 0;
}

/// 0 when connected, else the error.
int connect_until(int fd, const sockaddr* to, socklen_t size, TimePoint deadline) noexcept {
  if (::connect(fd, to, size) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_ready(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int code = 0;
  socklen_t code_size = sizeof code;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &code_size) != 0) return errno;
  return code;
}

bool worth_retrying(int code) noexcept {
  constexpr int kRetry[] = {ENOENT,      ECONNREFUSED, EAGAIN,       ETIMEDOUT,    ECONNRESET,
                            ENETUNREACH, EHOSTUNREACH, ECONNABORTED, EADDRNOTAVAIL};
  return std::find(std::begin(kRetry), std::end(kRetry), code) != std::end(kRetry);
}

}  // namespace

Result<Listener> listen_at(const StoreAddress& at) {
  return at.kind == StoreAddress::Kind::tcp ? listen_tcp(at) : listen_unix(at);
}

void remove_socket_file(const Listener& listener) noexcept {
  if (listener.at.kind != StoreAddress::Kind::unix_socket) return;
  struct stat info {};
  if (::lstat(listener.at.path.c_str(), &info) != 0) return;
  if (info.st_dev == listener.device && info.st_ino == listener.inode) {
    ::unlink(listener.at.path.c_str());
  }
}

Result<UniqueFd> try_connect(const StoreAddress& at, TimePoint deadline) {
  if (at.kind == StoreAddress::Kind::unix_socket) {
    const auto address = unix_address(at);
    if (!address) return address.error();
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return unavailable(to_string(at) + ": no socket: " + system_text(errno));
    const int code = connect_until(fd.get(), reinterpret_cast<const sockaddr*>(&*address),
                                   sizeof *address, deadline);
    if (code == 0) return fd;
    if (worth_retrying(code)) return UniqueFd();
    return bad_input(to_string(at) + ": cannot connect: " + system_text(code));
  }
  const auto list = resolve(at, 0);
  if (!list) return list.error();
  int code = EAGAIN;
  for (const addrinfo* entry = list->get(); entry != nullptr; entry = entry->ai_next) {
    UniqueFd fd(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    code = connect_until(fd.get(), entry->ai_addr, entry->ai_addrlen, deadline);
    if (code == 0 && !connected_to_itself(fd.get())) return fd;
  }
  if (code == 0 || worth_retrying(code)) return UniqueFd();
  return bad_input(to_string(at) + ": cannot connect: " + system_text(code));
}

bool wait_ready(int fd, short events, TimePoint deadline) noexcept {
  const SteadyClock clock;
  while (true) {
    const auto left = std::max(Duration::zero(), deadline - clock.now());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(whole.count());
    timeout.tv_nsec = static_cast<long>((left - whole).count());
    pollfd entry{fd, events, 0};
    const int rc = ::ppoll(&entry, 1, &timeout, nullptr);
    if (rc > 0) return true;
    if (rc == 0 && clock.now() >= deadline) return false;
    if (rc < 0 && errno != EINTR) return true;  // The caller's next call on fd tells why.
  }
}

void tune(int fd) noexcept {
  // A host that vanished without a word is noticed within about 15 s. Unix sockets refuse all of
  // these and need none.
  const int on = 1;
  const int idle_s = 5;
  const int interval_s = 2;
  const int probes = 5;
  const unsigned unanswered_ms = 15'000;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

}  // namespace selmcast::store
