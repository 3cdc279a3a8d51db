// Rounds and frames: what the driver does between set-up and the end.
#include <algorithm>
#include <array>
#include <limits>

#include "multicast/received_frames.h"
#include "sync/engine.h"
#include "sync/free/free_rounds.h"
#include "sync/layers/layer_rounds.h"
#include "sync/parker.h"

namespace selmcast {

std::size_t Engine::progress(TimePoint now) noexcept {
  if (port_ == nullptr) return 0;
  if (failed_.load(std::memory_order_acquire)) {
    port_->withdraw_all();  // The application may do with its parameters what it likes.
    return 0;
  }
  std::size_t done = read_mail();
  done += poll_transport(now);
  if (failed_.load(std::memory_order_relaxed)) return done;
  if (free_ != nullptr) return done + progress_free(now);
  if (layers_ != nullptr) return done + progress_layers(now);
  if (!running_ && may_begin()) {
    begin_round(now);
    ++done;
  }
  if (running_) {
    done += current_->sender->progress(now);
    current_->receiver->progress(now);
    // The round stays open, so that nobody takes its result for one.
    if (const auto bad = current_->receiver->digest_mismatch()) {
      fail_mismatch(*bad);
      return done;
    }
  }
  port_->flush();
  if (port_->broken()) fail_broken();
  // Not when the round begins: what its other senders send would then share this rank's link with
  // those that it hears. Before the round closes: groups take a while to take effect.
  if (running_ && !joined_next_ && current_->receiver->done()) {
    join_for_next();  // set-up: under a join budget only.
  }
  if (running_ && current_->sender->done() && current_->receiver->done()) {
    close_round(now);
    ++done;
  }
  return done;
}

TimePoint Engine::next_timer() const noexcept {
  if (free_ != nullptr) return free_->next_timer();
  if (!running_) return kNever;
  if (layers_ != nullptr) return layers_->next_timer();
  return std::min(current_->sender->next_timer(), current_->receiver->next_timer());
}

std::size_t Engine::poll_transport(TimePoint now) noexcept {
  const std::size_t count = transport_.poll(completions_);
  std::size_t lent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = completions_[i];
    if (completion.kind == Completion::Kind::send) {
      port_->on_send_completion(completion);
    } else if (completion.kind == Completion::Kind::receive) {
      if (LandingQueue* const queue = landing_queue_of(completion)) {
        on_landed(*queue, completion, now);
      } else {
        on_frames(completion, now);
      }
      returns_[lent++] = ReceiveRequest{completion.token};
    } else if (completion.kind == Completion::Kind::read) {
      puller_->on_completion(completion);
    }
    // A `lost` completion only tells early what the store tells all ranks alike.
  }
  if (lent > 0 && transport_.post_receives({returns_.data(), lent}).state == PostState::broken) {
    fail(selmcast::failed("rank " + std::to_string(config_.self) + ": " + transport_.last_error() +
                          "; it stood still for longer than the timeout"));
  }
  if (puller_ != nullptr) {
    puller_->deliver([&](const ParsedFrame& frame) { on_checked(frame, now); });
  }
  if (landing_ != nullptr) landing_->refill();
  return count;
}

void Engine::on_frames(const Completion& completion, TimePoint now) noexcept {
  each_frame(completion, config_.job, [&](const ParsedFrame& frame) { on_parsed(frame, now); });
}

EpochState* Engine::epoch_of(std::uint32_t epoch) noexcept {
  if (pending_ != nullptr && pending_->program.epoch == epoch) return pending_.get();
  return current_.get();
}

void Engine::on_parsed(const ParsedFrame& frame, TimePoint now) noexcept {
  if (frame.error != FrameError::none || frame.header.sender >= config_.world) return;
  // A group that this rank both sends to and hears may loop its own frames back.
  if (frame.header.sender == config_.self) return;
  on_checked(frame, now);
}

void Engine::on_checked(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  if (free_ != nullptr) return free_->on_frame(frame, now);
  EpochState* epoch = epoch_of(header.epoch);
  if (epoch == nullptr) return;
  if (layers_ != nullptr) {
    LayerRounds::heard(*epoch, header, now);
    if (header.kind == FrameKind::data) return on_data(frame, now);
    return layers_->on_control(*epoch, frame, now);
  }
  epoch->sender->heard(header.sender, now);
  epoch->receiver->heard(header.sender, now);
  switch (header.kind) {
    case FrameKind::data:
      return on_data(frame, now);
    case FrameKind::credit:
    case FrameKind::nack:
    case FrameKind::ack:
      return epoch->sender->on_control(header, frame.payload, now);
    case FrameKind::tail:
    case FrameKind::evict:
      return epoch->receiver->on_control(header, frame.payload, now);
    case FrameKind::alive:
    case FrameKind::clock:
    case FrameKind::request:
    case FrameKind::plan:
      return;  // heard() above is all it is for.
  }
}

