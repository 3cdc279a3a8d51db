// Posting, reaping and idling of the verbs backend. Nothing here allocates, locks, throws or logs,
// and only idling and the way back from an error enter the kernel.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "transport/verbs/verbs_backend.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {
namespace {

// Completions handled by one poll() that yield nothing to its caller, at most; so that foreign
// traffic cannot keep it from returning.
constexpr std::uint32_t kReapMost = 1024;

// A rank that has heard nothing for so long looks whether its queue pairs still receive; how many
// empty polls make it look at the clock.
constexpr Duration kSilence = std::chrono::milliseconds(500);
constexpr std::uint32_t kQuietPolls = 1024;

}  // namespace

const VerbsTransport::Target* VerbsTransport::target_of(
    const Destination& destination) const noexcept {
  if (destination.kind == Destination::Kind::endpoint) return endpoints_.find(destination.id);
  const GroupMember* const member = members_.find(destination.id);
  return member == nullptr ? nullptr : &member->target;
}

bool VerbsTransport::usable(const Rail& rail) const noexcept {
  return rail.up.load(std::memory_order_acquire) && !rail.gone.load(std::memory_order_acquire) &&
         rail.identity().reachable();
}

Rail* VerbsTransport::next_rail(std::uint32_t& index) noexcept {
  for (std::size_t tried = 0; tried < rails_.size(); ++tried) {
    index = rail_turn_;
    rail_turn_ = rail_turn_ + 1 == rails_.size() ? 0 : rail_turn_ + 1;
    Rail& rail = *rails_[index];
    if (usable(rail) && !rail.sends().broken()) return &rail;
  }
  return nullptr;
}

Status VerbsTransport::add_frames(const SendRequest& request, const Target& target,
                                  Request& entry) noexcept {
  SendQueue& queue = rails_[entry.rail]->sends();
  const std::uint64_t before = queue.added();
  std::uint32_t room = 0;  // in the frame begun last
  for (const LocalSlice& slice : request.slices) {
    const std::uint32_t lkey =
        slice.bytes == 0 ? 0 : regions_.find(slice.region)->keys[entry.rail]->lkey;
    for (std::uint32_t at = 0; at < slice.bytes;) {
      if (room == 0) {
        queue.begin_frame(target.handles[entry.rail].get(), target.qpn[entry.rail]);
        room = entry.shape.frame_bytes;
      }
      const std::uint32_t bytes = std::min(room, slice.bytes - at);
      if (!queue.add_slice(slice.data + at, bytes, lkey)) {
        queue.take_back(before);
        return Status::oversize;
      }
      at += bytes;
      room -= bytes;
    }
  }
  entry.end = queue.added();
  return Status::ok;
}

bool VerbsTransport::post(const SendRequest& request, const Target& target,
                          Request& entry) noexcept {
  Rail* const rail = next_rail(entry.rail);
  if (rail == nullptr || !rail->sends().has_room(entry.shape.frames)) return false;
  if (const int error = rail->sends().make_place(entry.shape.frames); error != 0) {
    failure_ = {Failure::During::post, error, entry.rail, rail->sends().queue_pair()->qp_num};
    sends_failed(entry.rail, rail->sends().completed() + 1);
    return false;
  }
  entry.status = add_frames(request, target, entry);
  entry.sent = entry.status == Status::ok;
  return true;
}

PostOutcome VerbsTransport::post_sends(std::span<const SendRequest> requests) noexcept {
  PostOutcome out;
  for (const SendRequest& request : requests) {
    if (broken_) [[unlikely]]
      break;
    bool taken = !requests_.full();
    if (taken) {
      Request& entry = requests_.next();
      entry = Request{};
      entry.user = request.user;
      const Target* const target = target_of(request.destination);
      entry.status = target == nullptr ? Status::closed
                                       : measure(
                                             request, capabilities_,
                                             [this](RegionId id) { return memory_of(id); },
                                             [](const LocalSlice&) {}, entry.shape);
      // A request without a byte sends nothing and has thereby succeeded.
      if (entry.status == Status::ok && entry.shape.frames > 0) {
        taken = post(request, *target, entry);
      }
    }
    if (!taken) {
      out.state = PostState::backpressure;
      break;
    }
    requests_.post();
    ++out.accepted;
  }
  ring_all();
  if (broken_) [[unlikely]]
    out.state = PostState::broken;
  return out;
}

