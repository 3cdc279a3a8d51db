// The verbs objects of one end of a measurement, and the memory they use.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/arena.h"
#include "tools/perf/exchange.h"
#include "transport/verbs/raw.h"

namespace selmcast::perf {

/// Byte `at` of every message; the same at both ends, so that nothing need be sent to check it.
/// 251 is prime: no two offsets that differ by a power of two look alike.
constexpr std::uint8_t pattern(std::size_t at) noexcept {
  return static_cast<std::uint8_t>(at * 31 % 251 + 1);
}

/// Ends a queue pair's attachment to a group.
struct DetachGroup {
  ibv_gid mgid{};
  std::uint16_t mlid = 0;
  void operator()(ibv_qp* qp) const noexcept { ibv_detach_mcast(qp, &mgid, mlid); }
};

/// One completion queue serves sends and receives of all queue pairs. Members are destroyed last to
/// first. Movable before use only; set-up allocates, the engines then do not.
struct Rig {
  verbs::OpenedPort opened;
  verbs::ProtectionDomain pd;
  verbs::CompletionChannel channel;  ///< With settings.events.
  verbs::CompletionQueue cq;
  Arena pages;
  verbs::MemoryRegion region;
  std::unique_ptr<verbs::GroupJoin> group;
  std::vector<verbs::QueuePair> queues;
  std::unique_ptr<ibv_qp, DetachGroup> attached;  ///< The first queue, by a multicast server.
  std::vector<std::uint32_t> psns;
  verbs::AddressHandle address;  ///< Datagrams: of the other end, or the group.
  std::uint32_t remote_qpn = 0;
  std::uint32_t inline_bytes = 0;  ///< Messages up to here may travel in the request.

  // Places in `pages`. Queue pair q has source and target at q * stride; receives share places.
  std::size_t stride = 0;
  std::byte* source = nullptr;
  std::byte* target = nullptr;
  std::byte* receive_places = nullptr;
  std::size_t receive_stride = 0;
  std::uint32_t place_count = 0;
  std::uint32_t receives = 0;  ///< Posted on each queue pair.

  /// Opens the device and makes everything but the connections. `serves`: receives datagrams of the
  /// group, for multicast. Errors: those of verbs::open_port(), or what the device refuses.
  static Result<Rig> make(const Settings& settings, bool serves);
  /// What the other end must know.
  End end() const;
  /// Connects to `peer`, or makes the address of its datagrams.
  Result<void> connect(const Settings& settings, const End& peer);
  /// Makes the address of the group. Multicast client only.
  Result<void> address_group(const Settings& settings);
  /// Has the device pace the queue pairs. Error unavailable where it cannot.
  Result<void> limit_rate(std::uint64_t kbps);
  /// Receives are cut off the datagram's header of 40 bytes.
  static constexpr std::uint32_t kGrhBytes = 40;
};

}  // namespace selmcast::perf
