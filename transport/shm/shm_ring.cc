#include "transport/shm/shm_ring.h"

#include "base/check.h"

namespace selmcast::shm {

RingProducer::RingProducer(RingControl* control, std::byte* memory, std::uint32_t capacity) noexcept
    : control_(control), memory_(memory), capacity_(capacity) {
  // Relaxed: taking over `owner` with acquire has made the last producer's tail visible.
  tail_ = next_ = control->tail.load(std::memory_order_relaxed);
  corrupt_ = tail_ % kLine != 0;
  refresh(control->head.load(std::memory_order_acquire));
}

void RingProducer::refresh(std::uint64_t head) noexcept {
  // Unsigned: a head beyond the tail gives a huge distance.
  if (tail_ - head > capacity_ || head % kLine != 0) corrupt_ = true;
  if (!corrupt_) head_ = head;
}

std::byte* RingProducer::begin(std::uint32_t bytes, std::uint32_t frame_bytes,
                               std::uint32_t group) noexcept {
  const std::uint64_t record = record_bytes(bytes);
  std::uint64_t at = tail_ & (capacity_ - 1);
  next_ = tail_ + record;
  if (record > capacity_ - at) {
    const RecordHeader skip{0, 0, 0, 1, 0};
    std::memcpy(memory_ + at, &skip, sizeof skip);
    next_ += capacity_ - at;
    at = 0;
  }
  const RecordHeader header{bytes, frame_bytes, group, 0, 0};
  std::memcpy(memory_ + at, &header, sizeof header);
  return memory_ + at + sizeof header;
}

RingConsumer::Take RingConsumer::take(Record& out) noexcept {
  if (corrupt_) return Take::corrupt;
  if (read_ == tail_) {
    // Acquire: pairs with the producer's store of tail; the records below it are visible.
    const std::uint64_t tail = control_->tail.load(std::memory_order_acquire);
    if (tail == read_) return Take::none;
    if (tail - head_ > capacity_ || tail - head_ < read_ - head_ || tail % kLine != 0) {
      return broken();
    }
    tail_ = tail;
  }
  RecordHeader next = header();
  if (next.padding == 1) {
    const std::uint64_t to_end = capacity_ - (read_ & (capacity_ - 1));
    // A producer publishes the padding together with the record behind it.
    if (to_end == capacity_ || unread() <= to_end) return broken();
    read_ += to_end;
    next = header();
  }
  const std::uint64_t size = record_bytes(next.bytes);
  const bool fits = next.padding == 0 && next.bytes <= kRequestMax && size <= unread() &&
                    size <= capacity_ - (read_ & (capacity_ - 1));
  const bool framed = next.frame_bytes <= kFrameMax && (next.frame_bytes > 0) == (next.bytes > 0) &&
                      next.frame_bytes <= next.bytes;
  if (!fits || !framed) return broken();
  out.data = memory_ + (read_ & (capacity_ - 1)) + sizeof(RecordHeader);
  out.bytes = next.bytes;
  out.frame_bytes = next.frame_bytes;
  out.group = next.group;
  read_ += size;
  out.end = read_;
  return Take::record;
}

LentRecords::LentRecords(std::uint32_t rings, std::uint32_t slots)
    : slots_(slots), first_(rings, kNone), last_(rings, kNone) {
  for (std::uint32_t i = slots; i > 0; --i) {
    slots_[i - 1].next = free_;
    free_ = i - 1;
  }
}

std::uint32_t LentRecords::lend(std::uint32_t ring, std::uint64_t end) noexcept {
  SELMCAST_CHECK(free_ != kNone, "a free slot for the lent record");
  const std::uint32_t token = free_;
  Slot& slot = slots_[token];
  free_ = slot.next;
  slot = {end, ring, kNone, true, false};
  (first_[ring] == kNone ? first_[ring] : slots_[last_[ring]].next) = token;
  last_[ring] = token;
  return token;
}

LentRecords::Released LentRecords::give_back(std::uint32_t token) noexcept {
  SELMCAST_CHECK(token < slots_.size() && slots_[token].lent && !slots_[token].returned,
                 "post_receives() with a token that is not lent");
  const std::uint32_t ring = slots_[token].ring;
  slots_[token].returned = true;
  Released out{ring, false, 0};
  while (first_[ring] != kNone && slots_[first_[ring]].returned) {
    const std::uint32_t done = first_[ring];
    Slot& slot = slots_[done];
    out.advanced = true;
    out.to = slot.end;
    first_[ring] = slot.next;
    slot.lent = false;
    slot.next = free_;
    free_ = done;
  }
  return out;
}

}  // namespace selmcast::shm
