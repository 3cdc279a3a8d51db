// Reliable-connected queue pairs: made, connected, reset.
#pragma once

#include <cstdint>

#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

struct ReliableSettings {
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t send_depth = 1;
  std::uint32_t receive_depth = 1;
  std::uint32_t send_slices = 1;
  std::uint32_t inline_bytes = 0;  ///< Becomes what the device grants.
  int access = 0;                  ///< What the peer may do, IBV_ACCESS_REMOTE_*.
};

/// What one end must know of the other.
struct ReliablePeer {
  ibv_gid gid{};
  std::uint16_t lid = 0;
  std::uint32_t qpn = 0;
  std::uint32_t psn = 0;  ///< First packet sequence number that it sends.
  ibv_mtu mtu = IBV_MTU_1024;
};

/// How long a dead peer is tried: 4.096 us x 2^timeout for each of `retries` + 1 tries (IBA vol. 1,
/// 9.7.6.1.3; devices may take up to four times that long).
struct Persistence {
  std::uint8_t timeout = 14;  ///< 67 ms.
  std::uint8_t retries = 7;
  std::uint8_t receiver_retries = 7;  ///< 7: a peer without posted receives is tried for ever.
};

/// An RC queue pair in state INIT. `settings.inline_bytes` becomes what the device grants.
Result<QueuePair> make_reliable(ibv_pd* pd, const DevicePort& port, ReliableSettings& settings);

/// From INIT to RTS, towards `peer`; `psn` is the first that this end sends. `reads`: RDMA READs
/// and atomics under way at once, each way, cut to what the device can. Errors name peer, GID and
/// cause.
Result<void> connect_reliable(ibv_qp* qp, const DevicePort& port, const ibv_device_attr& device,
                              std::uint32_t psn, const ReliablePeer& peer,
                              const Persistence& persistence, std::uint8_t reads = 16);

}  // namespace selmcast::verbs