void VerbsTransport::ring_all() noexcept {
  for (std::uint32_t r = 0; r < rails_.size(); ++r) {
    const int error = rails_[r]->sends().ring();
    if (error == 0) [[likely]]
      continue;
    failure_ = {Failure::During::post, error, r, rails_[r]->sends().queue_pair()->qp_num};
    sends_failed(r, rails_[r]->sends().completed() + 1);
  }
}

void VerbsTransport::sends_failed(std::uint32_t rail, std::uint64_t from) noexcept {
  requests_.for_each([&](Request& entry) {
    if (entry.sent && entry.rail == rail && entry.end >= from) entry.status = Status::failed;
  });
}

PostOutcome VerbsTransport::post_receives(std::span<const ReceiveRequest> requests) noexcept {
  for (const ReceiveRequest& request : requests) {
    const std::uint32_t rail = request.token >> kTokenRailShift;
    const std::uint32_t slot = request.token & ((1U << kTokenRailShift) - 1);
    SELMCAST_CHECK(rail < rails_.size(), "post_receives: the token names no device");
    SELMCAST_CHECK(rails_[rail]->slots().is_lent(slot),
                   "post_receives: the token names a buffer that is not lent");
    rails_[rail]->give_back(slot);
  }
  for (const auto& rail : rails_) rail->slots().flush();
  return {.accepted = static_cast<std::uint32_t>(requests.size()),
          .state = broken_ ? PostState::broken : PostState::accepted};
}

bool VerbsTransport::received(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept {
  Rail& from = *rails_[rail];
  const auto ended = from.slots().ended(number_of(entry.wr_id));
  if (!ended) return false;
  const std::uint32_t slot = *ended;
  if (entry.status != IBV_WC_SUCCESS) [[unlikely]] {
    from.receive_failed(slot, entry.qp_num);
    if (entry.status == IBV_WC_WR_FLUSH_ERR) return false;
    failure_ = {Failure::During::receive, entry.status, rail, entry.qp_num};
    return false;
  }
  // Not for a group that was left meanwhile.
  const bool wanted = from.receiver(entry.qp_num) != nullptr;
  if (!wanted || entry.byte_len <= ReceiveSlots::kGrhBytes) {
    from.give_back(slot);
    return false;
  }
  const std::uint32_t bytes = entry.byte_len - ReceiveSlots::kGrhBytes;
  from.slots().lend(slot);
  ++counters_.received_frames;
  counters_.received_bytes += bytes;
  out = {.kind = Completion::Kind::receive,
         .status = Status::ok,
         .token = (rail << kTokenRailShift) | slot,
         .bytes = bytes,
         .frame_bytes = bytes,
         .data = from.slots().frame(slot),
         .user = 0};
  return true;
}

bool VerbsTransport::handle(std::uint32_t rail, const ibv_wc& entry, Completion& out) noexcept {
  switch (work_of(entry.wr_id)) {
    case Work::receive:
      return received(rail, entry, out);
    case Work::wire_up:
      rails_[rail]->reads().on_message(entry);  // set-up: of a queue pair to read through
      return false;
    case Work::reliable:
      return read_ended(rail, entry, out);
    case Work::send:
      break;
  }
  SendQueue& queue = rails_[rail]->sends();
  const std::uint64_t number = number_of(entry.wr_id);
  const bool ok = entry.status == IBV_WC_SUCCESS;
  // A queue that was reset before everything came back hears of the rest too late.
  if (number <= queue.completed()) return false;
  if (!ok && !queue.broken()) {
    failure_ = {Failure::During::send, entry.status, rail, entry.qp_num};
    sends_failed(rail, number);
  }
  queue.completed(number, ok);
  return false;
}

void VerbsTransport::note_arrival(const Completion& completion, std::uint64_t device_ns) noexcept {
  if (arrivals_.empty() || completion.kind != Completion::Kind::receive) return;
  arrivals_[completion.token] = device_ns;
}

std::uint64_t VerbsTransport::arrival_ns(const Completion& receive) const noexcept {
  return arrivals_[receive.token];
}

std::size_t VerbsTransport::take_stash(std::span<Completion> out) noexcept {
  std::size_t filled = 0;
  while (stash_taken_ < stash_filled_ && filled < out.size()) {
    const auto& [rail, entry, device_ns] = stash_[stash_taken_++];
    if (handle(rail, entry, out[filled])) note_arrival(out[filled++], device_ns);
  }
  if (stash_taken_ == stash_filled_) stash_taken_ = stash_filled_ = 0;
  return filled;
}

std::size_t VerbsTransport::reap(std::uint32_t rail, std::span<Completion> out) noexcept {
  std::size_t filled = 0;
  std::array<ibv_wc, kBatch> entries;
  std::array<std::uint64_t, kBatch> times{};
  for (std::uint32_t handled = 0; filled < out.size() && handled < kReapMost;) {
    const std::size_t room = std::min(kBatch, out.size() - filled);
    const int count = rails_[rail]->completions().poll({entries.data(), room}, times);
    if (count < 0) [[unlikely]] {
      rails_[rail]->gone.store(true, std::memory_order_release);
      return filled;
    }
    const auto taken = static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < taken; ++i) {
      if (handle(rail, entries[i], out[filled])) note_arrival(out[filled++], times[i]);
    }
    handled += static_cast<std::uint32_t>(count);
    if (taken == room) continue;
    // set-up: after a leave, and failure: of a queue pair.
    if (rails_[rail]->awaits_empty()) rails_[rail]->seen_empty();
    break;
  }
  return filled;
}

