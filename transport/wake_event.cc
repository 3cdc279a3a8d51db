#include "transport/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace selmcast {

Result<UniqueFd> make_wake_event(bool blocking) {
  UniqueFd out(::eventfd(0, blocking ? EFD_CLOEXEC : EFD_CLOEXEC | EFD_NONBLOCK));
  if (out) return out;
  return failed(std::string("no descriptor to wake a transport with (eventfd): ") +
                std::strerror(errno) + "; raise the limit of open files (ulimit -n)");
}

void ring_wake_event(const UniqueFd& event) noexcept {
  const int saved = errno;  // may run in a signal handler
  const std::uint64_t one = 1;
  // Fails only when 2^64 - 2 wake-ups are pending, which is woken enough.
  [[maybe_unused]] const auto written = ::write(event.get(), &one, sizeof one);
  errno = saved;
}

}  // namespace selmcast
