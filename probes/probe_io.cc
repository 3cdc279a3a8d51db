#include "probes/probe_io.h"

#include <algorithm>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kRequestBytesMax = 65'000;
/// Few, so that acknowledgements do not wait long behind data that is posted and not yet sent.
constexpr std::uint32_t kDataSlotsMax = 8;
/// Stands for the own rank, which has no endpoint.
constexpr EndpointId kNoEndpoint = ~EndpointId{0};

}  // namespace

Result<std::unique_ptr<ProbeIo>> ProbeIo::create(Transport& transport,
                                                 std::vector<EndpointId> peers, Rank self,
                                                 std::uint32_t job) {
  const Capabilities& caps = transport.capabilities();
  if (caps.max_frame_bytes < kProbeHeaderBytes || caps.send_depth < 2) {
    return unavailable(std::string("probe: transport ") + caps.name +
                       " is too small: it needs frames of 40 bytes and a send depth of 2");
  }
  std::unique_ptr<ProbeIo> io(new ProbeIo(transport, std::move(peers), self, job));
  auto arena = Arena::map(std::size_t{io->data_slots_} * io->request_frames_ * io->frame_bytes_ +
                          std::size_t{kControlSlots} * kProbeHeaderBytes);
  if (!arena) return Error{arena.error().kind, "probe: " + arena.error().message};
  io->arena_ = std::move(arena).value();
  auto region = transport.register_memory(io->arena_.bytes());
  if (!region) return std::move(region).error();
  io->region_ = std::move(region).value();
  return io;
}

ProbeIo::ProbeIo(Transport& transport, std::vector<EndpointId> peers, Rank self, std::uint32_t job)
    : transport_(transport),
      timestamps_(transport.abilities().timestamps),
      peers_(std::move(peers)),
      self_(self),
      job_(job) {
  const Capabilities& caps = transport.capabilities();
  peers_[self_] = kNoEndpoint;
  frame_bytes_ = std::min(caps.max_frame_bytes, kRequestBytesMax);
  const std::uint32_t request_bytes = std::min(caps.max_request_bytes, kRequestBytesMax);
  request_frames_ = std::max(1U, request_bytes / frame_bytes_);
  data_slots_ = std::min(kDataSlotsMax, caps.send_depth / 2);
  free_data_ = FixedStack<std::uint32_t>(data_slots_);
  free_control_ = FixedStack<std::uint32_t>(kControlSlots);
  for (std::uint32_t s = 0; s < data_slots_; ++s) free_data_.push(s);
  for (std::uint32_t s = 0; s < kControlSlots; ++s) free_control_.push(data_slots_ + s);
  returns_.reserve(std::size_t{caps.receive_buffers} + done_.size());
}

ProbeIo::~ProbeIo() {
  for (int turn = 0; turn < 50 && in_flight_ > 0; ++turn) {
    poll([](const ProbePacket&, std::uint64_t) {});
    if (in_flight_ > 0) transport_.wait(std::chrono::milliseconds(1));
  }
}

std::uint64_t ProbeIo::wire_bytes(std::uint64_t frames) const noexcept {
  return frames * (std::uint64_t{frame_bytes_} + capabilities().wire_overhead_bytes);
}

std::uint64_t ProbeIo::control_wire_bytes(std::uint64_t packets) const noexcept {
  return packets * (std::uint64_t{kProbeHeaderBytes} + capabilities().wire_overhead_bytes);
}

std::span<std::byte> ProbeIo::slot_memory(std::uint32_t slot) noexcept {
  const std::size_t data_bytes = std::size_t{request_frames_} * frame_bytes_;
  if (slot < data_slots_) return arena_.bytes().subspan(slot * data_bytes, data_bytes);
  return arena_.bytes().subspan(
      data_slots_ * data_bytes + std::size_t{slot - data_slots_} * kProbeHeaderBytes,
      kProbeHeaderBytes);
}

bool ProbeIo::post(Rank to, std::uint32_t slot, std::uint32_t bytes) noexcept {
  const LocalSlice slice{slot_memory(slot).data(), bytes, region_.id()};
  const SendRequest request{.destination = {Destination::Kind::endpoint, peers_[to]},
                            .slices = {&slice, 1},
                            .frame_bytes = std::min(bytes, frame_bytes_),
                            .user = slot};
  const PostOutcome outcome = transport_.post_sends({&request, 1});
  broken_ = broken_ || outcome.state == PostState::broken;
  if (outcome.accepted == 0) {
    (slot < data_slots_ ? free_data_ : free_control_).push(slot);
    return false;
  }
  ++in_flight_;
  return true;
}

bool ProbeIo::send_data(Rank to, ProbePacket packet, std::uint32_t frames) noexcept {
  SELMCAST_CHECK(frames >= 1 && frames <= request_frames_, "frames of one probe request");
  if (free_data_.empty()) return false;
  const std::uint32_t slot = free_data_.pop();
  packet.job = job_;
  packet.sender = self_;
  for (std::uint32_t i = 0; i < frames; ++i, ++packet.sequence) {
    encode_probe(packet, slot_memory(slot).subspan(std::size_t{i} * frame_bytes_, frame_bytes_));
  }
  return post(to, slot, frames * frame_bytes_);
}

bool ProbeIo::send_control(Rank to, ProbePacket packet) noexcept {
  if (free_control_.empty()) return false;
  const std::uint32_t slot = free_control_.pop();
  packet.job = job_;
  packet.sender = self_;
  encode_probe(packet, slot_memory(slot));
  return post(to, slot, kProbeHeaderBytes);
}

void ProbeIo::complete(const Completion& completion) noexcept {
  if (completion.kind == Completion::Kind::send) {
    const auto slot = static_cast<std::uint32_t>(completion.user);
    (slot < data_slots_ ? free_data_ : free_control_).push(slot);
    --in_flight_;
  } else if (completion.kind == Completion::Kind::lost && !lost_) {
    const auto at = std::find(peers_.begin(), peers_.end(), completion.user);
    if (at != peers_.end()) lost_ = static_cast<Rank>(at - peers_.begin());
  }
}

void ProbeIo::give_back() noexcept {
  const auto outcome = transport_.post_receives(returns_);
  returns_.erase(returns_.begin(), returns_.begin() + outcome.accepted);
}

}  // namespace selmcast