void Engine::on_data(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  if (current_ == nullptr) return;
  if (header.epoch != current_->program.epoch) {
    ++transition_frames_;
    return;
  }
  const RoundPlan& plan = current_->plan_of(header.round);
  const auto& senders = plan.senders;
  if (!std::binary_search(senders.begin(), senders.end(), header.sender)) {
    // Around a change of view this rank is, or was until just now, in the groups of both; under a
    // join budget it is in the groups of senders that it hears a round later.
    const bool changing =
        pending_ != nullptr || switched_in_ == round_ || in_group_of(header.sender);
    ++(changing ? transition_frames_ : foreign_frames_);
    return;
  }
  if (layers_ != nullptr) return layers_->on_data(*current_, frame, now);
  if (current_->receiver->on_data(header, frame.payload, now) != Verdict::fresh) return;
  if (plan.replaces) return replace(header.offset, frame.payload);
  const std::uint32_t index = shape_.frame_at(header.offset);
  if (landing_ != nullptr && landing_->put(header.sender, index, frame.payload)) return;
  if (config_.table != nullptr) table_bytes_ += frame.payload.size();
  accumulator_->add(index, header.sender, frame.payload, sent_.data());
}

void Engine::replace(std::uint64_t offset, std::span<const std::byte> payload) noexcept {
  const auto size = bytes_of(config_.element);
  kernels::assign(config_.element, own_.data() + offset / size, payload.data(),
                  payload.size() / size);
}

void Engine::finish_mix() noexcept {
  const RoundPlan& plan = current_->plan_of(round_);
  if (!plan.replaces) return accumulator_->finish(own_.data(), sent_.data());
  // A server takes its own share as all others read it.
  if (encoded_.empty() || plan.receivers.empty()) return;
  StreamShape shape = shape_;
  shape.bytes = sent_.size();
  const FrameRange mine = shape.range_of(plan.shards.front());
  const auto first = std::min(shape.offset_of(mine.first), shape.bytes);
  const auto end = std::min(shape.offset_of(mine.end), shape.bytes);
  replace(first, sent_.subspan(first, end - first));
}

bool Engine::lacks_server() const noexcept {
  if (closed_.load(std::memory_order_relaxed) % config_.rounds_per_exchange != 0) return false;
  const auto& servers = current_->program.servers;
  // A view without the lost one is on its way; until then exchanges would end without any mixing.
  return std::any_of(servers.begin(), servers.end(), [this](Rank rank) {
    return lost_[rank].load(std::memory_order_relaxed) != 0;
  });
}

bool Engine::may_begin() const noexcept {
  // Rounds are counted by closed_, which only this thread writes.
  if (pushed_.load(std::memory_order_acquire) == closed_.load(std::memory_order_relaxed))
    return false;
  if (current_ == nullptr) return false;
  if (pending_ == nullptr) return !lacks_server();
  // An accepted offer holds this rank at the boundary it promised until the commit says where the
  // old epoch ends; before that end, rounds still belong to the old epoch.
  const auto first = mailbox_.activated();
  return first && round_ < *first;
}

Kbps Engine::wire_rate(const RoundPlan& plan) const noexcept {
  return static_cast<Kbps>(config_.headroom * static_cast<double>(plan.rate.num) /
                           static_cast<double>(plan.rate.den));
}

void Engine::begin_round(TimePoint now) noexcept {
  const Program& program = current_->program;
  const std::size_t slot = current_->slot_of(round_);
  running_ = true;
  joined_next_ = false;
  round_begun_ = now;
  at_begin_ = totals();
  const auto size = bytes_of(config_.element);
  own_ = parameters_.subspan(part_.first, part_.count);
  sent_ = stream_.subspan(part_.first * size, part_.count * size);
  if (!encoded_.empty()) {
    kernels::encode(config_.element, encoded_.data() + part_.first * size, own_.data(),
                    own_.size());
  }
  const RoundPlan& plan = program.cycle[slot];
  accumulator_->begin(sent_.size(), program.epoch, program.members.size(), plan.senders);
  if (landing_ != nullptr && sent_.size() == shape_.bytes) {
    landing_->open(program.epoch, round_, plan);
  }
  current_->receiver->begin(now, program.epoch, round_, plan.senders, sent_.size(),
                            plan.sender_shards);
  current_->sender->begin(now, program.epoch, round_, sent_, stream_region_.id(),
                          current_->lanes[slot], wire_rate(plan));
}

Engine::Totals Engine::totals() const noexcept {
  Totals out;
  out.port = port_->counters();
  if (layers_ != nullptr) {
    out.rx_payload_bytes = layers_->payload_bytes(*current_);
    for (const auto& layer : current_->layers) {
      out.read_frames += layer.receiver->counters().read_frames;
    }
  } else if (current_ != nullptr) {
    out.rx_payload_bytes = current_->receiver->counters().payload_bytes;
    out.read_frames = current_->receiver->counters().read_frames;
  }
  if (landing_ != nullptr) out.landing = landing_->counters();
  out.landing.copied_bytes += table_bytes_;
  return out;
}

