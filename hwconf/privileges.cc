#include <linux/capability.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

#include "hwconf/machine.h"

namespace selmcast {
namespace {

bool has_capability(const std::array<__user_cap_data_struct, 2>& sets, unsigned capability) {
  return (sets.at(capability / 32).effective >> (capability % 32) & 1U) != 0;
}

/// Tried out rather than derived from capabilities: which user namespace counts has changed
/// between kernels.
bool may_force_receive_buffer() {
  const int descriptor = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  const int bytes = 64 * 1024;
  const int refused = ::setsockopt(descriptor, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
  ::close(descriptor);
  return refused == 0;
}

}  // namespace

Privileges describe_privileges() {
  Privileges privileges;
  privileges.root = ::geteuid() == 0;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) == 0) {
    privileges.network_admin = has_capability(sets, CAP_NET_ADMIN);
    privileges.lock_memory = has_capability(sets, CAP_IPC_LOCK);
  }
  privileges.force_receive_buffer = may_force_receive_buffer();
  return privileges;
}

}  // namespace selmcast
