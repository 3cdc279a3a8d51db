// A byte ring of variable-size records with one producer and one consumer, after Lamport ("Proving
// the correctness of multiprocess programs", 1977); both ends cache the other's index. Pure: it
// works on any memory, so that sanitizers and fuzzers see it without processes.
//
// A record is a RecordHeader and its bytes, contiguous, aligned to 64; a record that does not fit
// before the ring's end is preceded by a padding record.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transport/shm/shm_layout.h"

namespace selmcast::shm {

/// 24 bytes, so that behind a 40-byte frame header the first payload starts on a cache line.
struct RecordHeader {
  std::uint32_t bytes = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t group = 0;  ///< Index + 1; 0 for a request to one endpoint.
  std::uint32_t kind = 0;
  std::uint64_t reserved = 0;

  static constexpr std::uint32_t kPlain = 0, kPadding = 1;  ///< Padding: skip to the ring's end.
  static constexpr std::uint32_t kInPlace = 2;  ///< A PlaceHeader, then the head of each frame.
};
static_assert(sizeof(RecordHeader) == 24);

/// Where the frames of a record lie behind their heads: in memory that their sender exports.
struct PlaceHeader {
  std::uint64_t offset = 0;
  std::uint32_t slot = 0;        ///< Of SegmentHeader::exports.
  std::uint32_t head_bytes = 0;  ///< Of each frame, in the record.
  std::uint32_t body_bytes = 0;  ///< Of all frames together, there.
  std::uint32_t reserved = 0;
};
static_assert(sizeof(PlaceHeader) == 24);

constexpr std::uint64_t record_bytes(std::uint32_t payload) noexcept {
  return round_up(sizeof(RecordHeader) + payload, kLine);
}
static_assert(2 * record_bytes(kRequestMax) - kLine <= kRingBytesMin);

/// The sending end. One thread. `bytes` of every call is at most kRequestMax.
class RingProducer {
 public:
  RingProducer() = default;
  /// Continues where the ring's last producer stopped. Check corrupt() afterwards.
  RingProducer(RingControl* control, std::byte* memory, std::uint32_t capacity) noexcept;

  /// The consumer's index makes no sense: it broke the protocol, the ring is useless.
  bool corrupt() const noexcept { return corrupt_; }
  /// True if a request of `bytes` fits now.
  bool has_room(std::uint32_t bytes) noexcept {
    if (free_bytes() >= needed(bytes)) return true;
    // Acquire: pairs with the consumer's store of head, whose reads of the freed bytes are over.
    refresh(control_->head.load(std::memory_order_acquire));
    return free_bytes() >= needed(bytes);
  }
  /// As has_room(), for a producer that announced that it is about to sleep; asks the consumer for
  /// a ring of the bell when there is room.
  bool has_room_before_sleep(std::uint32_t bytes) noexcept {
    // seq_cst: after the announcement and before the load of head, see room_wanted in shm_layout.h.
    // An earlier request may have been answered while this producer was still awake.
    control_->room_wanted.store(1, std::memory_order_seq_cst);
    refresh(control_->head.load(std::memory_order_seq_cst));
    return corrupt_ || free_bytes() >= needed(bytes);
  }
  /// Where to put the request's bytes. Needs has_room(bytes).
  std::byte* begin(std::uint32_t bytes, std::uint32_t frame_bytes, std::uint32_t group,
                   std::uint32_t kind = RecordHeader::kPlain) noexcept;
  /// Publishes what begin() prepared.
  void commit() noexcept {
    tail_ = next_;
    // seq_cst: pairs with the consumer's loads of tail, acquire in take() and seq_cst before sleep.
    control_->tail.store(tail_, std::memory_order_seq_cst);
  }
  /// Memory that the records so far lie in may change from now on.
  void withdraw() noexcept {
    control_->withdrawn.store(tail_, std::memory_order_seq_cst);
    // See `withdrawn` in shm_layout.h.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  std::uint64_t free_bytes() const noexcept { return corrupt_ ? 0 : capacity_ - (tail_ - head_); }
  std::uint64_t needed(std::uint32_t bytes) const noexcept {
    const std::uint64_t record = record_bytes(bytes);
    const std::uint64_t to_end = capacity_ - (tail_ & (capacity_ - 1));
    return record <= to_end ? record : to_end + record;
  }
  void refresh(std::uint64_t head) noexcept;

  RingControl* control_ = nullptr;
  std::byte* memory_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t tail_ = 0;  ///< Own copy: the shared one could be tampered with.
  std::uint64_t next_ = 0;  ///< Tail once begin()'s record is committed.
  std::uint64_t head_ = 0;
  bool corrupt_ = false;
};

/// A record that the consumer lends out.
struct Record {
  const std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t frame_bytes = 0;
  std::uint32_t group = 0;
  std::uint64_t end = 0;  ///< Position to release the ring up to.
  /// With head_bytes not 0: `data` has the frames' heads only, and `place` is not checked yet
  /// against what its sender exports.
  PlaceHeader place;
};

/// The receiving end. One thread. Survives any content of control and memory.
class RingConsumer {
 public:
  enum class Take : std::uint8_t { none, record, corrupt };

