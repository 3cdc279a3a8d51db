// Messages by which two ranks connect reliable queue pairs: pure functions. They travel as UD
// datagrams, so each may be lost or doubled; who asks repeats, who is asked answers the same again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/verbs/verbs_address.h"

namespace selmcast::verbs {

inline constexpr std::uint32_t kWireUpBytes = 64;

struct WireUp {
  enum class Kind : std::uint16_t {
    ask = 1,  ///< "Connect a queue pair to mine; I want to read."
    answer,   ///< "This is the one that I connected to yours."
  };
  Kind kind = Kind::ask;
  std::uint64_t job = 0;
  std::uint64_t attempt = 0;  ///< Chosen by who asks, anew for every connection; answered with.
  RailAddress sender;         ///< By which the other end knows who speaks.
  std::uint32_t qpn = 0;      ///< The reliable queue pair.
  std::uint32_t psn = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  bool operator==(const WireUp&) const = default;
};

/// Wire form, version 1, little-endian: magic u32, version u16, kind u16, job u64, attempt u64, GID
/// 16 bytes, frames and wire-up queue pair u32 each, LID u16, MTU u16, queue pair u32, PSN u32.
void encode_wire_up(const WireUp& message, std::span<std::byte, kWireUpBytes> out) noexcept;

/// Reads what encode_wire_up() wrote, from hostile bytes; nothing for anything else.
std::optional<WireUp> decode_wire_up(std::span<const std::byte> bytes) noexcept;

}  // namespace selmcast::verbs
