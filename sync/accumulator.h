// Accumulator: where received updates are added, straight from the receive buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "multicast/stream_shape.h"
#include "sync/policy.h"

namespace selmcast {

/// One open round of one stream. Keeps a contributor count per frame, so that a sender that dies
/// in mid-round leaves whole frames, each divided by its own count. One thread.
///
/// `average`: own += sum(update - own) / (contributors + 1), the gossip mean in difference form,
/// which leaves equal inputs equal bit for bit (Xiao and Boyd 2004 give the weights for equal
/// degrees). `sgd`: own = (own + sum(update)) / (contributors + 1), the all-reduce mean of
/// gradients.
class Accumulator {
 public:
  /// Allocates sums of the stream's size (twice that when deterministic) and the counts.
  Accumulator(const StreamShape& shape, MixKind mix, bool deterministic);

  /// Forgets everything. O(frames).
  void begin() noexcept;
  /// Adds one received frame. `own` is the start of this rank's parameters.
  void add(std::uint32_t frame, std::span<const std::byte> payload, const float* own) noexcept;
  /// Mixes the sums into `own`. Frames without a contributor stay as they are.
  void finish(float* own) noexcept;

  std::uint32_t contributors(std::uint32_t frame) const noexcept { return counts_[frame]; }

 private:
  void finish_frame(std::uint32_t frame, float* own) noexcept;

  StreamShape shape_;
  MixKind mix_;
  bool deterministic_;
  std::vector<float> sums_;
  std::vector<std::int64_t> fixed_sums_;
  std::vector<std::uint16_t> counts_;
};

}  // namespace selmcast
