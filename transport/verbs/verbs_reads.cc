// Reading from peers' memory. Nothing here allocates, locks, throws or logs.
#include "transport/verbs/verbs_backend.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint32_t kSlotBits = 8;
static_assert(ReadLinks::kReads <= 1U << kSlotBits);

}  // namespace

Rail* VerbsTransport::readable_rail(EndpointId peer, std::uint32_t& index) noexcept {
  for (index = 0; index < rails_.size(); ++index) {
    Rail& rail = *rails_[index];
    if (usable(rail) && rail.reads().ready(peer)) return &rail;
  }
  return nullptr;
}

bool VerbsTransport::can_read(EndpointId peer) noexcept {
  std::uint32_t index = 0;
  return readable_rail(peer, index) != nullptr;
}

bool VerbsTransport::post_read(const ReadRequest& request) noexcept {
  std::uint32_t index = 0;
  Rail* const rail = readable_rail(request.peer, index);
  if (rail == nullptr || reads_pending_ == reads_.size()) return false;
  std::uint32_t slot = 0;
  while (reads_[slot].pending) ++slot;
  Read& read = reads_[slot];
  const RegionEntry* const region = regions_.find(request.region);
  if (region == nullptr) {
    read = {.user = request.user, .pending = true, .refused = true};
    ++reads_pending_;
    return true;
  }
  read = {.user = request.user,
          .peer = request.peer,
          .rail = index,
          .number = (reads_posted_++ << kSlotBits) | slot,
          .pending = true,
          .refused = false};
  const ibv_sge into{reinterpret_cast<std::uintptr_t>(request.into), request.bytes,
                     region->keys[index]->lkey};
  read.pending = rail->reads().read(request.peer, into, request.from.address,
                                    request.from.keys[index], read.number);
  reads_pending_ += static_cast<std::uint32_t>(read.pending);
  return read.pending;
}

PostOutcome VerbsTransport::post_reads(std::span<const ReadRequest> requests) noexcept {
  PostOutcome out;
  for (const ReadRequest& request : requests) {
    if (!post_read(request)) {
      out.state = broken_ ? PostState::broken : PostState::backpressure;
      break;
    }
    ++out.accepted;
  }
  return out;
}

bool VerbsTransport::read_ended(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept {
  rails_[rail]->reads().completed(entry);
  const auto number = static_cast<std::uint32_t>(number_of(entry.wr_id));
  Read& read = reads_[number & ((1U << kSlotBits) - 1)];
  if (!read.pending || read.refused || read.number != number || read.rail != rail) return false;
  read.pending = false;
  --reads_pending_;
  out = {.kind = Completion::Kind::read,
         .status = entry.status == IBV_WC_SUCCESS ? Status::ok : Status::failed,
         .user = read.user};
  return true;
}

std::size_t VerbsTransport::lost_reads(std::span<Completion> out) noexcept {
  std::size_t filled = 0;
  for (Read& read : reads_) {
    if (filled == out.size()) break;
    if (!read.pending) continue;
    if (!read.refused && rails_[read.rail]->reads().posted(read.peer) > 0) continue;
    read.pending = false;
    --reads_pending_;
    out[filled++] = {.kind = Completion::Kind::read,
                     .status = read.refused ? Status::not_registered : Status::failed,
                     .user = read.user};
  }
  return filled;
}

}  // namespace selmcast::verbs