  RingConsumer() = default;
  RingConsumer(RingControl* control, const std::byte* memory, std::uint32_t capacity) noexcept
      : control_(control), memory_(memory), capacity_(capacity) {}

  /// The next record, in order. After `corrupt` it stays corrupt.
  Take take(Record& out) noexcept;
  /// Nothing to take: what poll() would find now.
  bool empty() const noexcept {
    // Acquire: pairs with the producer's store of tail.
    return corrupt_ || read_ == control_->tail.load(std::memory_order_acquire);
  }
  /// As empty(), for a consumer that announced that it is about to sleep.
  bool empty_before_sleep() const noexcept {
    // seq_cst: pairs with the producer's store of tail, see bell in shm_layout.h.
    return corrupt_ || read_ == control_->tail.load(std::memory_order_seq_cst);
  }
  bool corrupt() const noexcept { return corrupt_; }
  /// What was taken made no sense to the caller.
  void poison() noexcept { corrupt_ = true; }
  /// Whether the sender took back what a record in place, which ends at `end`, lies in. To be asked
  /// before and after it is read.
  bool withdrawn(std::uint64_t end) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    return control_->withdrawn.load(std::memory_order_relaxed) >= end;
  }

  /// Gives everything before `position` (an `end` of a taken record) back to the producer.
  void release_to(std::uint64_t position) noexcept {
    head_ = position;
    freed_ = true;
    // seq_cst: pairs with the producer's loads of head, acquire in has_room() and seq_cst before
    // sleep.
    control_->head.store(position, std::memory_order_seq_cst);
  }
  /// True, once, if the producer wants room and it is worth waking it: something was released since
  /// the last time, and half the ring is free or there is nothing left to take.
  bool room_wanted() noexcept {
    if (!freed_ || (read_ - head_ + unread() > capacity_ / 2 && unread() != 0)) return false;
    // Plain load first: the exchange would take the line from the producer each time.
    if (control_->room_wanted.load(std::memory_order_seq_cst) == 0) return false;
    // seq_cst: pairs with RingProducer::has_room_before_sleep().
    if (control_->room_wanted.exchange(0, std::memory_order_seq_cst) == 0) return false;
    freed_ = false;
    return true;
  }

 private:
  std::uint64_t unread() const noexcept { return tail_ - read_; }
  Take broken() noexcept {
    corrupt_ = true;
    return Take::corrupt;
  }
  /// Own copy of the header at the read position: the producer might change it after the checks.
  template <class Header = RecordHeader>
  Header header(std::size_t behind = 0) const noexcept {
    Header out;
    std::memcpy(&out, memory_ + (read_ & (capacity_ - 1)) + behind, sizeof out);
    return out;
  }

  RingControl* control_ = nullptr;
  const std::byte* memory_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t tail_ = 0;  ///< Checked copy.
  std::uint64_t head_ = 0;
  bool corrupt_ = false;
  bool freed_ = false;
};

/// Records lent out of several rings: tokens come back in any order, rings advance in their own.
/// One thread; allocates only when constructed.
class LentRecords {
 public:
  static constexpr std::uint32_t kNone = ~0U;

  LentRecords(std::uint32_t rings, std::uint32_t slots);

  bool full() const noexcept { return free_ == kNone; }
  /// A token for a record of `ring` that ends at `end`. Needs !full().
  std::uint32_t lend(std::uint32_t ring, std::uint64_t end) noexcept;

  struct Released {
    std::uint32_t ring = 0;
    bool advanced = false;
    std::uint64_t to = 0;   ///< With `advanced`: the ring is free up to here.
    std::uint64_t end = 0;  ///< Of the record itself.
  };
  /// Takes a token back. CHECKs that it is lent.
  Released give_back(std::uint32_t token) noexcept;
  /// Whether any record of `ring` is lent.
  bool any(std::uint32_t ring) const noexcept { return first_[ring] != kNone; }

 private:
  struct Slot {
    std::uint64_t end = 0;
    std::uint32_t ring = 0;
    std::uint32_t next = kNone;  ///< Next lent record of the ring, or next free slot.
    bool lent = false;
    bool returned = false;
  };
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> last_;
  std::uint32_t free_ = kNone;
};

}  // namespace selmcast::shm
