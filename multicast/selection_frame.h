// Payloads of the frames by which receivers are selected online. Pure functions, no I/O.
//
// Both sides number the members of the frame's epoch in the order of the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/units.h"
#include "multicast/frame.h"

namespace selmcast {

/// REQUEST: u16 per member. Asking: rounds since the sender last reached it. Telling: what is left
/// for it, in units of 1/kWholeRound of the round, 0 = delivered.
inline constexpr std::uint16_t kNoReceiver = 0xFFFF;  ///< Of either: not a receiver.
inline constexpr std::uint16_t kWholeRound = 1024;
/// Members that a REQUEST can hold, and those of a job whose frames have `frame_bytes`. A PLAN
/// holds more.
inline constexpr std::uint32_t kSelectionMembersMax = kControlPayloadMax / 2;
constexpr std::uint32_t selection_members_max(std::uint32_t frame_bytes) noexcept {
  return control_payload_max(frame_bytes) / 2;
}

/// Writes 2 marks.size() bytes to `out` and returns how many.
std::size_t encode_marks(std::span<const std::uint16_t> marks, std::span<std::byte> out) noexcept;
/// Fills `out`, one entry per member. False if the payload is of another size.
bool parse_marks(std::span<const std::byte> payload, std::span<std::uint16_t> out) noexcept;

/// PLAN: u64 wire rate in kbit/s, then one bit per member, lowest first: a receiver. Returns bytes.
std::size_t encode_plan(Kbps rate, std::span<const std::uint8_t> receivers,
                        std::span<std::byte> out) noexcept;
/// The rate; fills `receivers` with 0 and 1, one entry per member. Absent if the payload is of
/// another size, the rate is 0 or a bit beyond the members is set.
std::optional<Kbps> parse_plan(std::span<const std::byte> payload,
                               std::span<std::uint8_t> receivers) noexcept;

}  // namespace selmcast
