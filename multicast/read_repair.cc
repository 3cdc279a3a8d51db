#include "multicast/read_repair.h"

#include <algorithm>

#include "base/wire.h"

namespace selmcast {

Result<std::unique_ptr<ReadRepair>> ReadRepair::make(FramePort& port, std::uint32_t frame_payload) {
  RemoteReads* const reads = port.transport().abilities().reads;
  if (reads == nullptr) return std::unique_ptr<ReadRepair>();
  std::unique_ptr<ReadRepair> out(new ReadRepair(port, *reads, frame_payload));  // set-up:
  auto arena = Arena::map(kBatches * out->batch_bytes());
  if (!arena) return Error{arena.error().kind, "reading from peers: " + arena.error().message};
  out->arena_ = std::move(arena).value();
  auto region = reads->register_target(out->arena_.bytes());
  if (!region) return std::move(region).error();
  out->region_ = std::move(region).value();
  return out;
}

ReadRepair::ReadRepair(FramePort& port, RemoteReads& reads, std::uint32_t frame_payload)
    : port_(port), reads_(reads), frame_payload_(frame_payload) {}

bool ReadRepair::post(std::size_t at, const RemoteMemory& from, std::byte* into,
                      std::uint32_t bytes) noexcept {
  const ReadRequest request{.peer = port_.destination(batches_[at].what.from).id,
                            .from = from,
                            .into = into,
                            .region = region_.id(),
                            .bytes = bytes,
                            .user = at};
  if (reads_.post_reads({&request, 1}).accepted == 0) return false;
  ++batches_[at].pending;
  return true;
}

std::uint32_t ReadRepair::fetch(const RepairRead& what, std::span<const NackRange> gaps) noexcept {
  const auto found = std::find_if(batches_.begin(), batches_.end(),
                                  [](const Batch& b) { return b.state == Batch::State::free; });
  if (found == batches_.end()) return 0;
  const auto at = static_cast<std::size_t>(found - batches_.begin());
  Batch& batch = *found;
  batch.what = what;
  batch.frames = batch.pending = 0;
  batch.failed = false;
  batch.state = Batch::State::reading;
  std::byte* const memory = memory_of(at);
  std::byte* into = memory + kTagBytes;
  for (const NackRange& gap : gaps.first(std::min<std::size_t>(gaps.size(), kBatchReads))) {
    const std::uint32_t count = std::min(gap.count, kBatchFrames - batch.frames);
    if (count == 0) break;
    const std::uint64_t first = what.shape.offset_of(gap.first);
    const std::uint64_t end = std::min(what.shape.offset_of(gap.first + count), what.shape.bytes);
    RemoteMemory from = what.location.data;
    from.address += first;
    // The last frame of a stream may be short; it is also the last of its batch.
    if (!post(at, from, into, static_cast<std::uint32_t>(end - first))) break;
    for (std::uint32_t f = 0; f < count; ++f) batch.frame[batch.frames++] = gap.first + f;
    into += std::size_t{count} * frame_payload_;
  }
  // Without a tag nothing of it counts.
  if (batch.frames > 0 && !post(at, what.location.tag, memory, 8)) batch.failed = true;
  if (batch.pending == 0) batch.state = Batch::State::free;
  return batch.failed ? 0 : batch.frames;
}

void ReadRepair::on_completion(const Completion& completion) noexcept {
  const auto at = static_cast<std::size_t>(completion.user);
  Batch& batch = batches_[at];
  batch.failed = batch.failed || completion.status != Status::ok;
  if (--batch.pending == 0) finish(at);
}

void ReadRepair::finish(std::size_t at) noexcept {
  Batch& batch = batches_[at];
  const bool ours =
      load_le<std::uint64_t>(memory_of(at)) == round_tag(batch.what.epoch, batch.what.round);
  if (batch.failed || !ours) {
    ++failed_;
    batch.state = Batch::State::free;
    return;
  }
  batch.state = Batch::State::whole;
}

ParsedFrame ReadRepair::frame_of(Batch& batch, std::uint32_t index) noexcept {
  const RepairRead& what = batch.what;
  const std::uint32_t frame = batch.frame[index];
  const auto at = static_cast<std::size_t>(&batch - batches_.data());
  ParsedFrame out;
  out.header = FrameHeader{.kind = FrameKind::data,
                           .sender = what.from,
                           .stream = what.stream,
                           .epoch = what.epoch,
                           .round = what.round,
                           .offset = what.shape.offset_of(frame),
                           .length = static_cast<std::uint16_t>(what.shape.length_of(frame)),
                           .flags = frame_flag::kRepair | frame_flag::kRead};
  out.payload = {memory_of(at) + kTagBytes + std::size_t{index} * frame_payload_,
                 out.header.length};
  // The reading was checked by its medium or not at all; the digest tells either way.
  if (!port_.medium_checks()) out.header.check = payload_check(out.payload);
  return out;
}

}  // namespace selmcast