bool VerbsTransport::finished(const Request& entry) const noexcept {
  return !entry.sent || rails_[entry.rail]->sends().completed() >= entry.end;
}

std::size_t VerbsTransport::finished_sends(std::span<Completion> out) noexcept {
  return requests_.complete(out, [this](const Request& entry) {
    if (!finished(entry)) return false;
    if (entry.sent && entry.status == Status::ok) {
      counters_.sent_frames += entry.shape.frames;
      counters_.sent_bytes += entry.shape.bytes;
    }
    return true;
  });
}

void VerbsTransport::give_up(std::uint32_t rail) noexcept {
  SendQueue& sends = rails_[rail]->sends();
  sends_failed(rail, sends.completed() + 1);
  sends.give_up();
  rails_[rail]->reads().give_up();
}

void VerbsTransport::check_health() noexcept {
  bool any = false;
  for (std::uint32_t r = 0; r < rails_.size(); ++r) {
    Rail& rail = *rails_[r];
    if (rail.gone.load(std::memory_order_acquire)) [[unlikely]] {
      give_up(r);
      continue;
    }
    if (rail.renamed.load(std::memory_order_acquire)) [[unlikely]]
      look_again(r, SteadyClock().now());  // failure: system calls, once an event
    if (rail.regroup.load(std::memory_order_acquire) || group_looks_[r].until != TimePoint{})
        [[unlikely]] {
      look_at_groups(r, SteadyClock().now());  // failure: system calls, for a while after an event
    }
    if (rail.suspect.load(std::memory_order_acquire)) [[unlikely]] {
      // Cleared first: an event during the look is for the next one.
      rail.suspect.store(false, std::memory_order_release);
      rail.look_for_errors();  // failure: system calls, once an event
    }
    any = any || may_work(rail);
    // set-up: and failure: connections to read through, wanted since something was lost.
    if (rail.reads().busy()) rail.reads().progress(SteadyClock().now());
    if (rail.unhealthy()) [[unlikely]] {
      const int error = rail.recover(SteadyClock().now());
      if (error != 0) failure_ = {Failure::During::revive, error, r, rail.address().frames_qpn};
    }
    // Also while the port is down: other rails' completions wait for those of this one.
    if (!rail.sends().broken() || rail.sends().revive(SteadyClock().now())) continue;
    if (const int error = rail.sends().revive_error(); error != 0) {
      failure_ = {Failure::During::revive, error, r, rail.sends().queue_pair()->qp_num};
    }
  }
  broken_ = !any;
}

void VerbsTransport::check_receivers() noexcept {
  const TimePoint now = SteadyClock().now();
  if (counters_.received_frames != frames_at_look_ || looked_at_ == TimePoint{}) {
    frames_at_look_ = counters_.received_frames;
    looked_at_ = now;
  }
  if (now < looked_at_ + kSilence) return;
  looked_at_ = now;
  for (const auto& rail : rails_) {
    if (usable(*rail)) rail->look_for_errors();  // failure: system calls, twice a second at most
  }
}

