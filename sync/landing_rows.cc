#include "sync/landing_rows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace selmcast {

namespace {
void add(LandingCounters& to, const LandingCounters& from) noexcept {
  to.landed_frames += from.landed_frames;
  to.landed_bytes += from.landed_bytes;
  to.misplaced_frames += from.misplaced_frames;
  to.copied_bytes += from.copied_bytes;
}

constexpr std::uint32_t kPauseMost = 32;
}  // namespace

LandingRows::LandingRows(PlacedReceives& receives, std::shared_ptr<SenderTable> table,
                         const StreamShape& shape, std::uint32_t job)
    : receives_(receives),
      table_(std::move(table)),
      shape_(shape),
      job_(job),
      open_(table_->ranks()) {}

Result<LandingRows::Row> LandingRows::registered(std::span<float> memory) {
  auto region = receives_.register_places(std::as_writable_bytes(memory));
  if (!region) return std::move(region).error();
  const Row out{memory, region->id()};
  regions_.push_back(std::move(region).value());  // set-up:
  return out;
}

Result<std::unique_ptr<LandingRows>> LandingRows::make(PlacedReceives& receives,
                                                       std::shared_ptr<SenderTable> table,
                                                       const StreamShape& shape,
                                                       std::uint32_t job) {
  std::unique_ptr<LandingRows> out(  // set-up:
      new LandingRows(receives, std::move(table), shape, job));
  for (Rank rank = 0; rank < out->table_->ranks(); ++rank) {
    auto row = out->registered(out->table_->row(rank));
    if (!row) return std::move(row).error();
    out->region_of_.push_back(row->region);  // set-up:
  }
  return out;
}

void LandingRows::reserve(std::size_t senders) {
  spares_.reserve(senders);  // set-up:
  for (; reserved_ < senders && !refused_; ++reserved_) {
    auto row = registered(table_->add_spare());
    refused_ = !row;
    if (refused_) return;
    spares_.push_back(*row);  // set-up:
  }
}

LandingRows::Queue* LandingRows::of_group(std::uint32_t group) noexcept {
  const auto at = std::find_if(queues_.begin(), queues_.end(),
                               [group](const Queue& queue) { return queue.group == group; });
  return at == queues_.end() ? nullptr : &*at;
}

Result<Membership> LandingRows::join(std::uint32_t group) {
  auto membership = receives_.join_placed({group});
  if (!membership || of_group(group) != nullptr) return membership;
  Queue queue;
  queue.group = group;
  queue.tag = ++tags_;
  queue.landings = std::make_unique<LandingQueue>(  // set-up:
      receives_, job_, queue.tag, shape_);
  queue.landings->set_membership(membership->id());
  queue.landings->refill();
  queues_.push_back(std::move(queue));  // set-up:
  return membership;
}

void LandingRows::keep(std::span<const EpochState::InGroup> held) noexcept {
  for (Queue& queue : queues_) {
    const auto at = std::find_if(held.begin(), held.end(), [&](const auto& in) {
      return in.lands && in.group == queue.group;
    });
    if (at != held.end()) {
      queue.landings->set_membership(at->membership.id());
    } else {
      add(forgotten_, queue.landings->counters());
      queue.landings.reset();
    }
  }
  std::erase_if(queues_, [](const Queue& queue) { return queue.landings == nullptr; });
}

void LandingRows::open(std::uint32_t epoch, std::uint32_t round, const RoundPlan& plan) noexcept {
  for (std::size_t s = 0; s < plan.sender_groups.size(); ++s) {
    const Rank sender = plan.senders[s];
    Queue* const queue = of_group(plan.sender_groups[s]);
    if (queue == nullptr) continue;
    if (spares_.empty()) {
      queue->landings->open_without_row();
      continue;
    }
    queue->guesses = queue->rests == 0;
    queue->rests -= queue->guesses ? 0 : 1;
    queue->before = queue->landings->counters();
    const Row row = spares_.back();
    spares_.pop_back();
    open_[sender] = {queue->landings.get(), row};
    queue->landings->open({.sender = sender,
                           .epoch = epoch,
                           .round = round,
                           .stream = 0,
                           .shape = shape_,
                           .row = std::as_writable_bytes(row.memory).data(),
                           .region = row.region,
                           .guesses = queue->guesses});
  }
}

LandingQueue* LandingRows::queue_of(const Completion& completion) noexcept {
  const std::uint32_t tag = LandingQueue::tag_of(completion);
  if (tag == 0) return nullptr;
  const auto at = std::find_if(queues_.begin(), queues_.end(),
                               [tag](const Queue& queue) { return queue.tag == tag; });
  return at == queues_.end() ? nullptr : at->landings.get();
}

bool LandingRows::put(Rank sender, std::uint32_t frame,
                      std::span<const std::byte> payload) noexcept {
  if (open_[sender].queue == nullptr) return false;
  open_[sender].queue->put(frame, payload);
  return true;
}

void LandingRows::refill() noexcept {
  for (const Queue& queue : queues_) queue.landings->refill();
}

// A frame that came to a wrong place is copied up to three times, one without a place once: where
// losses shift most guesses, places cost more than they save.
void LandingRows::judge(Queue& queue) const noexcept {
  if (!queue.guesses) return;
  const LandingCounters& now = queue.landings->counters();
  const std::uint64_t wrong = now.misplaced_frames - queue.before.misplaced_frames;
  const std::uint64_t right = now.landed_frames - queue.before.landed_frames;
  queue.pause = wrong > right ? std::clamp(2 * queue.pause, 1U, kPauseMost) : 0;
  queue.rests = queue.pause;
}

bool LandingRows::close(Rank sender, bool whole) noexcept {
  const Open open = std::exchange(open_[sender], Open{});
  if (open.queue == nullptr) return true;
  for (Queue& queue : queues_) {
    if (queue.landings.get() == open.queue) judge(queue);
  }
  if (!open.queue->close(whole)) return false;
  Row spare = open.row;
  if (whole) {
    spare.memory = table_->exchange(sender, open.row.memory);
    spare.region = std::exchange(region_of_[sender], open.row.region);
  }
  spares_.push_back(spare);  // set-up: reserved
  return true;
}

LandingCounters LandingRows::counters() const noexcept {
  LandingCounters out = forgotten_;
  for (const Queue& queue : queues_) add(out, queue.landings->counters());
  return out;
}

}  // namespace selmcast
