// Landing queues of the simulated transport: a group's frames are written to their places when they
// reach the host, as a device does, and not when the rank polls.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transport/sim/sim_transport.h"

namespace selmcast::detail {

namespace {

// What stands in a buffer where bytes of the frame went to their place: nobody may take it for
// them.
constexpr int kNothing = 0xDB;

}  // namespace

Result<Region> SimTransport::register_places(std::span<std::byte> memory) {
  if (landing_regions_ == core_.config().landing_regions) {
    return unavailable("sim: rank " + std::to_string(rank_) + " has registered " +
                       std::to_string(landing_regions_) + " regions to land in already");
  }
  ++landing_regions_;
  return register_memory(memory);
}

Result<Membership> SimTransport::join_placed(GroupAddress group) {
  const GroupSlot slot = core_.group_slot(group);
  const bool joined = slot < joined_.size() && joined_[slot] > 0;
  if (joined && !landings_[slot].open) {
    return unavailable("sim: rank " + std::to_string(rank_) + " joined group " +
                       std::to_string(group.index) + " without a landing queue");
  }
  const auto taken = std::count_if(landings_.begin(), landings_.end(),
                                   [](const LandingQueue& queue) { return queue.open; });
  if (!joined && static_cast<std::uint64_t>(taken) >= core_.config().landing_queues) {
    return unavailable("sim: rank " + std::to_string(rank_) + " has " + std::to_string(taken) +
                       " landing queues already");
  }
  auto out = join(group, JoinAs::receiver);
  landings_[slot].open = true;
  return out;
}

SimTransport::LandingQueue* SimTransport::landing_of(MembershipId id) noexcept {
  const OpenMembership* const membership = memberships_.find(id);
  if (membership == nullptr) return nullptr;
  const GroupSlot slot = membership->group;
  return slot < landings_.size() && landings_[slot].open ? &landings_[slot] : nullptr;
}

const SimTransport::LandingQueue* SimTransport::landing_of(MembershipId id) const noexcept {
  return const_cast<SimTransport*>(this)->landing_of(id);
}

bool SimTransport::in_region(const LandingRequest& request) const noexcept {
  if (request.place == nullptr) return true;
  const auto* const memory = regions_.find(request.region);
  return memory != nullptr && lies_in(*memory, request.place, request.bytes);
}

PostOutcome SimTransport::post_placed(MembershipId group,
                                      std::span<const LandingRequest> requests) noexcept {
  if (crashed_) return {0, PostState::broken};
  LandingQueue* const queue = landing_of(group);
  PostOutcome out{0, PostState::backpressure};
  for (const LandingRequest& request : requests) {
    SELMCAST_CHECK(request.user != 0 && in_region(request),
                   "a landing has a number and its place is registered");
    if (queue == nullptr || queue->posted.size() == placed_depth()) return out;
    queue->posted.push(request);
    ++out.accepted;
  }
  return {out.accepted, PostState::accepted};
}

void SimTransport::drop_landings(LandingQueue& queue) noexcept {
  while (!queue.posted.empty()) queue.posted.pop();
  ++queue.drops;
}

bool SimTransport::take_back(MembershipId group) noexcept {
  LandingQueue* const queue = landing_of(group);
  if (queue == nullptr) return false;
  drop_landings(*queue);
  return true;
}

std::uint32_t SimTransport::drops(MembershipId group) const noexcept {
  const LandingQueue* const queue = landing_of(group);
  return queue == nullptr ? 0 : queue->drops;
}

void SimTransport::land(PayloadPool::Index payload, GroupSlot group) {
  LandingQueue& queue = landings_[group];
  if (queue.posted.empty()) {
    ++counters_.dropped_frames;
    core_.pool().release(payload);
    return;
  }
  const LandingRequest landing = queue.posted.front();
  queue.posted.pop();
  const std::uint32_t landed = landing.landed_bytes(core_.pool().bytes(payload));
  if (landed > 0 && in_region(landing)) {
    // Other receivers of the group share the frame's buffer.
    const PayloadPool::Index own = core_.pool().clone(payload);
    core_.pool().release(payload);
    payload = own;
    std::byte* const from = core_.pool().data(payload) + landing.header_bytes;
    std::memcpy(landing.place, from, landed);
    std::memset(from, kNothing, landed);
  }
  inbox_.push({payload, group, 0, landing, queue.drops, core_.now()});
}

}  // namespace selmcast::detail
