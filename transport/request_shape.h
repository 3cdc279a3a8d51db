// What a request comes to: whether its memory is registered, and the frames that it is cut into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace selmcast {

/// How many frames of `frame_bytes` (not 0) carry `bytes`; none for no bytes.
constexpr std::uint32_t frames_in(std::uint32_t bytes, std::uint32_t frame_bytes) noexcept {
  return bytes == 0 ? 0 : (bytes - 1) / frame_bytes + 1;
}

/// Whether `bytes` from `at` on lie within `memory`. As integers: pointers into different objects
/// have no defined order.
inline bool lies_in(std::span<const std::byte> memory, const std::byte* at,
                    std::uint32_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const auto from = reinterpret_cast<std::uintptr_t>(at);
  return from >= begin && from - begin <= memory.size() && bytes <= memory.size() - (from - begin);
}

/// A request without a byte has no frame.
struct RequestShape {
  std::uint32_t bytes = 0;
  std::uint32_t frame_bytes = 0;  ///< Of every frame but the last, which may be shorter.
  std::uint32_t frames = 0;
};

/// Checks a request against `limits` and its slices against their regions, and measures it into
/// `out` when it is good. `memory_of(RegionId)` is a pointer to the span of registered memory, null
/// where there is none; `each(slice)` is called for every slice with bytes, in order, up to the
/// first that is bad.
template <class MemoryOf, class Each>
Status measure(const SendRequest& request, const Capabilities& limits, MemoryOf memory_of,
               Each each, RequestShape& out) noexcept {
  if (request.slices.size() > limits.max_request_slices) return Status::oversize;
  std::uint64_t total = 0;
  for (const LocalSlice& slice : request.slices) {
    if (slice.bytes == 0) continue;
    const std::span<const std::byte>* const memory = memory_of(slice.region);
    if (memory == nullptr || !lies_in(*memory, slice.data, slice.bytes)) {
      return Status::not_registered;
    }
    total += slice.bytes;
    each(slice);
  }
  if (total > limits.max_request_bytes) return Status::oversize;
  const auto bytes = static_cast<std::uint32_t>(total);
  const bool one_frame = request.frame_bytes == 0 || request.frame_bytes >= bytes;
  const std::uint32_t frame_bytes = one_frame ? bytes : request.frame_bytes;
  const std::uint32_t frames = frames_in(bytes, frame_bytes);
  if (frame_bytes > limits.max_frame_bytes || frames > limits.max_request_frames) {
    return Status::oversize;
  }
  out = {.bytes = bytes, .frame_bytes = frame_bytes, .frames = frames};
  return Status::ok;
}

}  // namespace selmcast
