#include "multicast/landing_queue.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace selmcast {

LandingQueue::LandingQueue(PlacedReceives& receives, std::uint32_t job, std::uint32_t tag,
                           const StreamShape& shape)
    : receives_(receives),
      job_(job),
      tag_(tag),
      payload_(shape.frame_payload),
      marks_(shape.frames(), kFree) {
  const std::uint32_t depth = receives.placed_depth();
  SELMCAST_CHECK(tag != 0 && depth > kSpare && depth < 0xFFFF - kHeld, "a queue of landings");
  posted_.resize(depth);                           // set-up:
  stash_.resize(std::size_t{depth} * payload_);    // set-up:
  free_stash_ = FixedStack<std::uint32_t>(depth);  // set-up:
  for (std::uint32_t s = depth; s > 0; --s) free_stash_.push(s - 1);
}

void LandingQueue::open(const LandingRound& round) noexcept {
  SELMCAST_CHECK(!is_open() && named_ == 0, "the last round is closed");
  SELMCAST_CHECK(round.shape.frames() <= marks_.size() && round.shape.frame_payload == payload_,
                 "a round of at most the stream");
  round_ = round;
  without_row_ = false;
  frames_ = round.shape.frames();
  expected_ = 0;
  std::fill_n(marks_.begin(), frames_, kFree);
  refill();
}

void LandingQueue::open_without_row() noexcept {
  SELMCAST_CHECK(!is_open(), "the last round is closed");
  without_row_ = true;
  refill();
}

bool LandingQueue::is_of_round(const FrameHeader& header) const noexcept {
  return is_open() && header.kind == FrameKind::data && header.sender == round_.sender &&
         header.epoch == round_.epoch && header.round == round_.round &&
         header.stream == round_.stream && header.offset < round_.shape.bytes &&
         header.offset % payload_ == 0;
}

std::uint32_t LandingQueue::pop(std::uint32_t number) noexcept {
  // Receives that an error of the device ended without a frame are missing in the row.
  while (count_ > 0) {
    const Posted front = at(0);
    head_ = (head_ + 1) % static_cast<std::uint32_t>(posted_.size());
    --count_;
    if (front.number == number) return front.frame;
    if (front.frame != kNone) unname(front.frame);
  }
  return kNone;
}

void LandingQueue::copy(std::byte* to, std::span<const std::byte> from) noexcept {
  std::memcpy(to, from.data(), from.size());
  counters_.copied_bytes += from.size();
}

void LandingQueue::unname(std::uint32_t frame) noexcept {
  Mark& mark = marks_[frame];
  --named_;
  if (mark < kHeld) {
    mark = kFree;
    return;
  }
  const std::uint32_t slot = mark - std::uint32_t{kHeld};
  copy(place(frame), {stash_.data() + std::size_t{slot} * payload_, round_.shape.length_of(frame)});
  free_stash_.push(slot);
  mark = kFilled;
}

ParsedFrame LandingQueue::arrived(const Completion& completion) noexcept {
  const std::uint32_t named = pop(static_cast<std::uint32_t>(completion.user));
  const std::span<const std::byte> landed{completion.landed, completion.landed_bytes};
  ParsedFrame out;
  bool in_place = false;
  if (named != kNone && completion.bytes == kFrameHeaderBytes + landed.size()) {
    const FrameHeader header = peek_header(completion.data);
    in_place = is_of_round(header) && header.offset == round_.shape.offset_of(named);
  }
  if (in_place) {
    unname(named);
    out = parse_frame(completion.data, landed, job_);
  } else {
    if (!landed.empty()) copy(completion.room, landed);
    if (named != kNone) {
      ++counters_.misplaced_frames;
      unname(named);
    }
    out = parse_frame({completion.data, completion.bytes}, job_);
  }
  if (out.error == FrameError::none && is_of_round(out.header)) {
    expected_ = std::max(expected_, round_.shape.frame_at(out.header.offset) + 1);
  }
  return out;
}

void LandingQueue::put(std::uint32_t frame, std::span<const std::byte> payload) noexcept {
  SELMCAST_CHECK(is_open() && frame < frames_ && payload.size() == round_.shape.length_of(frame),
                 "a whole frame of the round");
  Mark& mark = marks_[frame];
  if (payload.data() == place(frame)) {
    ++counters_.landed_frames;
    counters_.landed_bytes += payload.size();
    mark = kFilled;
  } else if (mark == kNamed) {
    // A frame is fresh once, and each is named by a receive of its own: there is a slot for it.
    const std::uint32_t slot = free_stash_.pop();
    copy(stash_.data() + std::size_t{slot} * payload_, payload);
    mark = static_cast<Mark>(kHeld + slot);
  } else {
    copy(place(frame), payload);
    mark = kFilled;
  }
}

std::uint32_t LandingQueue::guess(std::uint32_t ahead) const noexcept {
  const std::uint32_t frame = expected_ + ahead;
  const bool named = is_open() && round_.guesses && frame < frames_ && marks_[frame] == kFree;
  return named ? frame : kNone;
}

std::uint32_t LandingQueue::receives_due() const noexcept {
  const auto depth = static_cast<std::uint32_t>(posted_.size());
  if (without_row_) return depth;
  return is_open() ? std::min(frames_ - expected_ + kSpare, depth) : kSpare;
}

void LandingQueue::refill() noexcept {
  notice_drops();
  std::array<LandingRequest, 32> requests;
  for (;;) {
    const std::uint32_t most = receives_due();
    std::uint32_t batch = 0;
    for (; batch < requests.size() && count_ < most; ++batch) {
      const std::uint32_t frame = guess(count_);
      LandingRequest& request = requests[batch];
      request = {.header_bytes = kFrameHeaderBytes};
      request.user = (std::uint64_t{tag_} << 32U) | ++number_;
      if (frame != kNone) {
        request.place = place(frame);
        request.bytes = round_.shape.length_of(frame);
        request.region = round_.region;
        marks_[frame] = kNamed;
        ++named_;
      }
      at(count_++) = {frame, number_};
    }
    if (batch == 0) return;
    const auto taken = receives_.post_placed(membership_, {requests.data(), batch}).accepted;
    for (std::uint32_t i = taken; i < batch; ++i) {
      const Posted& last = at(--count_);
      if (last.frame != kNone) unname(last.frame);
    }
    if (taken < batch) return;
  }
}

void LandingQueue::forget_posted() noexcept {
  for (; count_ > 0; --count_) {
    if (at(count_ - 1).frame != kNone) unname(at(count_ - 1).frame);
  }
}

void LandingQueue::notice_drops() noexcept {
  const std::uint32_t drops = receives_.drops(membership_);
  if (drops == drops_) return;
  drops_ = drops;
  forget_posted();
}

bool LandingQueue::close(bool whole) noexcept {
  if (!is_open()) return true;
  notice_drops();
  if (named_ > 0 || count_ > 2 * kSpare) {
    if (!receives_.take_back(membership_)) return false;  // failure: after a loss
    notice_drops();
  }
  SELMCAST_CHECK(named_ == 0 || !whole, "no posted receive names a row that is used");
  round_.row = nullptr;
  refill();
  return true;
}

}  // namespace selmcast
