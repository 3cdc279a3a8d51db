#include "sync/rounds/lock_step.h"

#include <algorithm>
#include <utility>

#include "sync/rounds/round_failures.h"

namespace selmcast {

LockStep::LockStep(const RoundContext& context)
    : context_(context), layers_(context.app.layers()), sending_(context.app.layers()) {}

// --- epochs --------------------------------------------------------------------------------------

std::uint32_t LockStep::offer(std::unique_ptr<EpochState> epoch) noexcept {
  pending_ = std::move(epoch);
  std::size_t most = 0;
  for (std::size_t slot = 0; slot < pending_->program.rounds.size(); ++slot) {
    std::size_t waiting = 0;
    for (std::size_t phase = 0; phase < pending_->program.phases; ++phase) {
      waiting += pending_->ways[slot * pending_->program.phases + phase].waiting.size();
    }
    most = std::max(most, waiting);
  }
  for (auto& layer : layers_) layer.ready.reserve(most);  // set-up: an epoch's
  return running_ ? round_ + 1 : round_;
}

std::size_t LockStep::read_mail() noexcept {
  if (pending_ == nullptr || running_) return 0;
  const auto first = context_.mail.epochs().activated();
  if (!first || round_ < *first) return 0;
  switch_epoch(*first);
  return 1;
}

void LockStep::switch_epoch(std::uint32_t first_round) noexcept {
  pending_->first_round = first_round;
  const auto& joined = pending_->program.receive_groups;
  auto changes = joined.size();
  if (current_ != nullptr) {
    std::size_t left = 0, kept = 0;
    for (const auto& held : current_->memberships) {
      if (held.as == JoinAs::send_only) continue;
      ++left;
      kept += std::binary_search(joined.begin(), joined.end(), held.group) ? 1 : 0;
    }
    changes += left - 2 * kept;
    // Leaves what the new epoch has not joined as well; that was done before.
    current_->memberships.clear();
    context_.reports.keep_received(*current_);
    switched_in_ = round_;
  }
  context_.reports.count_changes(changes);
  auto replaced = std::exchange(current_, std::move(pending_));
  context_.mail.epochs().retire(std::move(replaced));
}

// --- frames --------------------------------------------------------------------------------------

void LockStep::note_alive(const FrameHeader& header, TimePoint now) noexcept {
  EpochState* epoch = find(header.epoch);
  if (epoch == nullptr) epoch = current_.get();
  if (epoch == nullptr || header.stream >= epoch->streams.size()) return;
  epoch->streams[header.stream].sender->note_alive(header.sender, now);
  epoch->streams[header.stream].receiver->note_alive(header.sender, now);
}

bool LockStep::merges(EpochState& epoch, std::size_t layer, const FrameHeader& header) noexcept {
  // What came after a quorum is left out.
  const std::uint32_t frame = context_.memory.layers()[layer].shape.frame_at(header.offset);
  const std::size_t phase = epoch.phase_of(header.stream);
  for (const Ready& ready : layers_[layer].ready) {
    if (ready.what->leg.source == Leg::Source::arrived || ready.what->leg.fed_by != phase) continue;
    const FrameRange all = context_.memory.layers()[layer].shape.range_of(ready.what->leg.part);
    if (frame >= all.first && frame < ready.left.first) return false;
  }
  return true;
}

Windows::Stray LockStep::stray(const EpochState& epoch, const FrameHeader& header,
                               Verdict verdict) const noexcept {
  static_cast<void>(verdict);
  if (&epoch != current_.get()) return Stray::transition;
  if (epoch.hears(header.round, header.sender)) return Stray::late;
  // Around a change of view this rank is, or was until just now, in the groups of both.
  return pending_ != nullptr || switched_in_ == round_ ? Stray::transition : Stray::foreign;
}

// --- rounds --------------------------------------------------------------------------------------

bool LockStep::may_begin() const noexcept {
  if (current_ == nullptr || !context_.app.open()) return false;
  if (pending_ == nullptr) {
    // A view without the lost one is on its way; until then rounds would end without any mixing.
    const auto& needed = current_->program.needed;
    return std::none_of(needed.begin(), needed.end(),
                        [this](Rank rank) { return context_.mail.lost(rank); });
  }
  // An accepted offer holds this rank at the boundary it promised until the commit says where the
  // old epoch ends; before that end, rounds still belong to the old epoch.
  const auto first = context_.mail.epochs().activated();
  return first && round_ < *first;
}

void LockStep::begin(TimePoint now) noexcept {
  running_ = true;
  begun_ = now;
  wire_kbps_ =
      static_cast<Kbps>(context_.config.headroom * value_of(current_->round_of(round_).rate));
  open_ = layers_.size();
  sending_count_ = 0;
  context_.memory.begin(context_.app.part());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) begin_layer(layer, now);
}

