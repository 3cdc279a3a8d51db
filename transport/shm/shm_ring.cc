#include "transport/shm/shm_ring.h"

#include <algorithm>

#include "base/check.h"

namespace selmcast::shm {
namespace {

/// Whether the frames that a record in place speaks of can be cut out of it: each has a head and a
/// body, all of one size but the last, which may be shorter.
bool fits_together(const RecordHeader& record, const PlaceHeader& place) noexcept {
  if (place.head_bytes == 0 || record.frame_bytes <= place.head_bytes) return false;
  const std::uint64_t heads = record.bytes - sizeof(PlaceHeader);
  const std::uint64_t body = record.frame_bytes - place.head_bytes;
  const std::uint64_t most = heads / place.head_bytes * body;
  return heads % place.head_bytes == 0 && place.body_bytes <= most &&
         place.body_bytes > most - std::min(body, most) && heads + most <= kRequestMax;
}

}  // namespace

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

std::byte* RingProducer::begin(std::uint32_t bytes, std::uint32_t frame_bytes, std::uint32_t group,
                               std::uint32_t kind) noexcept {
  const std::uint64_t record = record_bytes(bytes);
  std::uint64_t at = tail_ & (capacity_ - 1);
  next_ = tail_ + record;
  if (record > capacity_ - at) {
    const RecordHeader skip{0, 0, 0, RecordHeader::kPadding, 0};
    std::memcpy(memory_ + at, &skip, sizeof skip);
    next_ += capacity_ - at;
    at = 0;
  }
  const RecordHeader header{bytes, frame_bytes, group, kind, 0};
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
  if (next.kind == RecordHeader::kPadding) {
    const std::uint64_t to_end = capacity_ - (read_ & (capacity_ - 1));
    // A producer publishes the padding together with the record behind it.
    if (to_end == capacity_ || unread() <= to_end) return broken();
    read_ += to_end;
    next = header();
  }
  const std::uint64_t size = record_bytes(next.bytes);
  const bool fits = next.bytes <= kRequestMax && size <= unread() &&
                    size <= capacity_ - (read_ & (capacity_ - 1)) && next.frame_bytes <= kFrameMax;
  if (!fits) return broken();
  out.data = memory_ + (read_ & (capacity_ - 1)) + sizeof(RecordHeader);
  out.bytes = next.bytes;
  out.frame_bytes = next.frame_bytes;
  out.place = {};
  if (next.kind == RecordHeader::kInPlace && next.bytes > sizeof(PlaceHeader)) {
    out.place = header<PlaceHeader>(sizeof(RecordHeader));
    if (!fits_together(next, out.place)) return broken();
    out.data += sizeof(PlaceHeader);
    out.bytes -= static_cast<std::uint32_t>(sizeof(PlaceHeader));
  } else if (next.kind != RecordHeader::kPlain || next.frame_bytes > next.bytes ||
             (next.frame_bytes > 0) != (next.bytes > 0)) {
    return broken();
  }
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
  Released out{ring, false, 0, slots_[token].end};
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
