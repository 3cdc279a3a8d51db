// Unreliable-datagram queue pairs: made, brought to work, brought back after an error.
#pragma once

#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

struct UdSettings {
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;  ///< Null: a receive queue of its own.
  std::uint32_t send_depth = 1;
  std::uint32_t receive_depth = 1;
  std::uint32_t send_slices = 1;
  std::uint32_t inline_bytes = 0;
};

/// A UD queue pair that is ready to send, with kQueueKey. `settings.inline_bytes` becomes what the
/// device grants, down to 0.
Result<QueuePair> make_ud(ibv_pd* pd, const DevicePort& port, UdSettings& settings);

/// From RESET to RTS. 0 or an errno.
int ready_ud(ibv_qp* qp, const DevicePort& port) noexcept;

/// To RESET, which drops what is queued, and to RTS again. 0 or an errno.
int restart_ud(ibv_qp* qp, const DevicePort& port) noexcept;

/// Whether the queue pair is in state ERR or SQE. A system call.
bool in_error(ibv_qp* qp) noexcept;

}  // namespace selmcast::verbs
