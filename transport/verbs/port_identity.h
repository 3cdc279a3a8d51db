// Whether a port is still known to the network by what peers were told: its GID and its LID.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

/// Address handles, group joins and connections are made from the GID at one index of the port's
/// table; peers address it. When an address of the network interface goes (or the subnet manager
/// assigns another prefix or LID), what is sent by them is lost without an error. One thread.
class PortIdentity {
 public:
  /// Compares with what the port had at set-up. False: the device did not answer, which changes
  /// nothing; look again. System calls.
  bool look(ibv_context* context, const DevicePort& port) noexcept;
  /// By the latest look.
  bool same() const noexcept { return difference_ == Difference::none; }
  /// Peers may still hear and reach the port: it is the same, or on RoCE has its GID at another
  /// index. The kernel puts a returning address there while handles hold the old index (seen on
  /// Soft-RoCE); they keep the address that they were made from.
  bool reachable() const noexcept { return same() || moved_to_.has_value(); }
  /// Where the GID of set-up is now: what new handles and connections are made from.
  std::uint32_t gid_index(const DevicePort& port) const noexcept {
    return moved_to_.value_or(port.gid_index);
  }
  /// "rxe0 port 1: GID index 1 was ... and is ...; ...": what changed and the remedy.
  std::string text(const DevicePort& port) const;

 private:
  enum class Difference : std::uint8_t { none, gid_gone, gid_other, lid_other };

  Difference difference_ = Difference::none;
  ibv_gid gid_{};                          ///< With gid_other: now at the index.
  std::uint16_t lid_ = 0;                  ///< With lid_other: now.
  std::optional<std::uint32_t> moved_to_;  ///< Where the old GID is now; RoCE only.
};

}  // namespace selmcast::verbs
