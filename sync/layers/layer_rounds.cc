#include "sync/layers/layer_rounds.h"

#include <algorithm>

#include "sync/layers/layer_counts.h"
#include "sync/parker.h"

namespace selmcast {

struct LayerRounds::Layer {
  StreamShape shape;
  std::span<float> own;
  std::span<std::byte> sent;
  Accumulator accumulator;
  bool started = false, given_back = true;
  std::uint32_t rounds = 0;  ///< Given back so often.
  LayerCounts<> counts;

  Layer(const Elements& which, const StreamShape& how, const LayerMemory& memory,
        const EngineConfig& config)
      : shape(how),
        own(memory.parameters.subspan(which.first, which.count)),
        sent(memory.stream.subspan(which.first * bytes_of(config.element),
                                   which.count * bytes_of(config.element))),
        accumulator(shape, config.mix, config.deterministic, config.element) {}
};

LayerRounds::LayerRounds(FramePort& port, const EngineConfig& config, const StreamShape& shape,
                         const LayerMemory& memory, std::span<const std::size_t> sizes)
    : port_(port),
      config_(config),
      memory_(memory),
      // Sessions keep pointers into it; with unicast there is a lane for every other rank.
      pace_(config.world + 1),
      sending_(sizes.size()) {
  SELMCAST_CHECK(config.mix == MixKind::sgd && !config.free && config.rounds_per_exchange == 1,
                 "layers are of gradients, in lock-step");
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    StreamShape own = shape;
    own.bytes = size * bytes_of(config.element);
    layers_.push_back(                                                      // set-up:
        std::make_unique<Layer>(Elements{at, size}, own, memory, config));  // set-up:
    at += size;
  }
  SELMCAST_CHECK(at == memory.parameters.size(), "layers cover the parameters");
}

LayerRounds::~LayerRounds() = default;

void LayerRounds::push(std::size_t layer) noexcept {
  SELMCAST_CHECK(layers_[layer]->counts.push(), "a layer is handed over once in a round");
}

std::uint32_t LayerRounds::pushed(std::size_t layer) const noexcept {
  return layers_[layer]->counts.pushed();
}

const std::atomic<std::uint32_t>& LayerRounds::closed(std::size_t layer) const noexcept {
  return layers_[layer]->counts.closed();
}

void LayerRounds::prepare(EpochState& epoch, const ReceiveSettings& receive,
                          std::uint32_t lanes_max) {
  const auto& caps = port_.transport().capabilities();
  // Only a few layers are under way at a time, and their frames share the buffers.
  constexpr std::size_t kShareMax = 4;
  const std::uint64_t share = std::min(kShareMax, layers_.size());
  epoch.layer_receivers = PeerDeadlines::of_receivers(port_.world(), config_.timeout);
  epoch.layer_senders = PeerDeadlines::of_senders(port_.world(), config_.timeout);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto stream = static_cast<std::uint16_t>(i);
    ReceiveSettings in = receive;
    in.shape = layers_[i]->shape;
    in.stream = stream;
    in.window_bytes /= share;
    in.sender_window_bytes /= share;
    in.deadlines = &*epoch.layer_senders;
    SendSettings out{layers_[i]->shape, caps.wire_overhead_bytes, config_.timeout, lanes_max};
    out.stream = stream;
    out.pace = &pace_;
    out.deadlines = &*epoch.layer_receivers;
    epoch.layers.push_back(                              // set-up:
        {std::make_unique<SendSession>(port_, out),      // set-up:
         std::make_unique<ReceiveSession>(port_, in)});  // set-up:
  }
}

void LayerRounds::begin(EpochState& epoch, std::uint32_t round, Kbps wire_kbps,
                        TimePoint now) noexcept {
  epoch_ = &epoch;
  round_ = round;
  wire_kbps_ = wire_kbps;
  open_ = layers_.size();
  sending_count_ = 0;
  const RoundPlan& plan = epoch.plan_of(round);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = *layers_[i];
    layer.started = layer.given_back = false;
    layer.accumulator.begin(layer.shape.bytes);
    epoch.layers[i].receiver->begin(now, epoch.program.epoch, round, plan.senders,
                                    layer.shape.bytes);
  }
}

