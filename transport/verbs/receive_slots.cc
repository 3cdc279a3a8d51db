#include "transport/verbs/receive_slots.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "transport/verbs/explain.h"

namespace selmcast::verbs {
namespace {

// A receive's number: the buffer's in the low bits, which posting of it above.
constexpr unsigned kTurnShift = 24;
constexpr std::uint64_t kSlotMask = (std::uint64_t{1} << kTurnShift) - 1;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

ReceiveSlots::ReceiveSlots(std::uint32_t count, std::uint32_t frame_bytes)
    : frame_bytes_(frame_bytes),
      stride_(round_up(kFrameAt + frame_bytes, 64)),
      queue_of_(count, kNoQueue),
      lent_(count),
      turn_(count),
      requests_(kBatch),
      places_(kBatch) {
  free_.reserve(count);                                              // set-up:
  for (std::uint32_t s = count; s > 0; --s) free_.push_back(s - 1);  // set-up: reserved
}

Result<std::unique_ptr<ReceiveSlots>> ReceiveSlots::make(ibv_pd* pd, const DevicePort& port,
                                                         std::uint32_t count,
                                                         std::uint32_t frame_bytes) {
  std::unique_ptr<ReceiveSlots> out(  // set-up:
      new ReceiveSlots(count, frame_bytes));
  auto arena = Arena::map(out->stride_ * count, {.numa_node = port.numa_node});
  if (!arena)
    return unavailable("verbs: receives on " + port.text() + ": " + arena.error().message);
  out->arena_ = std::move(arena).value();
  out->memory_ = out->arena_.data();
  const std::size_t bytes = out->arena_.size();
  // Nobody looks at a buffer before its completion, which the device writes in order.
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
  out->region_.reset(ibv_reg_mr(pd, out->memory_, bytes, access));
  if (out->region_ == nullptr) {
    return set_up_error("registering " + std::to_string(bytes) + " bytes for receives", port.text(),
                        errno);
  }
  return out;
}

std::uint32_t ReceiveSlots::post_free(const ReceiveQueue& queue, std::uint32_t queue_id,
                                      std::uint32_t count) noexcept {
  const std::size_t before = free_.size();
  count = std::min(count, static_cast<std::uint32_t>(before));
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    repost(slot, queue, queue_id);
  }
  flush();
  return static_cast<std::uint32_t>(before - free_.size());
}

std::optional<std::uint32_t> ReceiveSlots::ended(std::uint64_t number) const noexcept {
  const std::uint64_t slot = number & kSlotMask;
  if (slot >= count() || queue_of_[slot] == kNoQueue || lent_[slot] != 0 ||
      turn_[slot] != number >> kTurnShift) {
    return {};
  }
  return static_cast<std::uint32_t>(slot);
}

std::uint32_t ReceiveSlots::held_by(std::uint32_t queue_id) const noexcept {
  return static_cast<std::uint32_t>(std::count(queue_of_.begin(), queue_of_.end(), queue_id));
}

void ReceiveSlots::repost(std::uint32_t slot, const ReceiveQueue& queue,
                          std::uint32_t queue_id) noexcept {
  if (batched_ == kBatch || (batched_ > 0 && batch_queue_id_ != queue_id)) flush();
  batch_queue_ = queue;
  batch_queue_id_ = queue_id;
  lent_[slot] = 0;
  queue_of_[slot] = queue_id;
  places_[batched_] = {reinterpret_cast<std::uintptr_t>(frame(slot)) - kGrhBytes,
                       frame_bytes_ + kGrhBytes, region_->lkey};
  ibv_recv_wr& request = requests_[batched_];
  request.sg_list = &places_[batched_];
  request.num_sge = 1;
  request.wr_id = tag(Work::receive, std::uint64_t{++turn_[slot]} << kTurnShift | slot);
  request.next = nullptr;
  if (batched_ > 0) requests_[batched_ - 1].next = &request;
  ++batched_;
}

int ReceiveSlots::flush() noexcept {
  if (batched_ == 0) return 0;
  batched_ = 0;
  ibv_recv_wr* refused = nullptr;
  const int error = batch_queue_.srq != nullptr
                        ? ibv_post_srq_recv(batch_queue_.srq, requests_.data(), &refused)
                        : ibv_post_recv(batch_queue_.qp, requests_.data(), &refused);
  if (error == 0) return 0;
  flush_error_ = error;
  for (; refused != nullptr; refused = refused->next) {
    free(static_cast<std::uint32_t>(number_of(refused->wr_id) & kSlotMask));
  }
  return error;
}

void ReceiveSlots::free(std::uint32_t slot) noexcept {
  lent_[slot] = 0;
  queue_of_[slot] = kNoQueue;
  SELMCAST_CHECK(free_.size() < count(), "a buffer was freed twice");
  free_.push_back(slot);  // set-up: reserved
}

void ReceiveSlots::queue_gone(std::uint32_t queue_id) noexcept {
  if (batch_queue_id_ == queue_id) batched_ = 0;  // freed with the rest
  for (std::uint32_t s = 0; s < count(); ++s) {
    if (queue_of_[s] == queue_id && lent_[s] == 0) free(s);
  }
}

}  // namespace selmcast::verbs