void VerbsTransport::drop_retired() noexcept {
  const auto idle = [this](const Target& target) {
    for (std::size_t r = 0; r < rails_.size(); ++r) {
      if (rails_[r]->sends().completed() < target.last_frame[r] ||
          rails_[r]->reads().messages_done() < target.last_message[r]) {
        return false;
      }
    }
    return true;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), idle), retired_.end());
}

std::size_t VerbsTransport::poll(std::span<Completion> out) noexcept {
  std::size_t filled = finished_sends(out);
  filled += take_stash(out.subspan(filled));
  for (std::uint32_t r = 0; r < rails_.size(); ++r) filled += reap(r, out.subspan(filled));
  filled += finished_sends(out.subspan(filled));
  for (const auto& rail : rails_) rail->slots().flush();
  check_health();
  if (reads_pending_ > 0) filled += lost_reads(out.subspan(filled));
  if (!retired_.empty()) drop_retired();  // set-up: after a close or a leave
  if (filled == 0 && ++quiet_polls_ % kQuietPolls == 0) check_receivers();
  return filled;
}

bool VerbsTransport::arm_and_look(bool& armed) noexcept {
  std::array<ibv_wc, kBatch> entries;
  std::array<std::uint64_t, kBatch> times{};
  for (std::uint32_t r = 0; r < rails_.size(); ++r) {
    if (rails_[r]->gone.load(std::memory_order_acquire)) continue;
    armed = ibv_req_notify_cq(rails_[r]->cq(), 0) == 0 && armed;
    // What came before the request was armed makes no event.
    const int count = rails_[r]->completions().poll(entries, times);
    for (std::size_t i = 0; static_cast<int>(i) < count; ++i) {
      stash_[stash_filled_++] = {r, entries[i], times[i]};
    }
  }
  return stash_filled_ > 0;
}

void VerbsTransport::wait(Duration at_most) noexcept {
  check_receivers();
  bool armed = true;
  if ((!requests_.empty() && finished(requests_.oldest())) || stash_filled_ > 0 ||
      arm_and_look(armed))
    return;
  std::array<pollfd, kRailsMax + 1> ready{};
  std::size_t count = 0;
  for (const auto& rail : rails_) {
    // The descriptor of a device that is gone errs for good.
    const bool gone = rail->gone.load(std::memory_order_acquire);
    ready[count++] = {.fd = gone ? -1 : rail->channel()->fd, .events = POLLIN, .revents = 0};
  }
  ready[count++] = {.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
  // A queue pair on its way back from an error is looked at again soon.
  const bool recovering = !armed || std::any_of(rails_.begin(), rails_.end(), [](const auto& rail) {
    if (rail->gone.load(std::memory_order_acquire)) return false;
    return rail->sends().broken() || rail->reads().busy() || rail->unhealthy();
  });
  Duration limit = std::clamp(at_most, Duration{}, Duration(std::chrono::hours(1)));
  constexpr Duration kSoon = std::chrono::milliseconds(1);
  if (recovering) limit = std::min(limit, kSoon);
  for (const GroupLook& look : group_looks_) {
    if (look.until == TimePoint{}) continue;
    limit = std::min(limit, std::max(kSoon, look.next - SteadyClock().now()));
  }
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(seconds.count());
  timeout.tv_nsec = static_cast<long>((limit - seconds).count());
  if (ppoll(ready.data(), static_cast<nfds_t>(count), &timeout, nullptr) <= 0) return;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    if ((ready[r].revents & POLLIN) == 0) continue;
    // Of all requests that were armed since; a queue has one channel and a channel one queue.
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    unsigned events = 0;
    while (ibv_get_cq_event(rails_[r]->channel(), &cq, &context) == 0) ++events;
    if (events > 0) ibv_ack_cq_events(cq, events);
  }
  if ((ready[count - 1].revents & POLLIN) != 0) {
    std::uint64_t wakes = 0;
    [[maybe_unused]] const auto got = read(wake_fd_.get(), &wakes, sizeof wakes);
  }
}

void VerbsTransport::wake() noexcept {
  ring_wake_event(wake_fd_);
}

}  // namespace selmcast::verbs
