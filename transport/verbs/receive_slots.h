// The memory that datagrams arrive in on one device, and the receive requests that name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/arena.h"
#include "transport/requests.h"
#include "transport/verbs/device_port.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {

/// Where receives are posted: a shared queue, or one queue pair's own.
struct ReceiveQueue {
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
};

/// Buffers of one frame each. A buffer is free, posted to a queue, or lent to whom a completion
/// went. One thread. After make(), only ibv_post_recv() and its like are called: no allocation,
/// lock or system call.
class ReceiveSlots {
 public:
  static constexpr std::uint32_t kGrhBytes = 40;  ///< Precedes each datagram, IBA vol. 1, 11.4.1.2.
  static constexpr std::uint32_t kBatch = 64;     ///< Receives behind one doorbell.

  /// `frame_bytes`: the longest frame. Error unavailable, with the remedy, where the memory cannot
  /// be registered.
  static Result<std::unique_ptr<ReceiveSlots>> make(ibv_pd* pd, const DevicePort& port,
                                                    std::uint32_t count, std::uint32_t frame_bytes);

  std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(queue_of_.size()); }

  /// Posts up to `count` free buffers to `queue`, known as `queue_id` from then on. Returns how
  /// many it has taken; flush_error() says why not all.
  std::uint32_t post_free(const ReceiveQueue& queue, std::uint32_t queue_id,
                          std::uint32_t count) noexcept;
  /// The buffer whose receive ends with a completion of this number (its wr_id without the tag).
  /// Nothing for a receive that was dropped with its queue: the buffer is elsewhere by now.
  std::optional<std::uint32_t> ended(std::uint64_t number) const noexcept;
  /// Buffers posted to a queue, or lent from it.
  std::uint32_t held_by(std::uint32_t queue_id) const noexcept;
  /// The queue that a posted or lent buffer belongs to.
  std::uint32_t queue_of(std::uint32_t slot) const noexcept { return queue_of_[slot]; }

  const std::byte* frame(std::uint32_t slot) const noexcept {
    return memory_ + std::size_t{slot} * stride_ + kFrameAt;
  }
  void lend(std::uint32_t slot) noexcept { lent_[slot] = 1; }
  bool is_lent(std::uint32_t slot) const noexcept { return slot < count() && lent_[slot] != 0; }
  /// Ends a loan, or takes a buffer whose receive came to nothing: adds it to the batch that goes
  /// to `queue`, which is posted when full or when another queue's turn comes.
  void repost(std::uint32_t slot, const ReceiveQueue& queue, std::uint32_t queue_id) noexcept;
  /// Ends a loan of a buffer whose queue is gone or in error.
  void free(std::uint32_t slot) noexcept;
  /// Posts the batch. 0 or an errno: the buffers that were refused (at the end of the batch) are
  /// free then.
  int flush() noexcept;
  /// The errno of a flush() that failed since this was cleared; 0: none.
  int flush_error() const noexcept { return flush_error_; }
  void clear_flush_error() noexcept { flush_error_ = 0; }
  /// The queue is destroyed: what was posted to it is free. Lent buffers are freed when given back.
  void queue_gone(std::uint32_t queue_id) noexcept;

  const Arena& arena() const noexcept { return arena_; }

  static constexpr std::uint32_t kNoQueue = ~std::uint32_t{0};

 private:
  // The frame begins at a cache line; the GRH lies before it.
  static constexpr std::uint32_t kFrameAt = 64;
  ReceiveSlots(std::uint32_t count, std::uint32_t frame_bytes);

  std::uint32_t frame_bytes_;
  std::size_t stride_;
  Arena arena_;
  std::byte* memory_ = nullptr;  ///< The arena's.
  MemoryRegion region_;
  std::vector<std::uint32_t> queue_of_;
  std::vector<std::uint8_t> lent_;
  std::vector<std::uint32_t> turn_;  ///< How often the buffer was posted, modulo 2^32.
  std::vector<std::uint32_t> free_;
  // The batch.
  ReceiveQueue batch_queue_;
  std::uint32_t batch_queue_id_ = kNoQueue;
  std::uint32_t batched_ = 0;
  int flush_error_ = 0;
  std::vector<ibv_recv_wr> requests_;
  std::vector<ibv_sge> places_;
};

}  // namespace selmcast::verbs
