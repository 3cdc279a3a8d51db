// What client and server have in common: driving an engine slice by slice, meanwhile looking after
// the connection; CPU time; counters.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "tools/perf/counters.h"
#include "tools/perf/engines.h"

namespace selmcast::perf {

inline constexpr Duration kSlice = std::chrono::milliseconds(100);

/// Of this process, all threads.
inline double cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

inline std::vector<Counter> counters_of(const Rig& rig) {
  return read_counters("/sys/class/infiniband/" + rig.opened.port.device, rig.opened.port.port);
}

/// Sleeps until something completes; the queue is armed first, and looked at once more by the
/// caller before the sleep.
class EventWait {
 public:
  explicit EventWait(const Rig& rig) : rig_(rig) {}
  ~EventWait() { acknowledge(); }
  EventWait(const EventWait&) = delete;
  EventWait& operator=(const EventWait&) = delete;

  /// 0 or an errno. Returns at once the first time after an event: poll again then.
  int idle(Duration most) {
    if (!armed_) {
      armed_ = true;
      return ibv_req_notify_cq(rig_.cq.get(), 0);
    }
    pollfd ready{.fd = rig_.channel->fd, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(most).count();
    if (::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(ms, 0))) <= 0) return 0;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(rig_.channel.get(), &cq, &context) == 0) {
      ++unacknowledged_;
      armed_ = false;
    }
    return 0;
  }

 private:
  void acknowledge() {
    if (unacknowledged_ > 0) ibv_ack_cq_events(rig_.cq.get(), unacknowledged_);
  }
  const Rig& rig_;
  bool armed_ = false;
  unsigned unacknowledged_ = 0;
};

/// Runs `engine` for one slice of time, or shorter when it is finished or broken. Errors name the
/// cause of what broke.
template <class Engine>
Result<Slice> run_slice(Engine& engine, EventWait& wait, TimePoint until, const char* who) {
  const SteadyClock clock;
  for (;;) {
    const Slice slice = engine.run(until);
    if (slice == Slice::broken) {
      return failed(std::string("perf: ") + who + ": " + text_of(engine.fault()));
    }
    if (slice != Slice::idle) return slice;
    const TimePoint now = clock.now();
    if (now >= until) return Slice::over;
    if (const int error = wait.idle(until - now); error != 0) {
      return failed("perf: the completion queue cannot be armed: error " + std::to_string(error));
    }
  }
}

}  // namespace selmcast::perf