void LockStep::begin_layer(std::size_t layer, TimePoint now) noexcept {
  const Program& program = current_->program;
  auto& memory = context_.memory.layers()[layer];
  auto& round = layers_[layer];
  round.started = round.given_back = false;
  round.ready.clear();
  std::size_t senders = 0;
  for (std::size_t phase = 0; phase < program.phases; ++phase) {
    senders += current_->ways_of(round_, phase).senders.size();
  }
  memory.accumulator->begin(memory.shape.bytes, program.epoch, program.members.size(),
                            current_->ways_of(round_, 0).senders);
  for (std::size_t phase = 0; phase < program.phases; ++phase) {
    const auto& ways = current_->ways_of(round_, phase);
    for (const auto& waiting : ways.waiting) {
      const FrameRange all = memory.shape.range_of(waiting.leg.part);
      round.ready.push_back({&waiting, phase, all, all.first == all.end});  // set-up: reserved
    }
    auto& receiver = *current_->stream_of(phase, layer).receiver;
    receiver.share(static_cast<std::uint32_t>(senders), ways.relays, now);
    receiver.begin(now, program.epoch, round_, ways.senders, memory.shape.bytes, ways.parts);
  }
}

void LockStep::start(std::size_t layer, TimePoint now) noexcept {
  auto& memory = context_.memory.layers()[layer];
  layers_[layer].started = true;
  context_.memory.say(memory);
  for (std::size_t phase = 0; phase < current_->program.phases; ++phase) {
    current_->stream_of(phase, layer)
        .sender->begin(now, current_->program.epoch, round_, memory.shape.bytes, memory.data,
                       current_->ways_of(round_, phase).lanes, wire_kbps_);
  }
}

std::size_t LockStep::start_handed_over(TimePoint now) noexcept {
  std::size_t started = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].started || !context_.app.layer_ready(i, layers_[i].rounds)) continue;
    start(i, now);
    ++started;
    std::size_t place = sending_count_++;
    if (context_.config.order == OrderKind::priority) {
      while (place > 0 && sending_[place - 1] > i) {
        sending_[place] = sending_[place - 1];
        --place;
      }
    }
    sending_[place] = i;
  }
  return started;
}

bool LockStep::frame_ready(std::size_t layer, const Ready& ready, std::uint32_t frame) noexcept {
  const Leg& leg = ready.what->leg;
  const auto& accumulator = *context_.memory.layers()[layer].accumulator;
  const auto& receiver = *current_->stream_of(leg.fed_by, layer).receiver;
  const std::uint32_t there = accumulator.contributors(frame);
  return there >= leg.expects || there + receiver.lacking(frame) >= ready.what->adding;
}

std::uint32_t LockStep::advance_arrived(std::size_t layer, const Ready& ready) noexcept {
  return current_->stream_of(ready.what->leg.fed_by, layer).receiver->arrived(ready.what->from);
}

bool LockStep::advance(std::size_t layer, Ready& ready) noexcept {
  if (ready.over) return false;
  const Leg& leg = ready.what->leg;
  auto& memory = context_.memory.layers()[layer];
  auto& stream = current_->stream_of(ready.phase, layer);
  const std::uint32_t before = ready.left.first;
  if (leg.source == Leg::Source::arrived) {
    ready.left.first = std::min(advance_arrived(layer, ready), ready.left.end);
  } else {
    while (ready.left.first < ready.left.end && frame_ready(layer, ready, ready.left.first)) {
      const std::uint32_t frame = ready.left.first++;
      if (leg.source == Leg::Source::sum) {
        memory.accumulator->sum_up(frame, memory.sent.data());
      } else {
        context_.memory.finish(memory, frame);
      }
    }
  }
  for (const std::uint32_t lane : ready.what->lanes) {
    if (ready.left.first != before) stream.sender->set_ready(lane, ready.left.first);
  }
  auto& fed = *current_->stream_of(leg.fed_by, layer).receiver;
  if (ready.left.first == ready.left.end) {
    ready.over = true;
    // Those that are not heard to the end came too late for a quorum.
    if (leg.source != Leg::Source::arrived) fed.enough(leg.part);
  } else if (leg.source == Leg::Source::arrived) {
    const SenderState from = fed.state(ready.what->from);
    if (from != SenderState::hearing && from != SenderState::complete) {
      ready.over = true;
      for (const std::uint32_t lane : ready.what->lanes) stream.sender->abandon(lane);
    }
  }
  return ready.left.first != before;
}

