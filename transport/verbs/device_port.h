// Which port of which RDMA device to use, and under which GID: found by walking what is there,
// because GID indices differ from machine to machine (a wrong one is the field's commonest
// mistake).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "transport/verbs/handles.h"

namespace selmcast::verbs {

/// How packets of a GID look on the wire; in order of preference.
enum class GidKind : std::uint8_t { rocev2_ipv4, rocev2_ipv6, rocev2_link_local, infiniband };

/// What the user asked for: DEVICE[:PORT[:GID_INDEX]].
struct PortWish {
  std::string device;     ///< Empty: the first usable port of any device.
  std::uint8_t port = 0;  ///< 0: the first active one.
  int gid_index = -1;     ///< -1: by preference.
};

/// Reads DEVICE[:PORT[:GID]]. Error bad_input with what is allowed.
Result<PortWish> parse_port_wish(const std::string& text);

/// One entry of a port's GID table.
struct GidEntry {
  ibv_gid gid{};
  std::uint32_t index = 0;
  std::uint32_t type = 0;  ///< ibv_gid_type.
  std::uint32_t interface_index = 0;
};

/// The best entry for a port of `link_layer` (IBV_LINK_LAYER_*), pure; nothing if none will do.
/// RoCE: version 2 only, IPv4 before global IPv6 before link-local. InfiniBand: the first one.
std::optional<std::size_t> choose_gid(const std::vector<GidEntry>& table, int link_layer) noexcept;

/// The kind of an entry, or nothing for one that cannot be used (RoCE v1, empty).
std::optional<GidKind> kind_of(const GidEntry& entry, int link_layer) noexcept;

struct DevicePort {
  std::string device;
  std::uint8_t port = 1;
  ibv_gid gid{};
  std::uint32_t gid_index = 0;
  GidKind kind = GidKind::rocev2_ipv4;
  std::uint16_t lid = 0;
  std::uint32_t mtu_bytes = 0;  ///< Active path MTU: the largest UD message.
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint32_t interface_index = 0;  ///< Of the network interface behind it; 0 if unknown.
  std::string interface_name;
  std::optional<std::uint32_t> numa_node;  ///< Of the device, where the kernel knows.

  /// "rxe0 port 1 GID 1 (::ffff:10.0.0.1)" for messages.
  std::string text() const;
};

struct OpenedPort {
  Context context;
  DevicePort port;
  ibv_device_attr attributes{};
};

/// Opens the port that `wish` names. Errors: unavailable when there is no device, none is active,
/// or no GID will do, with the remedy; bad_input for a name that is not there (listing those that
/// are).
Result<OpenedPort> open_port(const PortWish& wish);

struct PortBehind {
  std::string name;     ///< As parse_port_wish() reads.
  bool behind = false;  ///< The interface is its own.
};
/// The first usable port whose network interface is `interface`; where there is none, the first
/// usable one. Errors as open_port()'s without a wish.
Result<PortBehind> port_behind(const std::string& interface);

/// Every port of every device with what makes it usable or not; one line each, for `doctor`.
std::vector<std::string> describe_ports();

/// "an IPv4 address on its IPoIB interface to join groups; ..." with the command.
std::string ipoib_address_wanted(const DevicePort& port);

std::string gid_text(const ibv_gid& gid);

/// The NUMA node that a device of this name is attached to, if the kernel knows.
std::optional<std::uint32_t> numa_node_of(const std::string& device);

}  // namespace selmcast::verbs
