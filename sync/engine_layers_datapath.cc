// The engine where layers are handed over one by one: what joins sync/layers/ to the mailboxes, the
// transport and the application.
#include "sync/engine.h"
#include "sync/layers/layer_rounds.h"
#include "sync/parker.h"

namespace selmcast {

void Engine::set_up_layers() {
  const auto bytes = std::span(
      encoded_.empty() ? reinterpret_cast<std::byte*>(parameters_.data()) : encoded_.data(),
      shape_.bytes);
  layers_ = std::make_unique<LayerRounds>(  // set-up: made once
      *port_, config_, shape_, LayerMemory{parameters_, bytes, stream_region_.id()},
      config_.layers);
}

void Engine::push_layer(std::size_t layer) noexcept {
  SELMCAST_CHECK(layers_ != nullptr && layer < layers_->count(), "a layer that was registered");
  // Before the layer itself: once that is handed over the round may end, and the next one begin.
  if (round_opening_.first_of(layers_->count())) {
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  layers_->push(layer);
  // After both: whichever thread's news the driver missed before it went to sleep, that thread
  // wakes it.
  transport_.wake();
}

bool Engine::layer_closed(std::size_t layer) const noexcept {
  return layers_->closed(layer).load(std::memory_order_acquire) == layers_->pushed(layer);
}

Result<void> Engine::wait_layer(std::size_t layer) {
  while (!layer_closed(layer)) {
    if (failed()) return error_;
    const auto& closed = layers_->closed(layer);
    // Bounds a lost wake-up only, as in wait().
    park(closed, layers_->pushed(layer) - 1, std::chrono::milliseconds(100));
  }
  return {};
}

std::size_t Engine::progress_layers(TimePoint now) noexcept {
  std::size_t done = 0;
  if (!running_ && may_begin()) {
    const RoundPlan& plan = current_->plan_of(round_);
    running_ = true;
    round_begun_ = now;
    at_begin_ = totals();
    layers_->begin(*current_, round_, wire_rate(plan), now);
    ++done;
  }
  if (running_) {
    done += layers_->progress(now);
    if (const auto bad = layers_->mismatch()) fail_mismatch(*bad);
  }
  port_->flush();
  if (port_->broken()) fail_broken();
  if (running_ && layers_->done()) {
    fill_report(now);
    end_round();
    ++done;
  }
  return done;
}

}  // namespace selmcast
