// The clock is a parameter of everything that waits, so that the simulator can own time.
#pragma once

#include "base/units.h"

namespace selmcast {

/// Source of monotonic time. Thread-safe, never blocks.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const noexcept = 0;
};

/// CLOCK_MONOTONIC of this host.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const noexcept override {
    return TimePoint(
        std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
};

/// Time that moves only when told to; for tests and the simulator. One thread.
class ManualClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }
  void set(TimePoint to) noexcept { now_ = to; }

 private:
  TimePoint now_{};
};

}  // namespace selmcast
