// Rounds in lock-step: the windows of all senders open together, and the round ends when all are
// settled.
//
// Layers. Backpropagation has the gradient of the last layer first, the next forward pass needs the
// first layer first. So each layer is a stream of its own within the round: it is sent when the
// application has handed it over, and mixed and given back when all ranks' frames of it have
// arrived. Whose frames go first is the order:
//   priority  the lowest layer that is ready (P3: Jayarajan, Wei, Gibson, Fedorova, Pekhimenko,
//             "Priority-based Parameter Propagation for Distributed DNN Training", SysML 2019).
//             What is preempted is the rest of a layer after the chunk under way, so a ready chunk
//             waits for at most one chunk of lower priority; P3's slices are these chunks.
//   fifo      as handed over.
// All layers share one pace, that of the plan. Where everything is handed over together there is
// one layer.
//
// Ready frames. A leg whose source is not the snapshot sends frames as they become ready: a sum or
// mean when its contributions are there (of senders that died: when no more can come), what is
// passed on when it has arrived. So reductions, trees and chains pipeline within the round.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sync/rounds/windows.h"

namespace selmcast {

class LockStep final : public Windows {
 public:
  explicit LockStep(const RoundContext& context);

  std::uint32_t offer(std::unique_ptr<EpochState> epoch) noexcept override;
  bool offered() const noexcept override { return pending_ != nullptr; }
  std::size_t read_mail() noexcept override;
  EpochState* fallback() noexcept override { return current_.get(); }
  void note_alive(const FrameHeader& header, TimePoint now) noexcept override;
  bool merges(EpochState& epoch, std::size_t layer, const FrameHeader& header) noexcept override;
  Stray stray(const EpochState& epoch, const FrameHeader& header,
              Verdict verdict) const noexcept override;
  std::size_t progress(TimePoint now) noexcept override;
  TimePoint next_timer() const noexcept override;

 private:
  std::array<EpochState*, 2> epochs() const noexcept override {
    return {current_.get(), pending_.get()};
  }
  /// A lane's frames that become ready, of one layer.
  struct Ready {
    const EpochState::Waiting* what = nullptr;
    std::size_t phase = 0;
    FrameRange left;  ///< Not ready yet.
    bool over = false;
  };
  struct LayerRound {
    bool started = false, given_back = true;
    std::uint32_t rounds = 0;  ///< Given back so often.
    std::vector<Ready> ready;
  };

  void switch_epoch(std::uint32_t first_round) noexcept;
  bool may_begin() const noexcept;
  void begin(TimePoint now) noexcept;
  void begin_layer(std::size_t layer, TimePoint now) noexcept;
  void start(std::size_t layer, TimePoint now) noexcept;
  std::size_t start_handed_over(TimePoint now) noexcept;
  std::size_t send(TimePoint now) noexcept;
  std::size_t receive(TimePoint now) noexcept;
  bool advance(std::size_t layer, Ready& ready) noexcept;
  bool frame_ready(std::size_t layer, const Ready& ready, std::uint32_t frame) noexcept;
  std::uint32_t advance_arrived(std::size_t layer, const Ready& ready) noexcept;
  bool done(std::size_t layer) const noexcept;
  void give_back(std::size_t layer) noexcept;
  void end(TimePoint now) noexcept;

  RoundContext context_;
  std::unique_ptr<EpochState> current_, pending_;
  std::vector<LayerRound> layers_;
  // Of the running round, or the next one.
  std::uint32_t round_ = 0;
  bool running_ = false;
  TimePoint begun_{};
  Kbps wire_kbps_ = 1;
  std::size_t open_ = 0;              ///< Layers not given back.
  std::vector<std::size_t> sending_;  ///< In the order in which they may send; [0, sending_count_).
  std::size_t sending_count_ = 0;
  std::optional<std::uint32_t> switched_in_;  ///< First round of an epoch that replaced another.
};

}  // namespace selmcast
