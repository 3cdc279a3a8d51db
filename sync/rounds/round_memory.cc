#include "sync/rounds/round_memory.h"

#include <algorithm>
#include <new>

namespace selmcast {
namespace {

/// What peers may read where the transport has reads.
Result<Region> register_sent(Transport& transport, std::span<const std::byte> memory) {
  RemoteReads* const reads = transport.abilities().reads;
  return reads != nullptr ? reads->register_readable(memory) : transport.register_memory(memory);
}

}  // namespace

RoundMemory::RoundMemory(Transport& transport, const DriverConfig& config,
                         std::span<float> parameters)
    : transport_(transport),
      element_(config.element),
      mix_(config.mix),
      deterministic_(config.deterministic),
      world_(config.world),
      gamma_(config.gamma),
      parameters_(parameters) {}

// set-up: runs before the first round.
Result<std::unique_ptr<RoundMemory>> RoundMemory::make(Transport& transport,
                                                       const DriverConfig& config,
                                                       const StreamShape& shape,
                                                       std::span<float> parameters) {
  std::unique_ptr<RoundMemory> out(new RoundMemory(transport, config, parameters));
  std::span<const std::byte> sent = std::as_bytes(parameters);
  if (config.element != WireElement::f32 || config.copies || config.free) {
    auto memory = Arena::map(shape.bytes);
    if (!memory) {
      return Error{memory.error().kind, "encoded parameters: " + memory.error().message};
    }
    out->copy_memory_ = std::move(memory).value();
    out->copy_ = out->copy_memory_.bytes().first(shape.bytes);
    sent = out->copy_;
  }
  auto region = register_sent(transport, sent);
  if (!region) return std::move(region).error();
  out->region_ = std::move(region).value();
  try {
    if (config.layers.empty()) {
      if (auto ok = out->add_layer(shape, {0, parameters.size()}); !ok)
        return std::move(ok).error();
    }
    out->layers_.reserve(std::max<std::size_t>(config.layers.size(), 1));
    std::size_t at = 0;
    for (const std::size_t size : config.layers) {
      StreamShape of_layer = shape;
      of_layer.bytes = size * bytes_of(config.element);
      if (auto ok = out->add_layer(of_layer, {at, size}); !ok) return std::move(ok).error();
      at += size;
    }
    SELMCAST_CHECK(config.layers.empty() || at == parameters.size(), "layers cover the parameters");
  } catch (const std::bad_alloc&) {
    const std::uint64_t bytes =
        parameters.size_bytes() * (config.deterministic ? 2 : 1) + out->copy_.size();
    return unavailable("no memory for an accumulator of " + std::to_string(bytes) +
                       " bytes beside the parameters; use fewer ranks on this host or a smaller " +
                       "set, or raise the limit (ulimit -v)");
  }
  out->begin({0, parameters.size()});
  return out;
}

// set-up: called by make() only.
Result<void> RoundMemory::add_layer(const StreamShape& shape, const Elements& which) {
  const auto size = bytes_of(element_);
  std::byte* const sent =
      copies() ? copy_.data() : reinterpret_cast<std::byte*>(parameters_.data());
  Layer layer;
  layer.whole = layer.shape = shape;
  layer.all_own = parameters_.subspan(which.first, which.count);
  layer.all_sent = {sent + which.first * size, which.count * size};
  std::optional<PairCredit> credit;
  if (mix_ == MixKind::age) credit.emplace(world_, gamma_);
  layer.accumulator =
      std::make_unique<Accumulator>(shape, mix_, deterministic_, element_, std::move(credit));
  layers_.push_back(std::move(layer));
  return {};
}

std::vector<TimePoint>& RoundMemory::pace(std::size_t phase, std::size_t lanes) {
  auto& out = paces_[phase];
  // Sessions of the epoch before keep pointers into it; with unicast there is a lane for every
  // other rank.
  if (out.empty()) out.resize(world_ + 1);  // set-up: as an epoch is prepared
  SELMCAST_CHECK(lanes <= out.size(), "a lane for every other rank at most");
  return out;
}

Result<void> RoundMemory::keep_relayed() {
  for (Layer& layer : layers_) {
    if (!layer.relayed.empty()) continue;
    layer.relayed.resize(layer.whole.bytes);  // set-up: as an epoch is prepared
    auto region = register_sent(transport_, std::as_bytes(std::span(layer.relayed)));
    if (!region) return std::move(region).error();
    layer.relayed_region = std::move(region).value();
  }
  return {};
}

Result<void> RoundMemory::send_sums() {
  if (mix_ != MixKind::sgd || element_ != WireElement::f32 || deterministic_) {
    return bad_input(
        "no plan: sums that are passed on need mix=sgd, codec=identity and sums that are not in "
        "fixed point");
  }
  for (Layer& layer : layers_) {
    if (layer.sums_region) continue;
    auto region = transport_.register_memory(std::as_bytes(layer.accumulator->sums()));
    if (!region) return std::move(region).error();
    layer.sums_region = std::move(region).value();
  }
  return {};
}

void RoundMemory::begin(const Elements& part) noexcept {
  const auto size = bytes_of(element_);
  for (Layer& layer : layers_) {
    layer.own = layer.all_own;
    layer.sent = layer.all_sent;
    if (layers_.size() == 1) {
      layer.own = layer.own.subspan(part.first, part.count);
      layer.sent = layer.sent.subspan(part.first * size, part.count * size);
    }
    layer.shape.bytes = layer.sent.size();
    layer.data[kOwn] = {layer.sent.data(), region_.id(), nullptr};
    layer.data[kSums] = {reinterpret_cast<const std::byte*>(layer.accumulator->sums().data()),
                         layer.sums_region.id(), layer.accumulator->weights()};
    layer.data[kRelayed] = {layer.relayed.data(), layer.relayed_region.id(), nullptr};
  }
}

void RoundMemory::say(Layer& layer) noexcept {
  if (copies()) kernels::encode(element_, layer.sent.data(), layer.own.data(), layer.own.size());
}

void RoundMemory::put(Layer& layer, std::uint64_t offset,
                      std::span<const std::byte> payload) noexcept {
  const auto size = bytes_of(element_);
  kernels::assign(element_, layer.own.data() + offset / size, payload.data(),
                  payload.size() / size);
}

void RoundMemory::take(Layer& layer, Leg::Combine how, const ParsedFrame& frame) noexcept {
  const FrameHeader& header = frame.header;
  switch (how) {
    case Leg::Combine::add:
      return layer.accumulator->add(layer.shape.frame_at(header.offset), header.sender,
                                    frame.payload, layer.sent.data(), header.weight);
    case Leg::Combine::replace:
      put(layer, header.offset, frame.payload);
      if (copies()) {
        std::copy(frame.payload.begin(), frame.payload.end(), layer.sent.data() + header.offset);
      }
      return;
    case Leg::Combine::forward:
      std::copy(frame.payload.begin(), frame.payload.end(), layer.relayed.data() + header.offset);
      return;
  }
}

void RoundMemory::finish(Layer& layer, std::uint32_t frame) noexcept {
  layer.accumulator->finish(frame, layer.own.data(), layer.sent.data());
  if (!copies()) return;
  // This rank takes it as all others read it.
  const std::uint64_t offset = layer.shape.offset_of(frame);
  const std::span sent = layer.sent.subspan(offset, layer.shape.length_of(frame));
  const auto size = bytes_of(element_);
  kernels::encode(element_, sent.data(), layer.own.data() + offset / size, sent.size() / size);
  put(layer, offset, sent);
}

void RoundMemory::finish(Layer& layer) noexcept {
  layer.accumulator->finish(layer.own.data(), layer.sent.data());
}

}  // namespace selmcast
