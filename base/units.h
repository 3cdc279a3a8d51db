// Names of the quantities that cross floors.
#pragma once

#include <chrono>
#include <cstdint>

namespace selmcast {

/// Index of a worker in its job, counted from 0.
using Rank = std::uint32_t;

/// Rates are integers in kbit/s (1000 bit/s); the design keeps them below 2^53.
using Kbps = std::uint64_t;

using Duration = std::chrono::nanoseconds;

/// Origin of TimePoint; a tag, never asked for the time itself (see base/clock.h).
struct JobEpoch {
  using duration = Duration;
  using rep = Duration::rep;
  using period = Duration::period;
  static constexpr bool is_steady = true;
};

/// A moment of the clock a component was given: monotonic time or the simulator's virtual time.
using TimePoint = std::chrono::time_point<JobEpoch, Duration>;

inline constexpr TimePoint kNever = TimePoint::max();

/// Time that `bytes` take at `rate`, rounded up to a nanosecond. Needs rate > 0 and bytes < 2^40.
constexpr Duration transmission_time(std::uint64_t bytes, Kbps rate) noexcept {
  return Duration(static_cast<Duration::rep>((bytes * 8'000'000U + rate - 1) / rate));
}

}  // namespace selmcast
