#include "transport/sim/sim_transport.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/wire.h"

namespace selmcast::detail {
namespace {

constexpr std::uint32_t kAddressMagic = 0x314D4953;  // "SIM1"
constexpr std::uint32_t kAddressBytes = 8;

Capabilities capabilities_of(const SimConfig& config, const SimLink& link) {
  Capabilities c;
  c.name = "sim";
  c.max_frame_bytes = config.max_frame_bytes;
  c.max_request_bytes = config.max_frame_bytes * config.max_request_frames;
  c.max_request_slices = 2 * config.max_request_frames;  // Header and payload of each frame.
  c.send_depth = config.send_depth;
  c.receive_buffers = config.receive_buffers;
  c.wire_overhead_bytes = config.wire_overhead_bytes;
  c.receive_window_bytes = std::min(config.inbox_bytes, link.queue_bytes) / 2;
  c.join_settle = config.join_settle;
  c.replicates_in_network = true;
  c.loses_frames = !config.lossless;
  return c;
}

}  // namespace

SimTransport::SimTransport(SimCore& core, Rank rank)
    : core_(core), rank_(rank), sends_(core.config().send_depth) {
  capabilities_ = capabilities_of(core.config(), core.port(rank).link);
  if (core.config().arrival_times) abilities_.timestamps = this;
}

SimTransport::~SimTransport() {
  memberships_.for_each([this](MembershipId, const OpenMembership& held) { leave(held); });
  for (std::size_t i = 0; i < inbox_.size(); ++i) core_.pool().release(inbox_[i].payload);
  for (const Lent& lent : lent_)
    if (lent.payload != kFree) core_.pool().release(lent.payload);
  core_.detach(rank_);
}

PeerAddress SimTransport::address() const {
  PeerAddress out;
  store_le(out.bytes.data(), kAddressMagic);
  store_le(out.bytes.data() + 4, rank_);
  out.size = kAddressBytes;
  return out;
}

Result<Region> SimTransport::register_memory(std::span<const std::byte> memory) {
  return hand_out<HandleKind::region>(*this, regions_, memory);
}

Result<Endpoint> SimTransport::connect(const PeerAddress& peer) {
  if (peer.size != kAddressBytes || load_le<std::uint32_t>(peer.bytes.data()) != kAddressMagic)
    return bad_input("sim: peer address of rank " + std::to_string(rank_) +
                     "'s peer is not one of a simulated network; check that all ranks use sim");
  const auto rank = load_le<std::uint32_t>(peer.bytes.data() + 4);
  if (rank >= core_.world())
    return bad_input("sim: peer address names rank " + std::to_string(rank) + ", but there are " +
                     std::to_string(core_.world()) + " ranks");
  auto out = hand_out<HandleKind::endpoint>(*this, endpoints_, Rank{rank});
  if (out && core_.known_lost(rank)) lost_.push(out->id());
  return out;
}

Result<Membership> SimTransport::join(GroupAddress group, JoinAs as) {
  const GroupSlot slot = core_.group_slot(group);
  auto out = hand_out<HandleKind::membership>(*this, memberships_, OpenMembership{slot, as});
  if (out && as == JoinAs::receiver) {
    if (slot >= joined_.size()) joined_.resize(std::size_t{slot} + 1);
    if (joined_[slot]++ == 0) core_.add_receiver(slot, rank_);
  }
  return out;
}

void SimTransport::leave(const OpenMembership& membership) noexcept {
  if (membership.as != JoinAs::receiver || --joined_[membership.group] > 0) return;
  core_.remove_receiver(membership.group, rank_);
}

void SimTransport::release(HandleKind kind, std::uint32_t id) noexcept {
  switch (kind) {
    case HandleKind::region:
      regions_.erase(id);
      return;
    case HandleKind::endpoint:
      endpoints_.erase(id);
      return;
    case HandleKind::membership:
      if (const auto held = memberships_.erase(id)) leave(*held);
      return;
  }
}

Status SimTransport::resolve(Destination destination, Posted& out) const noexcept {
  out.kind = destination.kind;
  if (destination.kind == Destination::Kind::endpoint) {
    const Rank* const peer = endpoints_.find(destination.id);
    if (peer == nullptr) return Status::closed;
    out.target = *peer;
    return core_.known_lost(out.target) ? Status::peer_lost : Status::ok;
  }
  const OpenMembership* const membership = memberships_.find(destination.id);
  if (membership == nullptr) return Status::closed;
  out.target = membership->group;
  return Status::ok;
}

void SimTransport::accept(const SendRequest& request) {
  Posted& posted = sends_.next();
  posted.user = request.user;
  posted.done = false;
  posted.slices.clear();
  posted.status = measure(
      request, capabilities_, [this](RegionId id) { return regions_.find(id); },
      [&](const LocalSlice& slice) { posted.slices.push_back(slice); }, posted.shape);
  if (posted.status == Status::oversize) core_.note_oversize(rank_);
  if (posted.status == Status::ok) posted.status = resolve(request.destination, posted);
  sends_.post();
}

PostOutcome SimTransport::post_sends(std::span<const SendRequest> requests) noexcept {
  if (crashed_) return {0, PostState::broken};
  PostOutcome out;
  for (; out.accepted < requests.size() && !sends_.full(); ++out.accepted) {
    accept(requests[out.accepted]);
  }
  if (!transmitting_) start_next();
  if (out.accepted < requests.size()) out.state = PostState::backpressure;
  return out;
}

// Requests that failed their checks wait for their turn too, so that completions keep the order.
void SimTransport::start_next() {
  transmitting_ = false;
  while (left_ != sends_.posted() && !transmitting_) {
    if (sends_.numbered(left_).status == Status::ok) {
      cursor_ = {};
      transmitting_ = true;
      core_.start_transmit(rank_, next_frame_bytes());
    } else {
      finish_leaving();
    }
  }
}

void SimTransport::finish_leaving() noexcept {
  sends_.numbered(left_).done = true;
  ++left_;
}

std::uint32_t SimTransport::next_frame_bytes() noexcept {
  const RequestShape& shape = sends_.numbered(left_).shape;
  return std::min(shape.frame_bytes, shape.bytes - cursor_.sent_bytes);
}

PayloadPool::Index SimTransport::gather(std::uint32_t bytes) {
  const PayloadPool::Index payload = core_.pool().acquire(bytes);
  std::byte* out = core_.pool().data(payload);
  const Posted& head = sends_.numbered(left_);
  while (bytes > 0) {
    const LocalSlice& slice = head.slices[cursor_.slice];
    const std::uint32_t take = std::min(bytes, slice.bytes - cursor_.slice_offset);
    if (take > 0) std::memcpy(out, slice.data + cursor_.slice_offset, take);
    out += take;
    bytes -= take;
    cursor_.sent_bytes += take;
    cursor_.slice_offset += take;
    if (cursor_.slice_offset == slice.bytes) {
      ++cursor_.slice;
      cursor_.slice_offset = 0;
    }
  }
  return payload;
}

void SimTransport::on_transmitted() {
  if (crashed_) return;
  const std::uint32_t bytes = next_frame_bytes();
  const PayloadPool::Index payload = gather(bytes);
  const Posted& head = sends_.numbered(left_);
  ++counters_.sent_frames;
  counters_.sent_bytes += bytes;
  if (head.kind == Destination::Kind::endpoint)
    core_.forward(rank_, head.target, payload);
  else
    core_.forward_group(rank_, head.target, payload);
  core_.pool().release(payload);
  if (cursor_.sent_bytes < head.shape.bytes) {
    core_.start_transmit(rank_, next_frame_bytes());
    return;
  }
  finish_leaving();
  start_next();
}

void SimTransport::on_delivery(PayloadPool::Index payload, GroupSlot group) {
  const std::uint64_t room =
      std::uint64_t{core_.pool().bytes(payload)} + core_.config().wire_overhead_bytes;
  const bool fits = core_.config().lossless || inbox_bytes_ + room <= core_.config().inbox_bytes;
  // The host filters as well as the switch: a frame may be on its way when its group is left.
  if (!fits || !receives(group)) {
    if (!fits) ++counters_.dropped_frames;
    core_.pool().release(payload);
    return;
  }
  inbox_bytes_ += room;
  inbox_.push({payload, group, room, core_.now()});
}

void SimTransport::on_peer_lost(Rank rank) {
  if (crashed_) return;
  endpoints_.for_each([&](EndpointId id, Rank peer) {
    if (peer == rank) lost_.push(id);
  });
}

void SimTransport::crash() noexcept {
  crashed_ = true;
}

PostOutcome SimTransport::post_receives(std::span<const ReceiveRequest> requests) noexcept {
  for (const ReceiveRequest& request : requests) {
    SELMCAST_CHECK(request.token < lent_.size() && lent_[request.token].payload != kFree,
                   "a receive buffer was given back that was not lent");
    core_.pool().release(std::exchange(lent_[request.token], Lent{}).payload);
    free_tokens_.push_back(request.token);
  }
  return {static_cast<std::uint32_t>(requests.size()), PostState::accepted};
}

Completion SimTransport::lend(const Arrived& arrived) noexcept {
  if (free_tokens_.empty()) {
    free_tokens_.push_back(static_cast<std::uint32_t>(lent_.size()));
    lent_.emplace_back();
  }
  const std::uint32_t token = free_tokens_.back();
  const std::uint32_t bytes = core_.pool().bytes(arrived.payload);
  free_tokens_.pop_back();
  lent_[token] = {arrived.payload, arrived.at};
  ++counters_.received_frames;
  counters_.received_bytes += bytes;
  std::byte* const data = core_.pool().data(arrived.payload);
  return {Completion::Kind::receive, Status::ok, token, bytes, bytes, data, 0};
}

std::uint64_t SimTransport::arrival_ns(const Completion& receive) const noexcept {
  // Clocks of different ranks have different zeros: nobody may compare them.
  const auto zero = std::chrono::seconds(1 + 1000 * std::uint64_t{rank_});
  return static_cast<std::uint64_t>(
      (lent_[receive.token].arrived.time_since_epoch() + zero).count());
}

std::size_t SimTransport::poll_frames(std::span<Completion> out) noexcept {
  std::size_t n = 0;
  while (n < out.size() && !inbox_.empty()) {
    const bool token_left = !free_tokens_.empty() || lent_.size() < capabilities_.receive_buffers;
    if (!token_left) break;
    const Arrived arrived = inbox_.front();
    inbox_.pop();
    inbox_bytes_ -= arrived.room;
    if (receives(arrived.group)) {
      out[n++] = lend(arrived);
    } else {
      core_.pool().release(arrived.payload);
    }
  }
  return n;
}

std::size_t SimTransport::poll(std::span<Completion> out) noexcept {
  if (crashed_) return 0;
  std::size_t n = 0;
  for (; n < out.size() && !lost_.empty(); lost_.pop()) {
    const EndpointId id = lost_.front();
    if (endpoints_.find(id) == nullptr) continue;
    out[n++] = Completion{Completion::Kind::lost, Status::peer_lost, 0, 0, 0, nullptr, id};
  }
  n += sends_.complete(out.subspan(n), [](const Posted& posted) { return posted.done; });
  return n + poll_frames(out.subspan(n));
}

std::string SimTransport::last_error() const {
  if (!crashed_) return {};
  return "sim: rank " + std::to_string(rank_) + " was crashed by the simulation";
}

}  // namespace selmcast::detail
