// Rounds whose layers are handed over and given back one by one (order=priority, wait-free
// order=fifo).
//
// Backpropagation has the gradient of the last layer first, the next forward pass needs the first
// layer first. So each layer is a stream of its own within the round: it is sent when the
// application has handed it over, and mixed and given back when all ranks' frames of it have
// arrived. Whose frames go first is the order:
//   priority  the lowest layer that is ready (P3: Jayarajan, Wei, Gibson, Fedorova, Pekhimenko,
//             "Priority-based Parameter Propagation for Distributed DNN Training", SysML 2019).
//             What is preempted is the rest of a layer after the chunk under way, so a ready chunk
//             waits for at most one chunk of lower priority; P3's slices are these chunks.
//   fifo      as handed over.
// All layers share one pace, that of the plan.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/engine.h"

namespace selmcast {

/// What the rounds work on; all of it outlives them.
struct LayerMemory {
  std::span<float> parameters;  ///< The application's; a layer's from its push to its close.
  std::span<std::byte> stream;  ///< What is sent of them, in the type that travels.
  RegionId region = 0;          ///< The stream's.
};

/// Layer i of a round is what one call named so; layers lie one after the other in the memory.
/// Threads as with Engine: [app] and [driver] share the counts of each layer (layer_counts.h).
/// Allocates in the constructor and in prepare().
class LayerRounds {
 public:
  /// `sizes` are the layers' elements, together all of the memory's; at least one each.
  LayerRounds(FramePort& port, const EngineConfig& config, const StreamShape& shape,
              const LayerMemory& memory, std::span<const std::size_t> sizes);
  ~LayerRounds();

  std::size_t count() const noexcept { return layers_.size(); }

  // [app] Any thread.
  /// Hands the layer over; its parameters are not the application's until closed(). Several threads
  /// may hand over different layers at the same time.
  void push(std::size_t layer) noexcept;
  std::uint32_t pushed(std::size_t layer) const noexcept;
  /// To be parked on: rounds in which the layer was given back.
  const std::atomic<std::uint32_t>& closed(std::size_t layer) const noexcept;

  // [driver]
  /// The sessions of an epoch, with room for so many lanes.
  void prepare(EpochState& epoch, const ReceiveSettings& receive, std::uint32_t lanes_max);
  void begin(EpochState& epoch, std::uint32_t round, Kbps wire_kbps, TimePoint now) noexcept;
  /// Sends what may be sent and gives back what is complete.
  std::size_t progress(TimePoint now) noexcept;
  TimePoint next_timer() const noexcept;
  bool done() const noexcept { return open_ == 0; }
  /// A checked frame of `epoch` that is not data.
  void on_control(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept;
  /// A checked data frame of the running epoch from a rank that this round hears, or of another
  /// round.
  void on_data(EpochState& epoch, const ParsedFrame& frame, TimePoint now) noexcept;
  static void heard(EpochState& epoch, const FrameHeader& header, TimePoint now) noexcept;

  // Of the round: over all layers.
  std::uint64_t payload_bytes(const EpochState& epoch) const noexcept;
  static ReceiverState state_of_receiver(const EpochState& epoch, Rank rank) noexcept;
  static SenderState state_of_sender(const EpochState& epoch, Rank rank) noexcept;
  std::optional<Rank> mismatch() const noexcept;

 private:
  struct Layer;

  bool start_pushed(TimePoint now) noexcept;
  void close(Layer& layer) noexcept;

  FramePort& port_;
  EngineConfig config_;
  LayerMemory memory_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<TimePoint> pace_;  ///< When each lane may send again, whatever the layer.

  // Of the running round.
  EpochState* epoch_ = nullptr;
  std::uint32_t round_ = 0;
  Kbps wire_kbps_ = 1;
  std::size_t open_ = 0;              ///< Layers not given back.
  std::vector<std::size_t> sending_;  ///< In the order in which they may send; [0, sending_count_).
  std::size_t sending_count_ = 0;
};

}  // namespace selmcast
