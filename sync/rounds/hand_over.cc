#include "sync/rounds/hand_over.h"

#include <utility>

#include "sync/rounds/parker.h"

namespace selmcast {

// set-up: runs before the first round.
HandOver::HandOver(std::size_t layers, const Elements& all, std::uint32_t world)
    : layer_count_(layers), layers_(std::make_unique<LayerCounts<>[]>(layers)), part_(all) {
  const auto reserve = [world](RoundReport& report) {
    report.receivers.reserve(world);
    report.given_up.reserve(world);
  };
  reserve(report_);
  for (auto& report : ended_) reserve(report);
  for (auto& report : next_) reserve(report);
}

void HandOver::push(const Elements& part) noexcept {
  part_ = part;
  for (std::size_t layer = 0; layer < layer_count_; ++layer) push_layer(layer);
}

void HandOver::push_layer(std::size_t layer) noexcept {
  // Before the layer itself: once that is handed over the round may end, and the next one begin.
  if (opening_.first_of(layer_count_)) {
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  SELMCAST_CHECK(layers_[layer].push(), "a layer is handed over once in a round");
}

void HandOver::give_back_layer(std::size_t layer, std::uint32_t rounds) noexcept {
  layers_[layer].give_back(rounds);
  // Of one layer closed() is what is waited for.
  if (layer_count_ > 1) unpark(layers_[layer].closed());
}

RoundReport& HandOver::next_report() noexcept {
  SELMCAST_CHECK(next_count_ < kEndedMax, "few rounds end between two closes");
  return next_[next_count_++];
}

void HandOver::close() noexcept {
  std::swap(ended_, next_);
  ended_count_ = std::exchange(next_count_, 0);
  if (ended_count_ > 0) report_ = ended_[ended_count_ - 1];
  closed_.store(closed_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  unpark(closed_);
}

void HandOver::wake_all() noexcept {
  unpark(closed_);
  for (std::size_t layer = 0; layer < layer_count_; ++layer) unpark(layers_[layer].closed());
}

}  // namespace selmcast
