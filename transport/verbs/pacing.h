// Pacing by the device: a rate that a queue pair's packets are held to.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace selmcast::verbs {

/// Rates that a device can hold a queue pair to, in kbit/s, both ends included.
struct PacingRange {
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  bool has(std::uint64_t kbps) const noexcept { return least <= kbps && kbps <= most; }
};

/// Nothing where the device cannot pace queue pairs of this type (packet_pacing_caps of
/// ibv_query_device_ex(3)). A system call.
std::optional<PacingRange> pacing_of(ibv_context* context, ibv_qp_type type) noexcept;

/// Holds a queue pair in RTS to `kbps`; 0: to none. It forgets that in RESET. 0 or an errno. A
/// system call.
int limit_rate(ibv_qp* qp, std::uint32_t kbps) noexcept;

}  // namespace selmcast::verbs
