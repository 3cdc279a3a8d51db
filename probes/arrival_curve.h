// How many bytes had arrived by when, and the steady rate that follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// Cumulative arrivals of one train on one clock. The rate is that of train dispersion (Dovrolis,
/// Ramanathan, Moore, "Packet-dispersion techniques and a capacity-estimation methodology", 2004)
/// without its beginning: a token bucket lets its burst pass at line rate, so the first third of
/// the time says nothing about the rate that lasts.
class ArrivalCurve {
 public:
  ArrivalCurve();
  void clear() noexcept;
  /// `bytes` have arrived in total at `at`; neither goes down. Samples closer than 50 us are
  /// merged, so that the fixed storage lasts for 400 ms; after that the last sample moves on.
  void add(TimePoint at, std::uint64_t bytes) noexcept;
  bool empty() const noexcept { return samples_.empty(); }

  /// Mean rate from `from` (interpolated between the samples around it, for arrivals come in
  /// batches) to the last sample at or before `to`; empty unless there are samples for that.
  std::optional<Kbps> rate_between(TimePoint from, TimePoint to) const noexcept;
  /// Rate over the last two thirds of [start, end] or a little less, for it begins where a batch
  /// ends: a reader that comes late reads a batch at once, and half of one would count for nothing
  /// but time. Of everything if that holds too few samples.
  std::optional<Kbps> steady_rate(TimePoint start, TimePoint end) const noexcept;

 private:
  /// The sample in [from, to] that is followed by the longest pause; `from` if there is none.
  TimePoint end_of_batch(TimePoint from, TimePoint to) const noexcept;

  struct Sample {
    TimePoint at{};
    std::uint64_t bytes = 0;
  };
  std::vector<Sample> samples_;
};

/// kbit/s of so many bytes in so much time (> 0), rounded down.
Kbps rate_of(std::uint64_t bytes, Duration time) noexcept;

/// The middle one (the lower of two middles). `values` must not be empty.
std::uint64_t median_of(std::vector<std::uint64_t> values);

}  // namespace selmcast