bool LayerRounds::start_pushed(TimePoint now) noexcept {
  bool any = false;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = *layers_[i];
    if (layer.started || !layer.counts.ready(layer.rounds)) continue;
    layer.started = any = true;
    if (config_.element != WireElement::f32) {
      kernels::encode(config_.element, layer.sent.data(), layer.own.data(), layer.own.size());
    }
    epoch_->layers[i].sender->begin(now, epoch_->program.epoch, round_, layer.sent, memory_.region,
                                    epoch_->lanes[epoch_->slot_of(round_)], wire_kbps_);
    std::size_t place = sending_count_++;
    if (config_.order == OrderKind::priority) {
      while (place > 0 && sending_[place - 1] > i) {
        sending_[place] = sending_[place - 1];
        --place;
      }
    }
    sending_[place] = i;
  }
  return any;
}

void LayerRounds::close(Layer& layer) noexcept {
  layer.accumulator.finish(layer.own.data(), layer.sent.data());
  layer.given_back = true;
  ++layer.rounds;
  --open_;
  layer.counts.give_back(layer.rounds);
  unpark(layer.counts.closed());
}

std::size_t LayerRounds::progress(TimePoint now) noexcept {
  std::size_t done = start_pushed(now) ? 1 : 0;
  std::size_t kept = 0;
  for (std::size_t k = 0; k < sending_count_; ++k) {
    const std::size_t i = sending_[k];
    auto& sender = *epoch_->layers[i].sender;
    done += sender.progress(now);
    if (!sender.done()) sending_[kept++] = i;
  }
  sending_count_ = kept;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& layer = *layers_[i];
    auto& sessions = epoch_->layers[i];
    if (layer.given_back) continue;
    sessions.receiver->progress(now);
    if (!layer.started || !sessions.sender->done() || !sessions.receiver->done()) continue;
    if (sessions.receiver->digest_mismatch()) continue;
    close(layer);
    ++done;
  }
  return done;
}

TimePoint LayerRounds::next_timer() const noexcept {
  TimePoint next = kNever;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i]->given_back) continue;
    next = std::min(next, epoch_->layers[i].receiver->next_timer());
    if (layers_[i]->started) next = std::min(next, epoch_->layers[i].sender->next_timer());
  }
  return next;
}

void LayerRounds::heard(EpochState& epoch, const FrameHeader& header, TimePoint now) noexcept {
  if (header.stream >= epoch.layers.size()) return;
  epoch.layers[header.stream].sender->heard(header.sender, now);
  epoch.layers[header.stream].receiver->heard(header.sender, now);
}

void LayerRounds::on_control(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  if (header.stream >= epoch.layers.size()) return;
  auto& sessions = epoch.layers[header.stream];
  if (header.kind == FrameKind::tail || header.kind == FrameKind::evict) {
    sessions.receiver->on_control(header, frame.payload, now);
  } else if (header.kind != FrameKind::alive && header.kind != FrameKind::clock) {
    sessions.sender->on_control(header, frame.payload, now);
  }
}

void LayerRounds::on_data(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  if (header.stream >= epoch.layers.size()) return;
  const Verdict verdict = epoch.layers[header.stream].receiver->on_data(header, frame.payload, now);
  if (verdict != Verdict::fresh) return;
  auto& layer = *layers_[header.stream];
  layer.accumulator.add(layer.shape.frame_at(header.offset), header.sender, frame.payload,
                        layer.sent.data());
}

std::uint64_t LayerRounds::payload_bytes(const EpochState& epoch) const noexcept {
  std::uint64_t sum = 0;
  for (const auto& sessions : epoch.layers) sum += sessions.receiver->counters().payload_bytes;
  return sum;
}

ReceiverState LayerRounds::state_of_receiver(const EpochState& epoch, Rank rank) noexcept {
  for (const auto& sessions : epoch.layers) {
    const auto state = sessions.sender->state(rank);
    if (state != ReceiverState::acked) return state;
  }
  return ReceiverState::acked;
}

SenderState LayerRounds::state_of_sender(const EpochState& epoch, Rank rank) noexcept {
  for (const auto& sessions : epoch.layers) {
    const auto state = sessions.receiver->state(rank);
    if (state != SenderState::complete) return state;
  }
  return SenderState::complete;
}

std::optional<Rank> LayerRounds::mismatch() const noexcept {
  for (const auto& sessions : epoch_->layers) {
    if (const auto bad = sessions.receiver->digest_mismatch()) return bad;
  }
  return std::nullopt;
}

}  // namespace selmcast
