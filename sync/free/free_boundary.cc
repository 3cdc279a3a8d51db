// This rank's own rounds and its application's step boundaries.
#include <algorithm>

#include "sync/free/free_rounds.h"

namespace selmcast {

namespace {
constexpr Duration kTellAgain = std::chrono::microseconds(100);
}  // namespace

std::size_t FreeRounds::progress(TimePoint now) noexcept {
  std::size_t done = 0;
  if (sending_) {
    done += own_->sender->progress(now);
    if (own_->sender->done()) {
      end_multicast(now);
      ++done;
    }
  }
  if (switch_due_ && !sending_) {
    switch_epoch();
    ++done;
  }
  done += cross_boundary(now) ? 1 : 0;
  if (online_ != nullptr) {
    done += online_->progress(sending_ ? own_->sender.get() : nullptr, now);
  }
  done += receive(now) ? 1 : 0;
  watch(now);
  tell_pending();
  tell_at_ = to_tell_count_ > 0 ? now + kTellAgain : kNever;
  return done;
}

TimePoint FreeRounds::next_timer() const noexcept {
  TimePoint next = std::min(clocks_.next_timer(), tell_at_);
  if (sending_) next = std::min(next, own_->sender->next_timer());
  if (online_ != nullptr) next = std::min(next, online_->next_timer());
  for (const EpochState* epoch : {older_.get(), newer_.get()}) {
    if (epoch != nullptr) next = std::min(next, epoch->receiver->next_timer());
  }
  return next;
}

// --- own rounds ----------------------------------------------------------------------------------

void FreeRounds::depart(TimePoint now) noexcept {
  const std::size_t slot = own_->slot_of(round_);
  const auto& w = memory_.parameters;
  memory_.accumulator->move_to(w.data(), memory_.snapshot.data());
  kernels::encode(WireElement::f32, memory_.snapshot.data(), w.data(), w.size());
  snapshot_is_current_ = true;
  departed_at_ = now;
  sending_ = true;
  std::span<const LaneSpec> lanes = own_->lanes[slot];
  double rate = value_of(own_->program.cycle[slot].rate);
  if (online_ != nullptr && own_->program.online) {
    lanes = online_->depart(now);
    rate = static_cast<double>(online_->rate());
  }
  rate_ = static_cast<Kbps>(config_.headroom * rate);
  own_->sender->begin(now, own_->program.epoch, round_, memory_.snapshot, memory_.region, lanes,
                      rate_, stage_ == Stage::last_round);
  if (config_.observer == nullptr) return;
  config_.observer->departed(round_);
  if (online_ != nullptr) {
    config_.observer->selected(round_, online_->receivers(), online_->alone());
  }
}

void FreeRounds::end_multicast(TimePoint now) noexcept {
  report_round(now);
  sending_ = false;
  if (online_ != nullptr) online_->ended(*own_->sender);
  if (config_.observer != nullptr) config_.observer->ended(round_);
  ++round_;
  look_ = true;
  // Without a bound nobody waits for anybody's rounds before the end.
  if (pace_.bounded) tell_all();
}

FreeRounds::Totals FreeRounds::totals() const noexcept {
  Totals out{port_.counters(), older_payload_bytes_};
  for (const EpochState* epoch : {older_.get(), newer_.get()}) {
    if (epoch != nullptr) out.rx_payload_bytes += epoch->receiver->counters().payload_bytes;
  }
  return out;
}

void FreeRounds::report_round(TimePoint now) noexcept {
  SELMCAST_CHECK(ended_count_ < ended_.size(), "at most two rounds end between two boundaries");
  RoundReport& report = ended_[ended_count_++];
  const Totals end = totals();
  const Totals begin = std::exchange(at_report_, end);
  report.round = round_;
  report.epoch = own_->program.epoch;
  report.ms = std::chrono::duration<double, std::milli>(now - departed_at_).count();
  const double frame = shape_.frame_payload;
  const double on_wire =
      frame + kFrameHeaderBytes + port_.transport().capabilities().wire_overhead_bytes;
  report.rate_kbps = static_cast<Kbps>(static_cast<double>(rate_) * frame / on_wire);
  report.tx_first_bytes = end.port.first_bytes - begin.port.first_bytes;
  report.tx_repair_bytes = end.port.repair_bytes - begin.port.repair_bytes;
  report.tx_patch_bytes = end.port.patch_bytes - begin.port.patch_bytes;
  report.tx_bytes = report.tx_first_bytes + report.tx_repair_bytes + report.tx_patch_bytes +
                    (end.port.control_bytes - begin.port.control_bytes);
  report.rx_payload_bytes = end.rx_payload_bytes - begin.rx_payload_bytes;
  report.repaired_frames = end.port.repaired_frames - begin.port.repaired_frames;
  report.foreign_frames = std::exchange(foreign_frames_, 0);
  report.transition_frames = std::exchange(transition_frames_, 0);
  report.membership_changes = std::exchange(membership_changes_, 0);
  report.verified = true;  // A digest that differs ends the job.
  report.receivers.clear();
  report.given_up.clear();
  for (Rank rank = 0; rank < config_.world; ++rank) {
    const ReceiverState to = own_->sender->state(rank);
    // Capacity for every rank was reserved at construction.
    if (to == ReceiverState::acked) report.receivers.push_back(rank);  // set-up: reserved
    if (to == ReceiverState::evicted || to == ReceiverState::lost || to == ReceiverState::gave_up) {
      report.given_up.push_back(rank);  // set-up: reserved
    }
    if (to == ReceiverState::evicted && suspects_[rank] == 0) suspects_[rank] = 1;
  }
}

// --- boundaries ----------------------------------------------------------------------------------

void FreeRounds::arrive(bool last) noexcept {
  SELMCAST_CHECK(stage_ == Stage::away && !last_, "one boundary at a time, and none after the end");
  last_ = last;
  if (!last) ++steps_;
  stage_ = Stage::departing;
  look_ = true;
}

bool FreeRounds::cross_boundary(TimePoint now) noexcept {
  if (stage_ == Stage::away || own_ == nullptr) return false;
  if (last_) return cross_the_end(now);
  bool moved = false;
  if (stage_ == Stage::departing) {
    if (sending_ && pace_.bounded) return false;
    if (!sending_) {
      if (online_ != nullptr && !online_->may_depart(round_, now)) return false;
      depart(now);
    }
    stage_ = Stage::held;
    moved = watch_ = true;
  }
  const std::uint32_t needed = rounds_needed();
  if (round_ < needed || !clocks_.all_ended(needed)) return moved;
  merge();
  ++passed_steps_;
  leave_boundary();
  return true;
}

bool FreeRounds::cross_the_end(TimePoint now) noexcept {
  if (sending_) return false;
  if (stage_ == Stage::departing) {
    merge();
    stopped_ = watch_ = true;
    tell_all();
    stage_ = Stage::held;
    return true;
  }
  if (stage_ == Stage::held) {
    if (!clocks_.all_stopped()) return false;
    if (online_ != nullptr && !online_->may_depart(round_, now)) return false;
    stage_ = Stage::last_round;
    depart(now);
    return true;
  }
  if (!finished_) {
    finished_ = watch_ = true;
    tell_all();
  }
  if (!clocks_.all_finished()) return false;
  merge();
  leave_boundary();
  return true;
}

void FreeRounds::leave_boundary() noexcept {
  stage_ = Stage::away;
  passed_ = look_ = watch_ = true;
}

std::uint32_t FreeRounds::rounds_needed() const noexcept {
  if (!pace_.bounded || steps_ <= pace_.slack) return 0;
  return static_cast<std::uint32_t>(steps_ - pace_.slack);
}

void FreeRounds::merge() noexcept {
  float* w = memory_.parameters.data();
  if (!std::exchange(snapshot_is_current_, false)) {
    memory_.accumulator->move_to(w, memory_.snapshot.data());
  }
  memory_.accumulator->finish(w, memory_.snapshot.data());
  memory_.accumulator->begin(shape_.bytes);
  if (config_.observer != nullptr) config_.observer->merged();
}

}  // namespace selmcast