void Engine::close_round(TimePoint now) noexcept {
  for (const Rank from : current_->plan_of(round_).senders) {
    if (current_->receiver->state(from) == SenderState::complete) accumulator_->complete(from);
    if (landing_ != nullptr && !close_landing(from)) return;
  }
  finish_mix();
  leave_groups();  // set-up: under a join budget only.
  fill_report(now);
  end_round();
}

void Engine::end_round() noexcept {
  running_ = false;
  ++round_;
  closed_.store(closed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  unpark(closed_);
}

void Engine::fill_report(TimePoint now) noexcept {
  const RoundPlan& plan = current_->plan_of(round_);
  const Totals end = totals();
  const Totals& begin = at_begin_;
  const auto in_exchange = closed_.load(std::memory_order_relaxed) % config_.rounds_per_exchange;
  if (in_exchange == 0) {
    // Its vectors keep their capacity.
    report_.receivers.clear();
    report_.given_up.clear();
    report_.ms = 0.0;
    report_.rate_kbps = std::numeric_limits<Kbps>::max();
    report_.tx_first_bytes = report_.tx_repair_bytes = report_.tx_patch_bytes = report_.tx_bytes =
        report_.rx_payload_bytes = report_.repaired_frames = report_.read_frames =
            report_.landed_frames = report_.landed_bytes = report_.misplaced_frames =
                report_.copied_bytes = 0;
    report_.verified = true;
  }
  report_.round = round_ / config_.rounds_per_exchange;
  report_.epoch = current_->program.epoch;
  report_.ms += std::chrono::duration<double, std::milli>(now - round_begun_).count();
  const double frame = shape_.frame_payload;
  const double on_wire = frame + kFrameHeaderBytes + transport_.capabilities().wire_overhead_bytes;
  const auto rate = static_cast<Kbps>(config_.headroom * static_cast<double>(plan.rate.num) /
                                      static_cast<double>(plan.rate.den) * frame / on_wire);
  report_.rate_kbps = std::min(report_.rate_kbps, rate);
  const auto first = end.port.first_bytes - begin.port.first_bytes;
  const auto repair = end.port.repair_bytes - begin.port.repair_bytes;
  const auto patch = end.port.patch_bytes - begin.port.patch_bytes;
  report_.tx_first_bytes += first;
  report_.tx_repair_bytes += repair;
  report_.tx_patch_bytes += patch;
  report_.tx_bytes += first + repair + patch + (end.port.control_bytes - begin.port.control_bytes);
  report_.rx_payload_bytes += end.rx_payload_bytes - begin.rx_payload_bytes;
  report_.repaired_frames += end.port.repaired_frames - begin.port.repaired_frames;
  report_.read_frames += end.read_frames - begin.read_frames;
  report_.landed_frames += end.landing.landed_frames - begin.landing.landed_frames;
  report_.landed_bytes += end.landing.landed_bytes - begin.landing.landed_bytes;
  report_.misplaced_frames += end.landing.misplaced_frames - begin.landing.misplaced_frames;
  report_.copied_bytes += end.landing.copied_bytes - begin.landing.copied_bytes;
  if (in_exchange + 1 == config_.rounds_per_exchange) {
    // Those that came while this rank held at a boundary belong to the round that followed.
    report_.foreign_frames = std::exchange(foreign_frames_, 0);
    report_.transition_frames = std::exchange(transition_frames_, 0);
    report_.membership_changes = std::exchange(membership_changes_, 0);
  }
  report_peers();
}

void Engine::report_peers() noexcept {
  const RoundPlan& plan = current_->plan_of(round_);
  // Capacity for every rank was reserved at construction; a rank is listed once an exchange.
  const auto list = [](std::vector<Rank>& ranks, Rank rank) {
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (at == ranks.end() || *at != rank) ranks.insert(at, rank);  // set-up: reserved
  };
  std::uint32_t unheard = 0, heard = 0;
  for (Rank rank = 0; rank < config_.world; ++rank) {
    const ReceiverState to = layers_ != nullptr ? LayerRounds::state_of_receiver(*current_, rank)
                                                : current_->sender->state(rank);
    const SenderState from = layers_ != nullptr ? LayerRounds::state_of_sender(*current_, rank)
                                                : current_->receiver->state(rank);
    if (to == ReceiverState::acked) list(report_.receivers, rank);
    const bool silent = to == ReceiverState::evicted || from == SenderState::silent;
    if (silent || to == ReceiverState::lost || to == ReceiverState::gave_up ||
        from == SenderState::lost || from == SenderState::evicted_us) {
      list(report_.given_up, rank);
    }
    if (from == SenderState::complete) ++heard;
    if (from != SenderState::none && from != SenderState::complete) ++unheard;
    if (silent) suspect(rank, "made no progress within the timeout");
  }
  // With layers a sender counts as heard when every layer of it matched its digest.
  const auto matched = layers_ != nullptr ? heard : current_->receiver->matched();
  report_.verified = report_.verified && matched + unheard == plan.senders.size();
}

}  // namespace selmcast
