// A completion queue, and the device's own time of every completion where that is asked for and
// the device keeps one.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "transport/verbs/device_port.h"
#include "transport/verbs/handles.h"

namespace selmcast::verbs {

/// A device's free-running counter as nanoseconds since a moment of its own. One thread.
class DeviceClock {
 public:
  DeviceClock() = default;
  /// A counter of `mask` (2^bits - 1) at `khz` ticks per millisecond, neither of them 0.
  DeviceClock(std::uint64_t mask, std::uint64_t khz) noexcept;
  /// Less than half of the counter's range after the call before (for one of 32 bits and 1 GHz: two
  /// seconds), wrapping included, or before it, since completions of several queue pairs overtake
  /// one another. Times further apart are not to be compared. Not 0.
  std::uint64_t nanoseconds(std::uint64_t ticks) noexcept;

 private:
  unsigned unused_bits_ = 0;
  std::uint64_t khz_ = 1;
  std::uint64_t last_ = 0, total_ = 0;
  bool started_ = false;
};

/// Movable. One thread.
class Completions {
 public:
  Completions() = default;
  /// Room for `entries`; events go to `channel`. `timed`: with times, if the device says that it
  /// has them (completion_timestamp_mask and hca_core_clock of ibv_query_device_ex(3)); otherwise,
  /// and where the device refuses such a queue, a plain one. Soft-RoCE has none: the extended
  /// queue, which rdma-core 44 gets wrong for it, is then never made.
  static Result<Completions> make(const OpenedPort& opened, std::uint32_t entries,
                                  ibv_comp_channel* channel, bool timed);

  ibv_cq* get() const noexcept { return cq_.get(); }
  bool timed() const noexcept { return timed_ != nullptr; }
  /// ibv_poll_cq(3): how many, negative when the queue failed. With timed(), `times` gets the
  /// DeviceClock nanoseconds of each (as many as `out`), 0 of one in error; otherwise it is not
  /// touched.
  int poll(std::span<ibv_wc> out, std::span<std::uint64_t> times) noexcept;

 private:
  int poll_timed(std::span<ibv_wc> out, std::span<std::uint64_t> times) noexcept;

  CompletionQueue cq_;
  ibv_cq_ex* timed_ = nullptr;  ///< The same queue.
  bool failed_ = false;         ///< In the middle of a poll.
  DeviceClock clock_;
};

}  // namespace selmcast::verbs
