#include "multicast/frame_port.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/wire.h"

namespace selmcast {

namespace {
constexpr std::uint32_t kDataSlotsMax = 32;
constexpr std::uint32_t kControlFrameMax = kFrameHeaderBytes + kControlPayloadMax;
}  // namespace

Result<std::unique_ptr<FramePort>> FramePort::make(Transport& transport,
                                                   const PortSettings& settings) {
  SELMCAST_CHECK(settings.chunk_frames > 0, "a chunk holds at least one frame");
  SELMCAST_CHECK(transport.capabilities().send_depth >= 4, "too few send requests in flight");
  if (settings.frame_bytes < kFrameBytesLeast) {
    const auto has = std::to_string(settings.frame_bytes);  // set-up: an error
    const auto needs = std::to_string(kFrameBytesLeast);    // set-up: an error
    return bad_input("frames of " + has +
                     " bytes are too small for what ranks tell one another, which takes " + needs +
                     "; use a larger MTU");
  }
  std::unique_ptr<FramePort> port(new FramePort(transport, settings));  // set-up: made once
  auto arena =
      Arena::map(std::size_t{port->data_slots_} * settings.chunk_frames * kFrameHeaderBytes +
                 std::size_t{port->control_slots_} * kControlFrameMax);
  if (!arena) return Error{arena.error().kind, "frame headers: " + arena.error().message};
  port->arena_ = std::move(arena).value();
  auto region = transport.register_memory(port->arena_.bytes());
  if (!region) return std::move(region).error();
  port->arena_region_ = std::move(region).value();
  if (port->reads_ != nullptr) {
    auto tags = port->reads_->register_readable(std::as_bytes(std::span(port->tags_)));
    if (!tags) return std::move(tags).error();
    port->tags_region_ = std::move(tags).value();
  }
  return port;
}

FramePort::FramePort(Transport& transport, const PortSettings& settings)
    : transport_(transport),
      reads_(transport.abilities().reads),
      job_(settings.job),
      self_(settings.self),
      world_(settings.world),
      control_payload_max_(selmcast::control_payload_max(settings.frame_bytes)),
      chunk_frames_(settings.chunk_frames),
      medium_checks_(transport.capabilities().checks_payload),
      data_in_flight_(settings.streams, 0),
      tags_(settings.streams, 0) {
  const std::uint32_t depth = transport.capabilities().send_depth;
  data_slots_ = std::min(kDataSlotsMax, depth / 2);
  control_slots_ = depth - data_slots_;
  slices_.resize(  // set-up:
      std::size_t{data_slots_} * chunk_frames_ * 2 + control_slots_);
  free_data_ = FixedStack<std::uint32_t>(data_slots_);
  free_control_ = FixedStack<std::uint32_t>(control_slots_);
  for (std::uint32_t s = 0; s < data_slots_; ++s) free_data_.push(s);
  for (std::uint32_t s = 0; s < control_slots_; ++s) free_control_.push(data_slots_ + s);
  stream_of_slot_.resize(data_slots_);  // set-up:
  queue_.resize(depth);                 // set-up:
  endpoints_.resize(world_);            // set-up:
}

Result<void> FramePort::connect(Rank rank, const PeerAddress& address) {
  auto endpoint = transport_.connect(address);
  if (!endpoint) return std::move(endpoint).error();
  endpoints_[rank] = std::move(endpoint).value();
  return {};
}

void FramePort::set_tag(std::uint16_t stream, std::uint64_t tag) noexcept {
  std::array<std::byte, 8> little;
  store_le(little.data(), tag);
  std::atomic_ref(tags_[stream])
      .store(std::bit_cast<std::uint64_t>(little), std::memory_order_release);
  // The data is changed after the tag was taken away; release alone lets the change be seen first.
  if (tag == 0) std::atomic_thread_fence(std::memory_order_seq_cst);
}

SnapshotLocation FramePort::location(std::uint16_t stream, RegionId region,
                                     const std::byte* data) const noexcept {
  const auto* const tag = reinterpret_cast<const std::byte*>(&tags_[stream]);
  return {reads_->remote_memory(region, data), reads_->remote_memory(tags_region_.id(), tag)};
}

void FramePort::withdraw(Rank rank) noexcept {
  ReadInPlace* const in_place = transport_.abilities().in_place;
  if (in_place != nullptr && endpoints_[rank]) in_place->withdraw(endpoints_[rank].id());
}

void FramePort::withdraw_all() noexcept {
  if (std::exchange(withdrawn_, true)) return;
  for (Rank rank = 0; rank < world_; ++rank) withdraw(rank);
}

LocalSlice* FramePort::slices_of(std::uint32_t slot) noexcept {
  const std::size_t per_data = std::size_t{chunk_frames_} * 2;
  return slot < data_slots_ ? &slices_[slot * per_data]
                            : &slices_[data_slots_ * per_data + (slot - data_slots_)];
}

void FramePort::enqueue(Destination to, std::uint32_t slot, std::uint32_t slices,
                        std::uint32_t frame_bytes) noexcept {
  // Slots bound the queue: one entry per slot in use, and the queue holds send_depth entries.
  if (queue_size_ == queue_.size()) {
    std::move(queue_.begin() + static_cast<std::ptrdiff_t>(queue_head_), queue_.end(),
              queue_.begin());
    queue_size_ -= queue_head_;
    queue_head_ = 0;
  }
  queue_[queue_size_++] = SendRequest{to, {slices_of(slot), slices}, frame_bytes, slot};
}

bool FramePort::send_control(Rank to, FrameHeader header,
                             std::span<const std::byte> payload) noexcept {
  SELMCAST_CHECK(payload.size() <= control_payload_max_, "control payload too long");
  if (free_control_.empty()) return false;
  const std::uint32_t slot = free_control_.pop();
  header.job = job_;
  header.sender = self_;
  header.length = static_cast<std::uint16_t>(payload.size());
  std::byte* at = arena_.data() + std::size_t{data_slots_} * chunk_frames_ * kFrameHeaderBytes +
                  std::size_t{slot - data_slots_} * kControlFrameMax;
  std::copy(payload.begin(), payload.end(), at + kFrameHeaderBytes);
  encode_frame(header, payload, at);
  const auto size = static_cast<std::uint32_t>(kFrameHeaderBytes + payload.size());
  slices_of(slot)[0] = LocalSlice{at, size, arena_region_.id()};
  enqueue(destination(to), slot, 1, 0);
  counters_.control_bytes += size;
  return true;
}

bool FramePort::send_frames(Destination to, const StreamShape& shape,
                            const FrameRun& run) noexcept {
  SELMCAST_CHECK(run.count > 0 && run.count <= chunk_frames_, "a run is 1..chunk_frames frames");
  if (free_data_.empty()) return false;
  const std::uint32_t slot = free_data_.pop();
  std::byte* headers = arena_.data() + std::size_t{slot} * chunk_frames_ * kFrameHeaderBytes;
  LocalSlice* slices = slices_of(slot);
  FrameHeader header{.kind = FrameKind::data,
                     .job = job_,
                     .sender = self_,
                     .stream = run.stream,
                     .epoch = run.epoch,
                     .round = run.round,
                     .flags = run.flags};
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < run.count; ++i) {
    const std::uint32_t frame = run.first + i;
    if (run.weights != nullptr) header.weight = run.weights[frame];
    header.check = run.checks == nullptr ? 0 : run.checks[frame];
    header.offset = shape.offset_of(frame);
    header.length = static_cast<std::uint16_t>(shape.length_of(frame));
    const std::span payload{run.data + header.offset, header.length};
    std::byte* at = headers + std::size_t{i} * kFrameHeaderBytes;
    encode_frame(header, payload, at);
    slices[2 * i] = LocalSlice{at, kFrameHeaderBytes, arena_region_.id()};
    slices[2 * i + 1] = LocalSlice{payload.data(), header.length, run.region};
    bytes += kFrameHeaderBytes + header.length;
  }
  enqueue(to, slot, 2 * run.count, shape.frame_payload + kFrameHeaderBytes);
  ++data_in_flight_[run.stream];
  stream_of_slot_[slot] = run.stream;
  if ((run.flags & frame_flag::kRepair) != 0) {
    counters_.repair_bytes += bytes;
    counters_.repaired_frames += run.count;
  } else if ((run.flags & frame_flag::kPatch) != 0) {
    counters_.patch_bytes += bytes;
  } else {
    counters_.first_bytes += bytes;
  }
  return true;
}

void FramePort::flush() noexcept {
  while (queue_head_ < queue_size_ && !broken_) {
    const auto outcome =
        transport_.post_sends({queue_.data() + queue_head_, queue_size_ - queue_head_});
    queue_head_ += outcome.accepted;
    broken_ = outcome.state == PostState::broken;
    if (outcome.state == PostState::backpressure) return;
  }
  queue_head_ = queue_size_ = 0;
}

void FramePort::on_send_completion(const Completion& completion) noexcept {
  const auto slot = static_cast<std::uint32_t>(completion.user);
  if (completion.status != Status::ok) ++counters_.send_failures;
  if (slot < data_slots_) {
    free_data_.push(slot);
    --data_in_flight_[stream_of_slot_[slot]];
  } else {
    free_control_.push(slot);
  }
}

}  // namespace selmcast
