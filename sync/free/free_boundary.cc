// This rank's own rounds and its application's step boundaries.
#include <algorithm>
#include <utility>

#include "sync/free/free_windows.h"

namespace selmcast {

std::size_t FreeWindows::progress(TimePoint now) noexcept {
  std::size_t done = arrive() ? 1 : 0;
  if (sending_) {
    done += sending()->progress(now);
    if (sending()->done()) {
      end_multicast(now);
      ++done;
    }
  }
  if (switch_due_ && !sending_) {
    switch_epoch();
    ++done;
  }
  done += cross_boundary(now) ? 1 : 0;
  if (online_ != nullptr) done += online_->progress(sending(), now);
  done += receive(now) ? 1 : 0;
  if (const auto& error = invitations_.error()) {
    const std::string self = std::to_string(context_.config.self);  // failure: ends the job
    context_.mail.fail(failed("rank " + self + ": " + error->message));
    context_.app.wake_all();
  }
  context_.reports.count_changes(invitations_.take_changes());
  watch(now);
  clock_.tell_pending(now);
  if (passed_ && !context_.mail.failed()) {
    passed_ = false;
    context_.app.give_back_layer(0, passed_steps_ + (last_ ? 1 : 0));
    context_.app.close();
  }
  return done;
}

TimePoint FreeWindows::next_timer() const noexcept {
  TimePoint next = clock_.next_timer();
  if (sending_) next = std::min(next, sending()->next_timer());
  if (online_ != nullptr) next = std::min(next, online_->next_timer());
  for (const EpochState* epoch : {older_.get(), newer_.get()}) {
    if (epoch != nullptr) next = std::min(next, epoch->streams[0].receiver->next_timer());
  }
  return next;
}

// --- own rounds ----------------------------------------------------------------------------------

void FreeWindows::depart(TimePoint now) noexcept {
  const std::uint32_t round = clock_.own().round;
  auto& layer = memory();
  layer.accumulator->move_to(layer.own.data(), layer.sent.data());
  context_.memory.say(layer);
  snapshot_is_current_ = true;
  departed_at_ = now;
  sending_ = true;
  std::span<const LaneSpec> lanes = own_->ways_of(round, 0).lanes;
  double rate = value_of(own_->round_of(round).rate);
  if (online_ != nullptr && own_->program.online) {
    lanes = online_->depart(now);
    rate = static_cast<double>(online_->rate());
  }
  rate_ = static_cast<Kbps>(context_.config.headroom * rate);
  sending()->begin(now, own_->program.epoch, round, layer.shape.bytes, layer.data, lanes, rate_,
                   stage_ == Stage::last_round);
  FreeObserver* const observer = context_.config.observer;
  if (observer == nullptr) return;
  observer->departed(round);
  if (online_ != nullptr) observer->selected(round, online_->receivers(), online_->alone());
}

void FreeWindows::end_multicast(TimePoint now) noexcept {
  auto& round = clock_.own().round;
  context_.reports.fill(context_.app.next_report(),
                        {round, now - departed_at_, rate_, /*both_ways=*/false}, *own_,
                        own_ == newer_.get() ? older_.get() : newer_.get());
  for (Rank rank = 0; rank < context_.config.world; ++rank) {
    if (sending()->state(rank) == ReceiverState::evicted) suspect(rank);
  }
  if (online_ != nullptr) online_->ended(*sending());
  sending_ = false;
  if (context_.config.observer != nullptr) context_.config.observer->ended(round);
  ++round;
  look_ = true;
  // Without a bound nobody waits for anybody's rounds before the end.
  if (pace_.bounded) clock_.tell_all();
}

// --- boundaries ----------------------------------------------------------------------------------

bool FreeWindows::arrive() noexcept {
  if (stage_ != Stage::away || last_ || !context_.app.open()) return false;
  last_ = context_.app.last();
  if (!last_) ++clock_.own().steps;
  stage_ = Stage::departing;
  look_ = true;
  return true;
}

bool FreeWindows::cross_boundary(TimePoint now) noexcept {
  if (stage_ == Stage::away || own_ == nullptr) return false;
  if (last_) return cross_the_end(now);
  bool moved = false;
  if (stage_ == Stage::departing) {
    if (sending_ && pace_.bounded) return false;
    if (!sending_) {
      if (online_ != nullptr && !online_->may_depart(clock_.own().round, now)) return false;
      depart(now);
    }
    stage_ = Stage::held;
    moved = watch_ = true;
  }
  const std::uint32_t needed = rounds_needed();
  if (clock_.own().round < needed || !clock_.others().all_ended(needed)) return moved;
  merge();
  ++passed_steps_;
  leave_boundary();
  return true;
}

bool FreeWindows::cross_the_end(TimePoint now) noexcept {
  if (sending_) return false;
  OwnClock& own = clock_.own();
  if (stage_ == Stage::departing) {
    merge();
    own.stopped = watch_ = true;
    clock_.tell_all();
    stage_ = Stage::held;
    return true;
  }
  if (stage_ == Stage::held) {
    if (!clock_.others().all_stopped()) return false;
    if (online_ != nullptr && !online_->may_depart(own.round, now)) return false;
    stage_ = Stage::last_round;
    depart(now);
    return true;
  }
  if (!own.finished) {
    own.finished = watch_ = true;
    clock_.tell_all();
  }
  if (!clock_.others().all_finished()) return false;
  merge();
  leave_boundary();
  return true;
}

void FreeWindows::leave_boundary() noexcept {
  stage_ = Stage::away;
  passed_ = look_ = watch_ = true;
}

std::uint32_t FreeWindows::rounds_needed() const noexcept {
  if (!pace_.bounded || clock_.own().steps <= pace_.slack) return 0;
  return static_cast<std::uint32_t>(clock_.own().steps - pace_.slack);
}

void FreeWindows::merge() noexcept {
  auto& layer = memory();
  float* w = layer.own.data();
  if (!std::exchange(snapshot_is_current_, false)) {
    layer.accumulator->move_to(w, layer.sent.data());
  }
  layer.accumulator->finish(w, layer.sent.data());
  layer.accumulator->begin(layer.shape.bytes);
  if (context_.config.observer != nullptr) context_.config.observer->merged();
}

}  // namespace selmcast
