// The frames of a receive completion, wherever their payloads lie.
#pragma once

#include <algorithm>
#include <cstdint>

#include "multicast/frame.h"
#include "transport/requests.h"

namespace selmcast {

/// Calls take(const ParsedFrame&) for each frame, also for those that are refused.
template <class Take>
void each_frame(const Completion& receive, std::uint32_t job, Take take) noexcept {
  const auto& c = receive;
  if (c.frame_bytes == 0) return;
  if (c.head_bytes == 0) {
    for (std::uint32_t at = 0; at < c.bytes; at += c.frame_bytes) {
      take(parse_frame({c.data + at, std::min(c.frame_bytes, c.bytes - at)}, job));
    }
    return;
  }
  // Heads are what frames were sent with, so those of another size are none of ours.
  if (c.head_bytes != kFrameHeaderBytes) return;
  const std::uint32_t most = c.frame_bytes - c.head_bytes;
  std::uint32_t body = 0;
  for (std::uint32_t at = 0; at < c.bytes; at += c.head_bytes, body += most) {
    take(parse_frame(c.data + at, {c.body + body, std::min(most, c.body_bytes - body)}, job));
  }
}

}  // namespace selmcast