std::size_t LockStep::send(TimePoint now) noexcept {
  std::size_t done = start_handed_over(now);
  std::size_t kept = 0;
  for (std::size_t k = 0; k < sending_count_; ++k) {
    const std::size_t i = sending_[k];
    for (Ready& ready : layers_[i].ready) done += advance(i, ready) ? 1 : 0;
    bool over = true;
    for (std::size_t phase = 0; phase < current_->program.phases; ++phase) {
      auto& sender = *current_->stream_of(phase, i).sender;
      done += sender.progress(now);
      over = over && sender.done();
    }
    for (const Ready& ready : layers_[i].ready) over = over && ready.over;
    if (!over) sending_[kept++] = i;
  }
  sending_count_ = kept;
  return done;
}

bool LockStep::done(std::size_t layer) const noexcept {
  if (!layers_[layer].started) return false;
  for (const Ready& ready : layers_[layer].ready) {
    if (!ready.over) return false;
  }
  for (std::size_t phase = 0; phase < current_->program.phases; ++phase) {
    const auto& stream = current_->stream_of(phase, layer);
    if (!stream.sender->done() || !stream.receiver->done()) return false;
  }
  return true;
}

std::size_t LockStep::receive(TimePoint now) noexcept {
  std::size_t given_back = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].given_back) continue;
    bool matches = true;
    for (std::size_t phase = 0; phase < current_->program.phases; ++phase) {
      auto& receiver = *current_->stream_of(phase, i).receiver;
      receiver.progress(now);
      if (const auto bad = receiver.digest_mismatch()) {
        // The round stays open, so that nobody takes its result for one.
        fail_mismatch(context_, round_, *bad);
        matches = false;
      }
    }
    if (!matches || !done(i)) continue;
    give_back(i);
    ++given_back;
  }
  return given_back;
}

void LockStep::give_back(std::size_t layer) noexcept {
  auto& memory = context_.memory.layers()[layer];
  auto& receiver = *current_->stream_of(0, layer).receiver;
  for (const Rank from : current_->ways_of(round_, 0).senders) {
    if (receiver.state(from) == SenderState::complete) memory.accumulator->complete(from);
  }
  context_.memory.finish(memory);
  layers_[layer].given_back = true;
  --open_;
  context_.app.give_back_layer(layer, ++layers_[layer].rounds);
}

void LockStep::end(TimePoint now) noexcept {
  context_.reports.fill(context_.app.next_report(), {round_, now - begun_, wire_kbps_}, *current_,
                        nullptr);
  for (Rank rank = 0; rank < context_.config.world; ++rank) {
    const bool silent = RoundReports::reached(*current_, rank) == ReceiverState::evicted ||
                        RoundReports::heard(*current_, rank) == SenderState::silent;
    if (silent) context_.mail.suspect(rank, "made no progress within the timeout");
  }
  running_ = false;
  ++round_;
  context_.app.close();
}

std::size_t LockStep::progress(TimePoint now) noexcept {
  std::size_t done = 0;
  if (!running_) {
    if (!may_begin()) return 0;
    begin(now);
    ++done;
  }
  done += send(now);
  done += receive(now);
  if (open_ == 0) {
    end(now);
    ++done;
  }
  return done;
}

TimePoint LockStep::next_timer() const noexcept {
  TimePoint next = kNever;
  for (std::size_t i = 0; running_ && i < layers_.size(); ++i) {
    if (layers_[i].given_back) continue;
    for (std::size_t phase = 0; phase < current_->program.phases; ++phase) {
      const auto& stream = current_->stream_of(phase, i);
      next = std::min(next, stream.receiver->next_timer());
      if (layers_[i].started) next = std::min(next, stream.sender->next_timer());
    }
  }
  return next;
}

}  // namespace selmcast
