// Landing queues of the verbs backend: a group's queue pair with a receive queue of its own, whose
// receives name where the payload goes.
#include <algorithm>

#include "transport/group_address.h"
#include "transport/verbs/verbs_backend.h"

namespace selmcast::verbs {

Result<Membership> VerbsTransport::join_placed(GroupAddress group) {
  if (joined_.contains(group.index)) {
    const Receiver* const known = rails_.front()->receiver_of(*group_ipv4(job_, group.index));
    if (known == nullptr || !known->lands) {
      return unavailable("verbs: group " + std::to_string(group.index) +
                         " was joined without a landing queue");
    }
  }
  return join_as(group, JoinAs::receiver, true);
}

Receiver* VerbsTransport::landing_of(MembershipId id) const noexcept {
  const GroupMember* const member = members_.find(id);
  if (member == nullptr || member->as != JoinAs::receiver) return nullptr;
  Receiver* const found = rails_.front()->receiver_of(*group_ipv4(job_, member->index));
  return found != nullptr && found->lands ? found : nullptr;
}

PostOutcome VerbsTransport::post_placed(MembershipId group,
                                        std::span<const LandingRequest> requests) noexcept {
  PostOutcome out{.accepted = 0, .state = PostState::backpressure};
  Receiver* const receiver = landing_of(group);
  if (receiver == nullptr || receiver->broken) return out;
  Rail& rail = *rails_.front();
  ReceiveSlots& slots = rail.landing_slots();
  for (const LandingRequest& request :
       requests.first(std::min<std::size_t>(requests.size(), ReceiveSlots::kBatch))) {
    std::uint32_t lkey = 0;
    if (request.place != nullptr) {
      const RegionEntry* const region = regions_.find(request.region);
      SELMCAST_CHECK(region != nullptr && lies_in(region->memory, request.place, request.bytes) &&
                         request.header_bytes + request.bytes <= rail.frame_bytes(),
                     "post_placed: a place lies in its region and fits a frame");
      lkey = region->keys[0]->lkey;
    }
    if (!rail.add_landing(*receiver, request, lkey)) break;
    ++out.accepted;
  }
  if (const int error = slots.flush(); error != 0) {
    out.accepted -= slots.refused();
    failure_ = {Failure::During::post, error, 0, receiver->qpn};
  }
  if (out.accepted == requests.size()) out.state = PostState::accepted;
  return out;
}

bool VerbsTransport::take_back(MembershipId group) noexcept {
  Receiver* const receiver = landing_of(group);
  if (receiver == nullptr) return false;
  const int error = rails_.front()->take_back(*receiver);  // failure: system calls, after a loss
  if (error == 0) return true;
  failure_ = {Failure::During::revive, error, 0, receiver->qpn};
  return false;
}

std::uint32_t VerbsTransport::drops(MembershipId group) const noexcept {
  const Receiver* const receiver = landing_of(group);
  return receiver == nullptr ? 0 : receiver->drops;
}

bool VerbsTransport::landed(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept {
  Rail& from = *rails_[rail];
  ReceiveSlots& slots = from.landing_slots();
  const auto ended = slots.ended(number_of(entry.wr_id));
  if (!ended) return false;
  const std::uint32_t slot = *ended;
  if (entry.status != IBV_WC_SUCCESS) [[unlikely]] {
    from.landing_failed(slot, entry.qp_num);
    if (entry.status == IBV_WC_WR_FLUSH_ERR) return false;
    failure_ = {Failure::During::receive, entry.status, rail, entry.qp_num};
    return false;
  }
  // Of a group that was left nothing is posted any more. An empty frame counts too: its receive is
  // gone from the row.
  const std::uint32_t bytes =
      std::max(entry.byte_len, ReceiveSlots::kGrhBytes) - ReceiveSlots::kGrhBytes;
  slots.lend(slot);
  ++counters_.received_frames;
  counters_.received_bytes += bytes;
  const LandingRequest& landing = slots.landing(slot);
  std::byte* const frame = slots.frame(slot);
  out = {.kind = Completion::Kind::receive,
         .status = Status::ok,
         .token = (rail << kTokenRailShift) | kTokenLanding | slot,
         .bytes = bytes,
         .frame_bytes = bytes,
         .data = frame,
         .user = landing.user};
  out.set_landed(landing, frame);
  return true;
}

void VerbsTransport::give_back_landing(Rail& rail, std::uint32_t slot) noexcept {
  SELMCAST_CHECK(rail.landing_depth() > 0 && rail.landing_slots().is_lent(slot),
                 "post_receives: the token names a buffer that is not lent");
  rail.landing_slots().free(slot);
}

}  // namespace selmcast::verbs
