#include "transport/shm/shm_transport.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "transport/shm/shm_bell.h"
#include "transport/shm/shm_state.h"

namespace selmcast {
namespace shm {
namespace {

Capabilities shm_capabilities(std::uint32_t ring_bytes, std::uint32_t world) noexcept {
  Capabilities out;
  out.name = "shm";
  out.max_frame_bytes = kFrameMax;
  out.max_request_bytes = kRequestMax;
  out.max_request_slices = kSlicesMax;
  out.checks_payload = true;  // It never leaves memory.
  out.send_depth = kSendDepth;
  out.receive_buffers = kReceiveSlots;
  // A full ring is backpressure at its sender, for all its destinations. A sender that keeps to its
  // window leaves half of the ring free, so a peer that stopped reading stops nobody.
  out.sender_window_bytes = ring_bytes / 2;
  out.receive_window_bytes = out.sender_window_bytes * std::max(world - 1, 1U);
  return out;
}

}  // namespace

ShmTransport::ShmTransport(OwnSegment segment, std::uint32_t world)
    : segment_(std::move(segment)),
      peer_of_rank_(world, nullptr),
      lent_(world, kReceiveSlots),
      imports_(world),
      lent_in_place_(kReceiveSlots, 0) {
  capabilities_ = shm_capabilities(segment_.address.ring_bytes, world);
  abilities_.in_place = this;
  rings_.reserve(world);
  for (Rank sender = 0; sender < world; ++sender) {
    rings_.emplace_back(&segment_.control(sender), segment_.ring(sender),
                        segment_.address.ring_bytes);
  }
}

ShmTransport::~ShmTransport() {
  // A forked child must not say goodbye in its parent's name (and has no mapping to say it in).
  if (segment_.address.pid != static_cast<std::uint32_t>(::getpid())) return;
  peers_.for_each([this](EndpointId, std::unique_ptr<Peer>& peer) { disconnect(*peer); });
  // Release: peers load acquire; see shm_layout.h.
  segment_.header().state.store(OwnerState::closed, std::memory_order_release);
}

Result<Region> ShmTransport::register_memory(std::span<const std::byte> memory) {
  if (memory.data() == nullptr || memory.empty()) {
    return bad_input("shm: register_memory needs at least one byte");
  }
  return hand_out<detail::HandleKind::region>(*this, regions_,
                                              export_memory(segment_.header(), memory));
}

Result<Endpoint> ShmTransport::connect(const PeerAddress& address) {
  const auto decoded = decode_address(address);
  if (!decoded) return decoded.error();
  auto mapped = map_peer(segment_.address, *decoded);
  if (!mapped) return mapped.error();
  const std::string name = "shm: rank " + std::to_string(decoded->rank);
  if (peer_of_rank_[decoded->rank] != nullptr) return bad_input(name + " is already connected");
  if (rings_[decoded->rank].corrupt()) return failed(name + ": its ring is corrupt");

  RingControl& control = mapped->control(segment_.address.rank);
  std::uint64_t nobody = 0;
  // Acquire: pairs with the release in disconnect(), the last producer's tail is visible.
  if (!control.owner.compare_exchange_strong(nobody, segment_.address.nonce,
                                             std::memory_order_acquire)) {
    return bad_input(name + " already hears another process as rank " +
                     std::to_string(segment_.address.rank) + "; give every worker its own rank");
  }
  auto peer = std::make_unique<Peer>();
  peer->ring = RingProducer(&control, mapped->ring.data(), decoded->ring_bytes);
  peer->segment = std::move(*mapped);
  peer->address = *decoded;
  peer->rank = decoded->rank;
  if (peer->ring.corrupt()) {
    control.owner.store(0, std::memory_order_release);
    return failed(name + ": its ring is corrupt");
  }
  Peer* const known = peer.get();
  auto out = hand_out<detail::HandleKind::endpoint>(*this, peers_, std::move(peer));
  if (!out) {
    control.owner.store(0, std::memory_order_release);
    return out;
  }
  known->id = out->id();
  pidfds_.push_back({known->segment.pidfd.get(), POLLIN, 0});
  connected_.push_back(known);
  targets_.reserve(connected_.size());
  peer_of_rank_[known->rank] = known;
  uses_.for_each([known](MembershipId, GroupUse& use) { use.peers[known->rank] = {}; });
  return out;
}

Result<Membership> ShmTransport::join(GroupAddress group, JoinAs as) {
  if (group.index == ~0U) return bad_input("shm: group index 4294967295 is not allowed");
  if (as == JoinAs::receiver) {
    const auto slot = slot_for(group.index);
    if (!slot) return slot.error();
    joined_[*slot].group = group.index;
    if (++joined_[*slot].uses == 1) publish(*slot);
  }
  GroupUse use{group.index, as, std::vector<MemberCache>(peer_of_rank_.size())};
  auto out = hand_out<detail::HandleKind::membership>(*this, uses_, use);
  if (!out) leave(use);
  return out;
}

Result<std::uint32_t> ShmTransport::slot_for(std::uint32_t group) {
  std::size_t free = joined_.size();
  for (std::size_t slot = 0; slot < joined_.size(); ++slot) {
    if (joined_[slot].uses > 0 && joined_[slot].group == group) {
      return static_cast<std::uint32_t>(slot);
    }
    if (joined_[slot].uses == 0) free = std::min(free, slot);
  }
  if (free == kGroupSlots) {
    return bad_input("shm: a rank can be in " + std::to_string(kGroupSlots) +
                     " groups at once; group " + std::to_string(group) + " is one too many");
  }
  if (free == joined_.size()) joined_.emplace_back();
  return static_cast<std::uint32_t>(free);
}

void ShmTransport::publish(std::uint32_t slot) noexcept {
  SegmentHeader& header = segment_.header();
  const JoinedGroup& joined = joined_[slot];
  // Relaxed, as the next: published by group_version below.
  header.groups[slot].store(joined.uses == 0 ? 0 : joined.group + 1, std::memory_order_relaxed);
  header.groups_used.store(static_cast<std::uint32_t>(joined_.size()), std::memory_order_relaxed);
  // seq_cst: senders load it acquire in is_member() and then see the slots.
  header.group_version.fetch_add(1, std::memory_order_seq_cst);
}

void ShmTransport::leave(const GroupUse& use) noexcept {
  if (use.as == JoinAs::send_only) return;
  for (std::uint32_t slot = 0; slot < joined_.size(); ++slot) {
    JoinedGroup& joined = joined_[slot];
    if (joined.uses == 0 || joined.group != use.group) continue;
    if (--joined.uses == 0) publish(slot);
    return;
  }
}

void ShmTransport::disconnect(Peer& peer) noexcept {
  if (peer.blocked) --blocked_;
  if (peer.state == PeerState::dying) --dying_;
  const auto at = std::find(connected_.begin(), connected_.end(), &peer) - connected_.begin();
  connected_.erase(connected_.begin() + at);
  pidfds_.erase(pidfds_.begin() + at);
  peer_of_rank_[peer.rank] = nullptr;
  peer.ring.withdraw();
  // Release: pairs with the acquire of the next owner in connect().
  peer.segment.control(segment_.address.rank).owner.store(0, std::memory_order_release);
}

void ShmTransport::release(detail::HandleKind kind, std::uint32_t id) noexcept {
  switch (kind) {
    case detail::HandleKind::region:
      regions_.erase(id);
      return;
    case detail::HandleKind::endpoint:
      if (const auto peer = peers_.erase(id)) disconnect(**peer);
      return;
    case detail::HandleKind::membership:
      if (const auto use = uses_.erase(id)) leave(*use);
      return;
  }
}

std::string ShmTransport::last_error() const {
  if (last_loss_ == nullptr) return {};
  return "shm: rank " + std::to_string(last_lost_) + " was lost: " + last_loss_;
}

}  // namespace shm

Result<std::unique_ptr<Transport>> open_shm(const TransportConfig& config,
                                            const ShmOptions& options) {
  if (config.world == 0 || config.world > shm::kWorldMax) {
    return bad_input("shm: world size " + std::to_string(config.world) + ": 1 to " +
                     std::to_string(shm::kWorldMax) + " ranks are allowed on one host");
  }
  if (config.rank >= config.world) {
    return bad_input("shm: rank " + std::to_string(config.rank) +
                     " is out of range: ranks are 0 to " + std::to_string(config.world - 1));
  }
  const std::uint32_t ring = options.ring_bytes;
  if (ring < shm::kRingBytesMin || ring > shm::kRingBytesMax || (ring & (ring - 1)) != 0) {
    return bad_input("shm: rings of " + std::to_string(ring) + " bytes: a power of two from " +
                     std::to_string(shm::kRingBytesMin) + " to " +
                     std::to_string(shm::kRingBytesMax) + " is allowed");
  }
  auto segment = shm::create_segment(config.job, config.rank, config.world, ring);
  if (!segment) return segment.error();
  return std::unique_ptr<Transport>(
      std::make_unique<shm::ShmTransport>(std::move(*segment), config.world));
}

}  // namespace selmcast
