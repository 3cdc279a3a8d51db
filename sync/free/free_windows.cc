// Epochs, frames and what others send; this rank's own side is in free_boundary.cc.
#include "sync/free/free_windows.h"

#include <algorithm>
#include <utility>

#include "sync/rounds/round_failures.h"

namespace selmcast {

FreeWindows::FreeWindows(const RoundContext& context)
    : context_(context),
      pace_(*context.config.free),
      clock_(context.port, context.config.timeout),
      invitations_(context.port.transport(), context.config.world),
      suspected_(context.config.world, 0) {
  SELMCAST_CHECK(context.config.mix == MixKind::average && !context.config.deterministic &&
                     context.config.element == WireElement::f32 && context.app.layers() == 1,
                 "free rounds average float32");
  if (pace_.online) {
    online_ = std::make_unique<OnlineRounds>(  // set-up:
        context.port, context.config, memory().whole, clock_.others());
  }
}

FreeWindows::~FreeWindows() = default;

// --- epochs --------------------------------------------------------------------------------------

std::uint32_t FreeWindows::offer(std::unique_ptr<EpochState> epoch) noexcept {
  SELMCAST_CHECK(older_ == nullptr, "the epoch before last is still in use");
  older_ = std::move(newer_);
  newer_ = std::move(epoch);
  unsettled_ = {unsettled_[1], 0};
  look_ = true;
  // An epoch begins at each rank's own next round, so the round that is agreed on says only that
  // all ranks are prepared.
  return 0;
}

std::size_t FreeWindows::read_mail() noexcept {
  if (context_.mail.epochs().activated()) {
    switch_due_ = newer_ != nullptr && own_ != newer_.get();
  }
  return retire() ? 1 : 0;
}

void FreeWindows::switch_epoch() noexcept {
  switch_due_ = false;
  retire_due_ = true;
  own_ = newer_.get();
  clock_.own().epoch = own_->program.epoch;
  if (online_ != nullptr) online_->enter(*own_);
  context_.reports.count_changes(newer_->program.receive_groups.size());
  clock_.tell_all();
}

bool FreeWindows::retire() noexcept {
  if (!retire_due_) return false;
  if (older_ != nullptr) {
    if (!clock_.others().all_in(newer_->program.epoch)) return false;
    context_.reports.keep_received(*older_);
    context_.reports.count_changes(older_->program.receive_groups.size());
    older_->memberships.clear();
    unsettled_[0] = 0;
  }
  retire_due_ = false;
  context_.mail.epochs().retire(std::move(older_));
  return true;
}

void FreeWindows::lose(Rank rank) noexcept {
  clock_.lose(rank);
  if (online_ != nullptr) online_->lose(rank);
  Windows::lose(rank);
  look_ = true;
}

void FreeWindows::start_deadlines_anew(TimePoint now) noexcept {
  Windows::start_deadlines_anew(now);
  clock_.others().start_anew(now);
}

// --- frames --------------------------------------------------------------------------------------

void FreeWindows::note_alive(const FrameHeader& header, TimePoint now) noexcept {
  clock_.others().note_alive(header.sender, now);
  for (EpochState* epoch : epochs()) {
    if (epoch == nullptr) continue;
    epoch->streams[0].sender->note_alive(header.sender, now);
    epoch->streams[0].receiver->note_alive(header.sender, now);
  }
}

void FreeWindows::note(const FrameHeader& header, TimePoint now) noexcept {
  const bool clock = header.kind == FrameKind::clock;
  const bool final = header.kind != FrameKind::tail && (header.flags & frame_flag::kFinal) != 0;
  const ClockNews news{header.epoch, header.round, clock ? header.offset : 0, final,
                       clock && (header.flags & frame_flag::kOver) != 0};
  if (!clock_.others().learn(header.sender, news, now)) return;
  look_ = true;
  if (online_ != nullptr) online_->learned(header.sender);
}

void FreeWindows::learn(const EpochState& epoch, const FrameHeader& header,
                        TimePoint now) noexcept {
  note(header, now);
  if (header.kind == FrameKind::tail) {
    if (invitations_.invited(epoch, header)) look_ = true;
  } else if (header.kind == FrameKind::evict && online_ != nullptr) {
    invitations_.cut(header);
    look_ = true;
  }
}

void FreeWindows::on_news(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  EpochState* const epoch = find(header.epoch);
  if (header.kind == FrameKind::clock) {
    if (header.epoch == 0 || epoch != nullptr) note(header, now);
    if ((header.flags & frame_flag::kAsk) != 0) clock_.tell(header.sender);
  } else if (online_ == nullptr || epoch == nullptr) {
    return;
  } else if (header.kind == FrameKind::request) {
    online_->on_request(epoch->program, frame, now);
  } else if (header.kind == FrameKind::plan && epoch == own_) {
    online_->on_plan(frame, sending(), now);
  }
}

bool FreeWindows::merges(EpochState& epoch, std::size_t layer, const FrameHeader& header) noexcept {
  static_cast<void>(epoch);
  const auto& of = context_.memory.layers()[layer];
  // Beyond what a count holds a frame changes next to nothing; the sender still gets its answer.
  if (of.accumulator->contributors(of.shape.frame_at(header.offset)) == 0xFFFF) return false;
  return !clock_.own().stopped || (header.flags & frame_flag::kFinal) != 0;
}

void FreeWindows::merged(const FrameHeader& header, std::uint32_t frame) noexcept {
  if (context_.config.observer == nullptr) return;
  context_.config.observer->added(header.sender, header.round, frame);
}

Windows::Stray FreeWindows::stray(const EpochState& epoch, const FrameHeader& header,
                                  Verdict verdict) const noexcept {
  if (verdict != Verdict::foreign) return Stray::late;
  return epoch.hears(header.round, header.sender) ? Stray::transition : Stray::foreign;
}

// --- others' rounds ------------------------------------------------------------------------------

bool FreeWindows::receive(TimePoint now) noexcept {
  const auto open = epochs();
  for (std::size_t e = 0; e < open.size(); ++e) {
    if (open[e] == nullptr) continue;
    ReceiveSession& receiver = *open[e]->streams[0].receiver;
    receiver.progress(now);
    if (const auto bad = receiver.digest_mismatch()) {
      fail_mismatch(context_, clock_.own().round, *bad);
    }
    if (receiver.unsettled() != unsettled_[e]) look_ = true;
  }
  if (!std::exchange(look_, false)) return false;
  for (std::size_t e = 0; e < open.size(); ++e) {
    if (open[e] == nullptr) continue;
    for (Rank rank = 0; rank < context_.config.world; ++rank) {
      if (rank != context_.config.self) open_round(*open[e], rank, now);
    }
    unsettled_[e] = open[e]->streams[0].receiver->unsettled();
  }
  watch_ = true;
  return true;
}

void FreeWindows::open_round(EpochState& epoch, Rank sender, TimePoint now) noexcept {
  if (!clock_.others().alive(sender)) return;
  ReceiveSession& receiver = *epoch.streams[0].receiver;
  const ClockNews& news = clock_.others().of(sender);
  const auto opened = receiver.opened(sender);
  const bool here = news.epoch == epoch.program.epoch;
  const SenderState state = receiver.state(sender);
  if (state == SenderState::silent) suspect(sender);
  if (state == SenderState::hearing) {
    if (here && news.round <= *opened) return;
    receiver.supersede(sender);
  }
  invitations_.leave(epoch, sender);
  if (!here || news.finished) return;
  const auto round =
      invitations_.next(epoch, sender, std::max(news.round, opened ? *opened + 1 : 0));
  if (!round) return;
  if (pace_.bounded && !last_ && *round > passed_steps_ + pace_.slack) return;
  if (invitations_.join(epoch, sender)) receiver.open(now, sender, *round);
}

void FreeWindows::watch(TimePoint now) noexcept {
  if (!std::exchange(watch_, false) && now < clock_.others().next_timer()) return;
  const bool held = stage_ == Stage::held;
  const Clocks::Waits waits{held && !last_ ? rounds_needed() : 0, held && clock_.own().stopped,
                            clock_.own().finished, clock_.own().epoch};
  clock_.watch(waits, now, [this](Rank rank) { suspect(rank); });
}

void FreeWindows::suspect(Rank rank) noexcept {
  if (std::exchange(suspected_[rank], std::uint8_t{1}) != 0) return;
  context_.mail.suspect(rank, "made no progress within the timeout");
}

}  // namespace selmcast
