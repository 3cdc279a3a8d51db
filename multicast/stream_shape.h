// How a registered parameter set is cut into frames and chunks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shard.h"
#include "multicast/frame.h"

namespace selmcast {

/// Consecutive frames [first, end).
struct FrameRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;

  bool operator==(const FrameRange&) const = default;
};

/// Frame f holds bytes [f * frame_payload, min(bytes, (f + 1) * frame_payload)): only the last
/// frame of a stream may be short. A chunk is `chunk_frames` consecutive frames, one send request.
struct StreamShape {
  std::uint64_t bytes = 0;
  std::uint32_t frame_payload = 0;  ///< A multiple of 8, so that no element is cut.
  std::uint32_t chunk_frames = 1;

  std::uint32_t frames() const noexcept {
    return static_cast<std::uint32_t>((bytes + frame_payload - 1) / frame_payload);
  }
  /// The parts differ by a frame at most; with more parts than frames some are empty.
  FrameRange range_of(Shard shard) const noexcept {
    const auto cut = [&](std::uint64_t index) {
      return static_cast<std::uint32_t>(index * frames() / shard.of);
    };
    return {cut(shard.index), cut(std::uint64_t{shard.index} + 1)};
  }
  std::uint64_t offset_of(std::uint32_t frame) const noexcept {
    return std::uint64_t{frame} * frame_payload;
  }
  std::uint32_t length_of(std::uint32_t frame) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(frame_payload, bytes - offset_of(frame)));
  }
  /// First frame whose bytes all lie at or beyond `offset` if `offset` is a frame boundary.
  std::uint32_t frame_at(std::uint64_t offset) const noexcept {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(offset, bytes) / frame_payload +
                                      (offset >= bytes && bytes % frame_payload != 0 ? 1 : 0));
  }
};

}  // namespace selmcast
