#include <algorithm>
#include <cstring>

#include "transport/shm/shm_bell.h"
#include "transport/shm/shm_state.h"

namespace selmcast::shm {
namespace {

constexpr std::uint32_t kTakesPerRing = 8;  ///< In a poll, one sender after the other.

/// What a request costs in a ring when its bodies are read in place.
std::uint32_t bytes_in_place(const RequestShape& shape, const PlaceHeader& place) noexcept {
  return static_cast<std::uint32_t>(sizeof place) + shape.frames * place.head_bytes;
}

}  // namespace

PostOutcome ShmTransport::post_sends(std::span<const SendRequest> requests) noexcept {
  PostOutcome out;
  for (const SendRequest& request : requests) {
    Status status = Status::ok;
    if (sends_.full() || admit(request, status) == Admission::no_room) {
      out.state = PostState::backpressure;
      break;
    }
    sends_.next() = {request.user, status};
    sends_.post();
    ++out.accepted;
  }
  for (Peer* peer : connected_) {
    if (!peer->touched) continue;
    peer->touched = false;
    ring_bell(peer->segment.header().bell);
  }
  return out;
}

ShmTransport::Admission ShmTransport::admit(const SendRequest& request, Status& status) noexcept {
  RequestShape shape;
  status = measure(
      request, capabilities_,
      [this](RegionId id) -> const std::span<const std::byte>* {
        const RegisteredMemory* const found = regions_.find(id);
        return found == nullptr ? nullptr : &found->memory;
      },
      [](const LocalSlice&) {}, shape);
  // Also where so large a frame would not come about.
  if (request.frame_bytes > kFrameMax && status == Status::ok) status = Status::oversize;
  if (status == Status::ok) status = find_targets(request.destination);
  if (status != Status::ok) return Admission::refused;
  const bool to_group = request.destination.kind == Destination::Kind::group;
  const Outgoing out{
      .request = request,
      .shape = shape,
      .group = to_group ? uses_.find(request.destination.id)->group + 1 : 0,
      .place = place_of(request, shape, [this](RegionId id) { return regions_.find(id); })};
  if (!room_at_all_targets(out)) return Admission::no_room;
  for (Peer* peer : targets_) {
    if (peer->state == PeerState::open) put_into(*peer, out);
  }
  if (!to_group && targets_.front()->state != PeerState::open) {
    status = Status::peer_lost;
    return Admission::refused;
  }
  counters_.sent_frames += std::max(shape.frames, 1U);  // a request without a byte is a record too
  counters_.sent_bytes += shape.bytes;
  return Admission::sent;
}

Status ShmTransport::find_targets(const Destination& to) noexcept {
  targets_.clear();
  const auto closed = [](Peer& peer) {
    // Acquire: see `state` in shm_layout.h.
    return peer.segment.header().state.load(std::memory_order_acquire) == OwnerState::closed;
  };
  if (to.kind == Destination::Kind::endpoint) {
    const auto* const known = peers_.find(to.id);
    if (known == nullptr) return Status::closed;
    Peer& peer = **known;
    if (peer.state == PeerState::closed) return Status::closed;
    if (peer.state != PeerState::open) return Status::peer_lost;
    if (closed(peer)) return Status::closed;
    targets_.push_back(&peer);  // set-up: capacity for all ranks
    return Status::ok;
  }
  GroupUse* const use = uses_.find(to.id);
  if (use == nullptr) return Status::closed;
  for (Peer* peer : connected_) {
    if (peer->state != PeerState::open || peer->rank == segment_.address.rank) continue;
    if (is_member(*use, *peer) && !closed(*peer)) targets_.push_back(peer);  // set-up: as above
  }
  return Status::ok;
}

bool ShmTransport::is_member(GroupUse& use, const Peer& peer) const noexcept {
  const SegmentHeader& header = peer.segment.header();
  MemberCache& cache = use.peers[peer.rank];
  // Acquire: pairs with the fetch_add in publish_groups(); the slots below are of this version or
  // newer, and if newer the next post sees another version and looks again.
  const std::uint32_t version = header.group_version.load(std::memory_order_acquire);
  if (cache.known && cache.version == version) return cache.member;
  const auto used = std::min(header.groups_used.load(std::memory_order_relaxed), kGroupSlots);
  bool member = false;
  for (std::uint32_t slot = 0; slot < used && !member; ++slot) {
    member = header.groups[slot].load(std::memory_order_relaxed) == use.group + 1;
  }
  cache = {version, true, member};
  return member;
}

bool ShmTransport::reads_in_place(const Outgoing& out, const Peer& peer) const noexcept {
  return out.place && has_mapped(peer.segment.control(segment_.address.rank),
                                 segment_.address.nonce, out.place->slot);
}

bool ShmTransport::room_at_all_targets(const Outgoing& out) noexcept {
  for (Peer* peer : targets_) {
    // A peer that maps the memory before it is written to only needs less.
    const std::uint32_t bytes =
        reads_in_place(out, *peer) ? bytes_in_place(out.shape, *out.place) : out.shape.bytes;
    const bool room = peer->ring.has_room(bytes);
    if (peer->ring.corrupt()) {
      give_up(*peer);
      last_loss_ = "its ring's index makes no sense";
      continue;
    }
    if (peer->blocked) {
      peer->blocked = false;
      --blocked_;
    }
    if (room) continue;
    peer->blocked = true;
    ++blocked_;
    peer->room_for = bytes;
    return false;
  }
  return true;
}

void ShmTransport::put_into(Peer& peer, const Outgoing& out) noexcept {
  const auto& slices = out.request.slices;
  const bool in_place = reads_in_place(out, peer);
  std::byte* at = nullptr;
  if (in_place) {
    at = peer.ring.begin(bytes_in_place(out.shape, *out.place), out.shape.frame_bytes, out.group,
                         RecordHeader::kInPlace);
    std::memcpy(at, &*out.place, sizeof *out.place);
    at += sizeof *out.place;
  } else {
    at = peer.ring.begin(out.shape.bytes, out.shape.frame_bytes, out.group);
  }
  for (std::size_t s = 0; s < slices.size(); s += in_place ? 2 : 1) {
    if (slices[s].bytes == 0) continue;
    std::memcpy(at, slices[s].data, slices[s].bytes);
    at += slices[s].bytes;
  }
  peer.ring.commit();
  peer.touched = true;
}

PostOutcome ShmTransport::post_receives(std::span<const ReceiveRequest> requests) noexcept {
  PostOutcome out{static_cast<std::uint32_t>(requests.size()), PostState::accepted};
  for (const ReceiveRequest& request : requests) {
    const LentRecords::Released released = lent_.give_back(request.token);
    if (std::exchange(lent_in_place_[request.token], std::uint8_t{0}) != 0 &&
        rings_[released.ring].withdrawn(released.end)) {
      out.state = PostState::broken;
      last_lost_ = released.ring;
      last_loss_ = "it gave this rank up while this rank was reading its parameters";
    }
    if (!released.advanced) continue;
    rings_[released.ring].release_to(released.to);
    offer_room(released.ring);
  }
  return out;
}

void ShmTransport::withdraw(EndpointId peer) noexcept {
  if (const auto* const known = peers_.find(peer)) (*known)->ring.withdraw();
}

std::size_t ShmTransport::poll(std::span<Completion> out) noexcept {
  std::size_t count = sends_.complete(out, [](const SendEntry&) { return true; });
  look_at_peers(clock_.now());
  count += take_receives(out.subspan(count));
  if (dying_ > 0) count += take_losses(out.subspan(count));
  return count;
}

std::size_t ShmTransport::take_receives(std::span<Completion> out) noexcept {
  std::size_t count = 0;
  const auto world = static_cast<Rank>(rings_.size());
  // In turns, since senders are about equally far: what is added to the same place lies in the
  // cache when the next one is.
  for (std::uint32_t take = 0; take < kTakesPerRing; ++take) {
    const std::size_t before = count;
    for (Rank i = 0; i < world && count < out.size(); ++i) {
      const Rank sender = (next_ring_ + i) % world;
      if (rings_[sender].corrupt()) continue;
      if (take_one(sender, out[count])) {
        ++count;
      } else {
        offer_room(sender);
      }
    }
    if (count == before) break;
  }
  next_ring_ = (next_ring_ + 1) % world;
  return count;
}

bool ShmTransport::take_one(Rank sender, Completion& out) noexcept {
  RingConsumer& ring = rings_[sender];
  while (!lent_.full()) {
    Record record;
    const RingConsumer::Take take = ring.take(record);
    if (take == RingConsumer::Take::none) return false;
    const bool in_place = record.place.head_bytes != 0;
    const std::byte* const body = in_place && take == RingConsumer::Take::record
                                      ? imports_.find(sender, record.place)
                                      : nullptr;
    if (take == RingConsumer::Take::corrupt || (in_place && body == nullptr)) {
      lost_its_mind(sender);
      return false;
    }
    const std::uint32_t token = lent_.lend(sender, record.end);
    if ((record.group != 0 && !joined(record.group - 1)) ||
        (in_place && ring.withdrawn(record.end))) {
      // Sent before its sender saw that this rank had left; or taken back before it was read.
      const ReceiveRequest unwanted{token};
      post_receives({&unwanted, 1});
      continue;
    }
    lent_in_place_[token] = in_place ? 1 : 0;
    out = {};
    out.kind = Completion::Kind::receive;
    out.token = token;
    out.bytes = record.bytes;
    out.frame_bytes = record.frame_bytes;
    out.data = record.data;
    out.body = body;
    out.head_bytes = record.place.head_bytes;
    out.body_bytes = record.place.body_bytes;
    const std::uint32_t bytes = record.bytes + record.place.body_bytes;
    counters_.received_frames += std::max(frames_in(bytes, record.frame_bytes), 1U);
    counters_.received_bytes += bytes;
    return true;
  }
  return false;
}

void ShmTransport::lost_its_mind(Rank sender) noexcept {
  rings_[sender].poison();
  Peer* const peer = peer_of_rank_[sender];
  if (peer == nullptr || peer->state != PeerState::open) return;
  give_up(*peer);
  last_loss_ = "it wrote nonsense into its ring";
}

bool ShmTransport::joined(std::uint32_t group) const noexcept {
  return std::any_of(joined_.begin(), joined_.end(),
                     [&](const JoinedGroup& j) { return j.uses > 0 && j.group == group; });
}

void ShmTransport::offer_room(Rank sender) noexcept {
  if (!rings_[sender].room_wanted()) return;
  Peer* peer = peer_of_rank_[sender];
  if (peer != nullptr && peer->state == PeerState::open) ring_bell(peer->segment.header().bell);
}

void ShmTransport::give_up(Peer& peer) noexcept {
  if (peer.blocked) --blocked_;
  peer.blocked = false;
  peer.state = PeerState::dying;
  ++dying_;
  last_lost_ = peer.rank;
}

std::size_t ShmTransport::take_losses(std::span<Completion> out) noexcept {
  std::size_t count = 0;
  for (Peer* peer : connected_) {
    if (count == out.size()) break;
    // What it sent before it died is handed out first.
    if (peer->state != PeerState::dying || !rings_[peer->rank].empty()) continue;
    peer->state = PeerState::lost;
    --dying_;
    out[count] = {};
    out[count].kind = Completion::Kind::lost;
    out[count].status = Status::peer_lost;
    out[count].user = peer->id;
    ++count;
  }
  return count;
}

void ShmTransport::look_at_peers(TimePoint now) noexcept {
  if (now < look_again_) return;
  look_again_ = now + kLivenessEvery;
  if (connected_.empty()) return;
  ::poll(pidfds_.data(), pidfds_.size(), 0);
  for (std::size_t i = 0; i < connected_.size(); ++i) {
    Peer& peer = *connected_[i];
    if (peer.state != PeerState::open) continue;
    // Acquire, and after the pidfd was read: a process that closed before it ended is not lost.
    if (peer.segment.header().state.load(std::memory_order_acquire) == OwnerState::closed) {
      if (peer.blocked) --blocked_;
      peer.blocked = false;
      peer.state = PeerState::closed;
    } else if (pidfds_[i].fd >= 0 && pidfds_[i].revents != 0) {
      give_up(peer);
      last_loss_ = "its process ended";
    } else {
      // set-up: once for each piece of memory that the peer offers
      imports_.look(peer.address, peer.segment.header(), segment_.control(peer.rank),
                    lent_.any(peer.rank));
    }
  }
}

bool ShmTransport::work_before_sleep() noexcept {
  // seq_cst loads throughout: they come after the announcement in sleep_on_bell().
  if (woken_.load(std::memory_order_seq_cst) || !sends_.empty() || dying_ > 0) return true;
  if (blocked_ > 0) {
    for (Peer* peer : connected_) {
      if (!peer->blocked || !peer->ring.has_room_before_sleep(peer->room_for)) continue;
      // Said once: a caller that posts no more must not be kept awake.
      peer->blocked = false;
      --blocked_;
      return true;
    }
  }
  if (lent_.full()) return false;
  return std::any_of(rings_.begin(), rings_.end(),
                     [](const RingConsumer& ring) { return !ring.empty_before_sleep(); });
}

void ShmTransport::wait(Duration at_most) noexcept {
  const TimePoint start = clock_.now();
  TimePoint now = start;
  while (true) {
    look_at_peers(now);
    const Duration left = at_most - (now - start);
    const Duration slice = std::min(std::max(left, Duration::zero()), kLivenessEvery);
    if (sleep_on_bell(segment_.header().bell, slice, [this] { return work_before_sleep(); })) break;
    now = clock_.now();
    if (now - start >= at_most) break;
  }
  // Acquire: what the caller of wake() wrote before is visible after wait().
  woken_.exchange(false, std::memory_order_acquire);
}

void ShmTransport::wake() noexcept {
  // seq_cst: pairs with the load in work_before_sleep().
  woken_.store(true, std::memory_order_seq_cst);
  ring_bell(segment_.header().bell);
}

}  // namespace selmcast::shm
