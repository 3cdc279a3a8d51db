// The registered memory of a rank's rounds, layer by layer: what is sent, and where what arrives
// goes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/arena.h"
#include "multicast/send_session.h"
#include "plan/program.h"
#include "sync/mix/accumulator.h"
#include "sync/rounds/driver_config.h"

namespace selmcast {

/// Consecutive elements of the registered parameters.
struct Elements {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Driver's thread. Allocates in make(), keep_relayed() and send_sums() only.
class RoundMemory {
 public:
  /// LaneSpec::data.
  static constexpr std::uint8_t kOwn = 0, kSums = 1, kRelayed = 2;

  /// One layer, or all that is handed over together.
  struct Layer {
    StreamShape whole;         ///< As it travels.
    StreamShape shape;         ///< The same of the running round.
    std::span<float> all_own;  ///< The application's.
    std::span<std::byte> all_sent;
    std::span<float> own;       ///< Of the running round.
    std::span<std::byte> sent;  ///< What this rank says of it: own, as it travels.
    std::unique_ptr<Accumulator> accumulator;
    std::array<RoundData, 3> data;
    std::vector<std::byte> relayed;
    Region sums_region, relayed_region;
  };

  /// `parameters` must outlive it. Errors: memory cannot be had or registered.
  static Result<std::unique_ptr<RoundMemory>> make(Transport& transport, const DriverConfig& config,
                                                   const StreamShape& shape,
                                                   std::span<float> parameters);

  std::span<Layer> layers() noexcept { return layers_; }
  std::span<float> parameters() const noexcept { return parameters_; }
  /// Whether what is sent is a copy of the parameters.
  bool copies() const noexcept { return !copy_.empty(); }
  std::span<std::byte> copy() noexcept { return copy_; }
  RegionId region() const noexcept { return region_.id(); }
  /// When each lane of a phase may send again, whatever the layer. The reference stays valid.
  std::vector<TimePoint>& pace(std::size_t phase, std::size_t lanes);

  /// Set-up, before a program with such legs: room for frames that are only passed on; sums that
  /// are sent.
  Result<void> keep_relayed();
  Result<void> send_sums();

  // Rounds.
  /// The next round is of this part of the parameters; all of them where there are layers.
  void begin(const Elements& part) noexcept;
  /// The layer's values are what this round says of it.
  void say(Layer& layer) noexcept;
  /// A fresh frame.
  void take(Layer& layer, Leg::Combine how, const ParsedFrame& frame) noexcept;
  /// The frame is what the round ends with: its mean is in the parameters and in what is sent.
  void finish(Layer& layer, std::uint32_t frame) noexcept;
  /// The rest of the layer.
  void finish(Layer& layer) noexcept;

 private:
  RoundMemory(Transport& transport, const DriverConfig& config, std::span<float> parameters);
  Result<void> add_layer(const StreamShape& shape, const Elements& which);
  void put(Layer& layer, std::uint64_t offset, std::span<const std::byte> payload) noexcept;

  Transport& transport_;
  WireElement element_;
  MixKind mix_;
  bool deterministic_;
  std::uint32_t world_;
  double gamma_;
  std::span<float> parameters_;
  Arena copy_memory_;
  std::span<std::byte> copy_;
  Region region_;
  std::vector<Layer> layers_;
  std::map<std::size_t, std::vector<TimePoint>> paces_;
};

}  // namespace selmcast
