// How the verbs backend tells other ranks where it is: pure functions.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>

#include "transport/transport.h"

namespace selmcast::verbs {

/// Devices that one rank may stripe over.
inline constexpr std::uint32_t kRailsMax = 3;
/// Queue pair numbers have 24 bits.
inline constexpr std::uint32_t kQueuePairNumberMax = 0xFFFFFF;
inline constexpr std::uint32_t kMulticastQueuePair = 0xFFFFFF;  ///< IBA vol. 1, 3.5.3.
/// The Q_Key that rdma_cm gives to port space UDP, so that tools of that space can talk to ours.
inline constexpr std::uint32_t kQueueKey = RDMA_UDP_QKEY;

/// Where one device of a rank is reached.
struct RailAddress {
  ibv_gid gid{};
  std::uint32_t frames_qpn = 0;   ///< UD queue pair that takes frames.
  std::uint32_t wire_up_qpn = 0;  ///< UD queue pair that connects reliable ones.
  std::uint16_t lid = 0;          ///< InfiniBand; 0 on Ethernet.
  bool operator==(const RailAddress& other) const noexcept;
};

struct VerbsAddress {
  std::array<RailAddress, kRailsMax> rails;
  std::uint32_t rail_count = 0;
};

/// Wire form, version 1, little-endian: magic u32, version u16, rails u16; each rail: GID 16 bytes,
/// frames queue pair u32, wire-up queue pair u32, LID u16.
PeerAddress encode_address(const VerbsAddress& address) noexcept;

/// Reads what encode_address() wrote, from hostile bytes. Error bad_input: another backend's or
/// version's address, wrong size, no rail or too many, a queue pair number out of range.
Result<VerbsAddress> decode_address(const PeerAddress& address);

}  // namespace selmcast::verbs
