#include "transport/shm/shm_bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace selmcast::shm {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futex_sleep(std::atomic<std::uint32_t>& word, Duration at_most) noexcept {
  if (at_most <= Duration::zero()) return;
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(whole.count());
  timeout.tv_nsec = static_cast<long>((at_most - whole).count());
  // Not FUTEX_PRIVATE: the waker is another process. Every way of returning is fine for the caller.
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, kAsleep, &timeout,
            nullptr, 0);
}

void futex_rouse(std::atomic<std::uint32_t>& word) noexcept {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace selmcast::shm
