// The sending half of one device: frames as work requests of one UD queue pair.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "transport/verbs/pacing.h"
#include "transport/verbs/ud_queue_pair.h"

namespace selmcast::verbs {

/// Frames are added to a chain and handed to the device with one doorbell. Work requests are
/// numbered from 1; only every kSignalEvery-th and the last of a chain make a completion, which
/// stands for all before it. One thread. The data calls do not allocate, lock or throw; only
/// revive() enters the kernel.
class SendQueue {
 public:
  static constexpr std::uint32_t kChain = 64;        ///< Work requests behind one doorbell.
  static constexpr std::uint32_t kSignalEvery = 32;  ///< Also bounds how late room is noticed.

  static Result<std::unique_ptr<SendQueue>> make(ibv_pd* pd, ibv_cq* cq, const DevicePort& port,
                                                 std::uint32_t depth, std::uint32_t slices);

  std::uint32_t slices_per_frame() const noexcept { return slices_; }
  std::uint32_t depth() const noexcept { return depth_; }
  /// Whether `frames` more may be added now. False while the queue pair is in error.
  bool has_room(std::uint32_t frames) const noexcept {
    return !broken_ && added_ + frames - completed_ <= depth_;
  }
  bool broken() const noexcept { return broken_; }

  /// A new frame to `ah` and `qpn`, without bytes yet. There must be room.
  void begin_frame(ibv_ah* ah, std::uint32_t qpn) noexcept;
  /// Adds bytes to the frame begun last; false when it has slices_per_frame() already.
  bool add_slice(const std::byte* data, std::uint32_t bytes, std::uint32_t lkey) noexcept;
  /// Takes back the frames added since number `last`; none of them may have been handed over.
  void take_back(std::uint64_t last) noexcept;
  /// Number of the frame added last.
  std::uint64_t added() const noexcept { return added_; }
  /// Hands the chain to the device. 0, or an errno, after which broken() holds.
  int ring() noexcept;
  /// Rings if a chain could not take `frames` more.
  int make_place(std::uint32_t frames) noexcept { return chained_ + frames > kChain ? ring() : 0; }

  /// A completion whose wr_id (without its tag) is `number`. On error broken() holds from then on.
  void completed(std::uint64_t number, bool ok) noexcept;
  /// Frames up to this number are the caller's again.
  std::uint64_t completed() const noexcept { return completed_; }

  /// Whether the device can hold what is sent to a rate.
  bool can_pace() const noexcept { return pacing_.has_value(); }
  /// Has the device hold what is sent to `kbps`, frames of all destinations together; 0: to no
  /// rate. False: it cannot, or not to this rate, and no rate holds. A queue in error has the rate
  /// once it is revived. System calls.
  bool limit_rate(std::uint64_t kbps) noexcept;
  /// The errno of a device that can pace and refused to, after which it is not asked again; 0:
  /// none. Thread-safe.
  int rate_refused() const noexcept { return rate_refused_.load(std::memory_order_relaxed); }

  /// After an error, once what was posted came back or kDrain passed: brings the queue pair up
  /// again. Tries at growing intervals. True when it works again; completed() is then added().
  bool revive(TimePoint now) noexcept;
  /// The device is gone: nothing comes back any more. broken() holds for good.
  void give_up() noexcept;
  /// The errno of the last revive() that failed.
  int revive_error() const noexcept { return revive_error_; }

  ibv_qp* queue_pair() const noexcept { return qp_.get(); }
  std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }

 private:
  SendQueue(QueuePair qp, DevicePort port, std::uint32_t depth, std::uint32_t slices,
            std::uint32_t inline_bytes);
  bool set_rate(std::uint32_t kbps) noexcept;

  DevicePort port_;
  QueuePair qp_;
  std::uint32_t depth_, slices_, inline_bytes_;
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> places_;
  std::vector<std::uint32_t> chain_bytes_;
  std::uint32_t chained_ = 0;
  std::uint64_t added_ = 0, completed_ = 0;
  bool broken_ = false;
  TimePoint broken_at_{};
  bool broken_at_known_ = false;
  TimePoint try_at_{};
  Duration pause_{};
  int revive_error_ = 0;
  std::optional<PacingRange> pacing_;
  std::uint32_t rate_ = 0;            ///< That the device holds, or will once revived; 0: none.
  std::atomic<int> rate_refused_{0};  ///< Relaxed: nothing else is read by it.
};

}  // namespace selmcast::verbs
