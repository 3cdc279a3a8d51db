// Epochs, frames and what others send; this rank's own side is in free_boundary.cc.
#include "sync/free/free_rounds.h"

#include <algorithm>

namespace selmcast {

FreeRounds::FreeRounds(FramePort& port, const EngineConfig& config, const StreamShape& shape,
                       const FreeMemory& memory)
    : port_(port),
      config_(config),
      pace_(*config.free),
      shape_(shape),
      memory_(memory),
      clocks_(config.self, config.world, config.timeout),
      to_tell_(config.world, 0),
      suspects_(config.world, 0) {
  if (pace_.online) {
    online_ = std::make_unique<OnlineRounds>(port, config, shape, clocks_);  // set-up:
    invitations_.resize(config.world);                                       // set-up:
  }
  for (auto& report : ended_) {
    report.receivers.reserve(config.world);  // set-up:
    report.given_up.reserve(config.world);   // set-up:
  }
}

// --- epochs --------------------------------------------------------------------------------------

void FreeRounds::offer(std::unique_ptr<EpochState> epoch) noexcept {
  SELMCAST_CHECK(older_ == nullptr, "the epoch before last is still in use");
  older_ = std::move(newer_);
  newer_ = std::move(epoch);
  unsettled_ = {unsettled_[1], 0};
  look_ = true;
}

void FreeRounds::switch_epoch() noexcept {
  switch_due_ = false;
  retire_due_ = true;
  own_ = newer_.get();
  if (online_ != nullptr) online_->enter(*own_);
  membership_changes_ += static_cast<std::uint32_t>(newer_->program.receive_groups.size());
  tell_all();
}

bool FreeRounds::retired(std::unique_ptr<EpochState>& out) noexcept {
  if (!retire_due_) return false;
  if (older_ != nullptr) {
    if (!clocks_.all_in(newer_->program.epoch)) return false;
    older_payload_bytes_ += older_->receiver->counters().payload_bytes;
    membership_changes_ += static_cast<std::uint32_t>(older_->program.receive_groups.size());
    older_->memberships.clear();
    unsettled_[0] = 0;
  }
  retire_due_ = false;
  out = std::move(older_);
  return true;
}

void FreeRounds::lose(Rank rank) noexcept {
  clocks_.lose(rank);
  if (online_ != nullptr) online_->lose(rank);
  for (EpochState* epoch : {older_.get(), newer_.get()}) {
    if (epoch == nullptr) continue;
    epoch->sender->drop(rank);
    epoch->receiver->drop(rank);
  }
  if (std::exchange(to_tell_[rank], std::uint8_t{0}) != 0) --to_tell_count_;
  look_ = true;
}

EpochState* FreeRounds::find(std::uint32_t epoch) noexcept {
  for (EpochState* state : {newer_.get(), older_.get()}) {
    if (state != nullptr && state->program.epoch == epoch) return state;
  }
  return nullptr;
}

// --- frames --------------------------------------------------------------------------------------

void FreeRounds::on_frame(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  clocks_.heard(header.sender, now);
  for (EpochState* epoch : {older_.get(), newer_.get()}) {
    if (epoch == nullptr) continue;
    epoch->sender->heard(header.sender, now);
    epoch->receiver->heard(header.sender, now);
  }
  if (header.kind == FrameKind::clock) return on_clock(header, now);
  EpochState* epoch = find(header.epoch);
  if (epoch == nullptr) {
    // Of an epoch that everybody alive has left.
    if (header.kind == FrameKind::data) ++transition_frames_;
    return;
  }
  switch (header.kind) {
    case FrameKind::data:
      return on_data(*epoch, frame, now);
    case FrameKind::credit:
    case FrameKind::nack:
    case FrameKind::ack:
      return epoch->sender->on_control(header, frame.payload, now);
    case FrameKind::tail:
    case FrameKind::evict:
      learn(header, now);
      if (header.kind == FrameKind::tail) {
        on_invitation(*epoch, header);
      } else {
        on_evict(header);
      }
      return epoch->receiver->on_control(header, frame.payload, now);
    case FrameKind::request:
      if (online_ != nullptr) online_->on_request(epoch->program, frame, now);
      return;
    case FrameKind::plan:
      if (online_ != nullptr && epoch == own_) {
        online_->on_plan(frame, sending_ ? own_->sender.get() : nullptr, now);
      }
      return;
    case FrameKind::alive:
    case FrameKind::clock:
      return;
  }
}

void FreeRounds::learn(const FrameHeader& header, TimePoint now) noexcept {
  const bool clock = header.kind == FrameKind::clock;
  const bool final = header.kind != FrameKind::tail && (header.flags & frame_flag::kFinal) != 0;
  const ClockNews news{header.epoch, header.round, clock ? header.offset : 0, final,
                       clock && (header.flags & frame_flag::kOver) != 0};
  if (!clocks_.learn(header.sender, news, now)) return;
  look_ = true;
  if (online_ != nullptr) online_->learned(header.sender);
}

void FreeRounds::on_clock(const FrameHeader& header, TimePoint now) noexcept {
  if (header.epoch == 0 || find(header.epoch) != nullptr) learn(header, now);
  if ((header.flags & frame_flag::kAsk) != 0) tell(header.sender, 0);
}

void FreeRounds::on_data(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  learn(header, now);
  const Verdict verdict = epoch.receiver->on_data(header, frame.payload, now);
  if (verdict == Verdict::foreign) {
    const auto& senders = epoch.plan_of(header.round).senders;
    const bool ours = std::binary_search(senders.begin(), senders.end(), header.sender);
    ++(ours ? transition_frames_ : foreign_frames_);
  }
  if (verdict != Verdict::fresh) return;
  const std::uint32_t index = shape_.frame_at(header.offset);
  // Beyond what a count holds a frame changes next to nothing; the sender still gets its answer.
  if (memory_.accumulator->contributors(index) == 0xFFFF) return;
  if (stopped_ && (header.flags & frame_flag::kFinal) == 0) return;
  memory_.accumulator->add(index, header.sender, frame.payload, memory_.snapshot.data());
  if (config_.observer != nullptr) config_.observer->added(header.sender, header.round, index);
}

// --- others' rounds ------------------------------------------------------------------------------

bool FreeRounds::receive(TimePoint now) noexcept {
  const std::array<EpochState*, 2> epochs{older_.get(), newer_.get()};
  for (std::size_t e = 0; e < epochs.size(); ++e) {
    if (epochs[e] == nullptr) continue;
    ReceiveSession& receiver = *epochs[e]->receiver;
    receiver.progress(now);
    if (const auto bad = receiver.digest_mismatch()) mismatch_ = bad;
    if (receiver.unsettled() != unsettled_[e]) look_ = true;
  }
  if (!std::exchange(look_, false)) return false;
  for (std::size_t e = 0; e < epochs.size(); ++e) {
    if (epochs[e] == nullptr) continue;
    for (Rank rank = 0; rank < config_.world; ++rank) {
      if (rank != config_.self) open_round(*epochs[e], rank, now);
    }
    unsettled_[e] = epochs[e]->receiver->unsettled();
  }
  watch_ = true;
  return true;
}

void FreeRounds::open_round(EpochState& epoch, Rank sender, TimePoint now) noexcept {
  if (!clocks_.alive(sender)) return;
  ReceiveSession& receiver = *epoch.receiver;
  const ClockNews& news = clocks_.of(sender);
  const auto opened = receiver.opened(sender);
  const bool here = news.epoch == epoch.program.epoch;
  const SenderState state = receiver.state(sender);
  if (state == SenderState::silent && suspects_[sender] == 0) suspects_[sender] = 1;
  if (state == SenderState::hearing) {
    if (here && news.round <= *opened) return;
    receiver.supersede(sender);
  }
  leave_group_of(epoch, sender);
  if (!here || news.finished) return;
  const auto round = next_of(epoch, sender, std::max(news.round, opened ? *opened + 1 : 0));
  if (!round) return;
  if (pace_.bounded && !last_ && *round > passed_steps_ + pace_.slack) return;
  if (join_group_of(epoch, sender)) receiver.open(now, sender, *round);
}

// --- clocks --------------------------------------------------------------------------------------

bool FreeRounds::tell(Rank to, std::uint16_t flags) noexcept {
  if (stopped_) flags |= frame_flag::kFinal;
  if (finished_) flags |= frame_flag::kOver;
  return port_.send_control(to,
                            FrameHeader{.kind = FrameKind::clock,
                                        .epoch = own_ != nullptr ? own_->program.epoch : 0,
                                        .round = round_,
                                        .offset = steps_,
                                        .flags = flags},
                            {});
}

void FreeRounds::tell_all() noexcept {
  to_tell_count_ = 0;
  for (Rank rank = 0; rank < config_.world; ++rank) {
    to_tell_[rank] = rank != config_.self && clocks_.alive(rank) ? 1 : 0;
    to_tell_count_ += to_tell_[rank];
  }
}

void FreeRounds::tell_pending() noexcept {
  for (Rank rank = 0; to_tell_count_ > 0 && rank < config_.world; ++rank) {
    if (to_tell_[rank] == 0) continue;
    if (!tell(rank, 0)) return;
    to_tell_[rank] = 0;
    --to_tell_count_;
  }
}

void FreeRounds::watch(TimePoint now) noexcept {
  if (!std::exchange(watch_, false) && now < clocks_.next_timer()) return;
  const bool held = stage_ == Stage::held;
  const Clocks::Waits waits{held && !last_ ? rounds_needed() : 0, held && stopped_, finished_,
                            own_ != nullptr ? own_->program.epoch : 0};
  clocks_.wait_for(waits, now);
  while (const auto rank = clocks_.to_ask(now)) tell(*rank, frame_flag::kAsk);
  while (const auto rank = clocks_.suspect(now)) suspects_[*rank] = 1;
  clocks_.wait_for(waits, now);
}

std::optional<Rank> FreeRounds::next_suspect() noexcept {
  const auto at = std::find(suspects_.begin(), suspects_.end(), std::uint8_t{1});
  if (at == suspects_.end()) return std::nullopt;
  *at = 2;
  return static_cast<Rank>(at - suspects_.begin());
}

}  // namespace selmcast
