#include "transport/verbs/device_port.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/system_files.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/ipoib.h"
#include "transport/verbs/packet_size.h"

namespace selmcast::verbs {
namespace {

// Address vectors name a GID by 8 bits.
constexpr int kGidsMax = 256;

struct FreeList {
  void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
};

struct Devices {
  std::unique_ptr<ibv_device*, FreeList> list;
  std::size_t count = 0;

  std::string names() const {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      out += (i == 0 ? "" : ", ") + std::string(ibv_get_device_name(list.get()[i]));
    }
    return out;
  }
};

Result<Devices> devices() {
  int count = 0;
  errno = 0;
  Devices out;
  out.list.reset(ibv_get_device_list(&count));
  out.count = out.list == nullptr ? 0 : static_cast<std::size_t>(std::max(count, 0));
  if (out.count > 0) return out;
  const int error = out.list == nullptr ? errno : 0;
  const bool no_kernel = error == ENOSYS || error == ENOENT;
  if (error != 0 && !no_kernel) {
    return unavailable(std::string("verbs: the RDMA devices cannot be listed: ") +
                       std::strerror(error) + remedy_of_errno(error));
  }
  return unavailable(
      std::string("verbs: this machine has no RDMA device") +
      (no_kernel ? " and its kernel no RDMA support (ib_uverbs is not loaded)" : "") +
      "; load the NIC's driver, or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type "
      "rxe netdev INTERFACE; or try it in a virtual machine: scripts/rxe-vm -- COMMAND");
}

/// `error`: of the last entry that could not be read for another reason than being empty, or 0.
std::vector<GidEntry> gid_table(ibv_context* context, std::uint8_t port, int length, int& error) {
  std::vector<GidEntry> out;
  for (int i = 0; i < std::min(length, kGidsMax); ++i) {
    ibv_gid_entry entry{};
    const int state = ibv_query_gid_ex(context, port, static_cast<std::uint32_t>(i), &entry, 0);
    if (state != 0) {
      if (state != ENODATA) error = state > 0 ? state : errno;
      continue;
    }
    out.push_back({.gid = entry.gid,
                   .index = entry.gid_index,
                   .type = entry.gid_type,
                   .interface_index = entry.ndev_ifindex});
  }
  return out;
}

std::string interface_of(std::uint32_t index) {
  std::array<char, IF_NAMESIZE> name{};
  if (index == 0 || if_indextoname(index, name.data()) == nullptr) return {};
  return name.data();
}

const char* state_text(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initialising (is a subnet manager running?)";
    case IBV_PORT_ARMED:
      return "armed (the subnet manager has not activated it)";
    default:
      return "in no usable state";
  }
}

/// Where a port is not usable: why, and what to do.
Result<DevicePort> examine(ibv_context* context, std::uint8_t number, int gid_index) {
  const std::string device = ibv_get_device_name(context->device);
  const std::string where = device + " port " + std::to_string(number);
  ibv_port_attr attributes{};
  if (const int error = ibv_query_port(context, number, &attributes); error != 0) {
    return unavailable("verbs: " + where + " cannot be queried: " + std::strerror(error) +
                       remedy_of_errno(error));
  }
  int unread = 0;
  const auto table = gid_table(context, number, attributes.gid_tbl_len, unread);
  auto chosen = choose_gid(table, attributes.link_layer);
  if (gid_index >= 0) {
    const auto at = std::find_if(table.begin(), table.end(), [&](const GidEntry& entry) {
      return entry.index == static_cast<std::uint32_t>(gid_index);
    });
    if (at == table.end() || !kind_of(*at, attributes.link_layer)) {
      return bad_input("verbs: GID index " + std::to_string(gid_index) + " of " + where +
                       (at == table.end() ? " is empty" : " is not RoCE v2") +
                       "; leave it out to have one chosen, or see `selmcast doctor`");
    }
    chosen = static_cast<std::size_t>(at - table.begin());
  }
  if (attributes.state != IBV_PORT_ACTIVE) {
    const std::string interface = table.empty() ? "" : interface_of(table.front().interface_index);
    return unavailable("verbs: " + where + " is " + state_text(attributes.state) +
                       (interface.empty() ? "; check the cable and `rdma link`"
                                          : "; bring it up: ip link set " + interface + " up"));
  }
  if (!chosen) {
    if (unread != 0) {
      return unavailable("verbs: the GIDs of " + where +
                         " cannot be read: " + std::strerror(unread) + remedy_of_errno(unread));
    }
    return unavailable("verbs: " + where +
                       (attributes.link_layer == IBV_LINK_LAYER_INFINIBAND
                            ? " has no GID; is a subnet manager running?"
                            : " has no RoCE v2 GID; give its network interface an IPv4 address"));
  }
  DevicePort out;
  out.device = device;
  out.port = number;
  out.gid = table[*chosen].gid;
  out.gid_index = table[*chosen].index;
  out.kind = *kind_of(table[*chosen], attributes.link_layer);
  out.lid = attributes.lid;
  out.mtu = attributes.active_mtu;
  out.mtu_bytes = bytes_of(attributes.active_mtu);
  if (out.kind == GidKind::infiniband) {
    out.interface_name = ipoib_interface(out.gid, interfaces_folder());
    out.interface_index = if_nametoindex(out.interface_name.c_str());
  } else {
    out.interface_index = table[*chosen].interface_index;
    out.interface_name = interface_of(out.interface_index);
  }
  out.numa_node = numa_node_of(device);
  return out;
}

/// The first usable port of an opened device, or why there is none.
Result<DevicePort> first_port(ibv_context* context, const PortWish& wish, int ports) {
  if (wish.port > ports) {
    return bad_input("verbs: " + std::string(ibv_get_device_name(context->device)) + " has " +
                     std::to_string(ports) + " port(s), not " + std::to_string(wish.port));
  }
  if (wish.port != 0) return examine(context, wish.port, wish.gid_index);
  if (ports == 1) return examine(context, 1, wish.gid_index);
  std::string refusals;
  for (int p = 1; p <= ports; ++p) {
    auto port = examine(context, static_cast<std::uint8_t>(p), wish.gid_index);
    if (port) return port;
    refusals += "; " + port.error().message;
  }
  return unavailable("verbs: no port of " + std::string(ibv_get_device_name(context->device)) +
                     " is usable" + refusals);
}

std::string usable_text(const DevicePort& port) {
  const bool no_groups =
      port.kind == GidKind::infiniband && !interface_ipv4(port.interface_name).has_value();
  return "verbs: " + port.text() +
         (port.interface_name.empty() ? "" : " on " + port.interface_name) + ", frames of up to " +
         std::to_string(port.mtu_bytes) + " bytes" +
         (no_groups ? "; needs " + ipoib_address_wanted(port) : "");
}

/// Without a port yet.
Result<OpenedPort> open_context(ibv_device* device) {
  const std::string name = ibv_get_device_name(device);
  errno = 0;
  OpenedPort out;
  out.context.reset(ibv_open_device(device));
  if (out.context == nullptr) {
    const int error = errno;
    return unavailable("verbs: " + name + " cannot be opened: " + std::strerror(error) +
                       remedy_of_errno(error));
  }
  if (const int error = ibv_query_device(out.context.get(), &out.attributes); error != 0) {
    return unavailable("verbs: " + name + " cannot be queried: " + std::strerror(error) +
                       remedy_of_errno(error));
  }
  return out;
}

Result<OpenedPort> open_device(ibv_device* device, const PortWish& wish) {
  auto out = open_context(device);
  if (!out) return out;
  auto port = first_port(out->context.get(), wish, out->attributes.phys_port_cnt);
  if (!port) return std::move(port).error();
  out->port = std::move(port).value();
  return out;
}

}  // namespace

Result<PortWish> parse_port_wish(const std::string& text) {
  const auto refuse = [&](const char* why) {
    return bad_input("device '" + text + "': " + why +
                     "; allowed is DEVICE[:PORT[:GID_INDEX]], e.g. mlx5_0:1:3");
  };
  PortWish out;
  const auto colon = text.find(':');
  out.device = text.substr(0, colon);
  if (out.device.empty() && !text.empty()) return refuse("the device's name is missing");
  if (colon == std::string::npos) return out;
  const auto number = [](std::string_view digits, unsigned most) -> std::optional<unsigned> {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value > most) return {};
    return value;
  };
  const std::string_view rest = std::string_view(text).substr(colon + 1);
  const auto second = rest.find(':');
  const auto port = number(rest.substr(0, second), 255);
  if (!port || *port == 0) return refuse("the port is a number from 1 to 255");
  out.port = static_cast<std::uint8_t>(*port);
  if (second == std::string_view::npos) return out;
  const auto gid = number(rest.substr(second + 1), kGidsMax - 1);
  if (!gid) return refuse("the GID index is a number from 0 to 255");
  out.gid_index = static_cast<int>(*gid);
  return out;
}

std::optional<GidKind> kind_of(const GidEntry& entry, int link_layer) noexcept {
  constexpr std::array<std::uint8_t, 16> kNone{};
  if (std::memcmp(entry.gid.raw, kNone.data(), kNone.size()) == 0) return {};
  if (link_layer == IBV_LINK_LAYER_INFINIBAND) return GidKind::infiniband;
  if (entry.type != IBV_GID_TYPE_ROCE_V2) return {};
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (std::memcmp(entry.gid.raw, kMapped.data(), kMapped.size()) == 0) return GidKind::rocev2_ipv4;
  const bool link_local = entry.gid.raw[0] == 0xFE && (entry.gid.raw[1] & 0xC0U) == 0x80U;
  return link_local ? GidKind::rocev2_link_local : GidKind::rocev2_ipv6;
}

std::optional<std::size_t> choose_gid(const std::vector<GidEntry>& table, int link_layer) noexcept {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto kind = kind_of(table[i], link_layer);
    if (kind && (!best || *kind < *kind_of(table[*best], link_layer))) best = i;
  }
  return best;
}

std::string ipoib_address_wanted(const DevicePort& port) {
  return "an IPv4 address on its IPoIB interface to join groups; " +
         (port.interface_name.empty() ? "modprobe ib_ipoib, ip addr add ADDRESS dev ib0"
                                      : "ip addr add ADDRESS dev " + port.interface_name);
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
  return text.data();
}

std::string DevicePort::text() const {
  return device + " port " + std::to_string(port) + " GID " + std::to_string(gid_index) + " (" +
         gid_text(gid) + ")";
}

Result<OpenedPort> open_port(const PortWish& wish) {
  auto found = devices();
  if (!found) return std::move(found).error();
  Result<OpenedPort> out =
      bad_input("verbs: no device is called '" + wish.device + "'; there are: " + found->names());
  std::string refusals;
  for (std::size_t i = 0; i < found->count; ++i) {
    ibv_device* const device = found->list.get()[i];
    if (!wish.device.empty() && wish.device != ibv_get_device_name(device)) continue;
    out = open_device(device, wish);
    if (out || !wish.device.empty()) break;
    if (found->count == 1) break;
    refusals += (refusals.empty() ? "" : "; ") + out.error().message;
    if (i + 1 == found->count) return unavailable("verbs: no device is usable: " + refusals);
  }
  return out;
}

Result<PortBehind> port_behind(const std::string& interface) {
  auto found = devices();
  if (!found) return std::move(found).error();
  std::optional<PortBehind> first;
  for (std::size_t i = 0; i < found->count; ++i) {
    const auto context = open_context(found->list.get()[i]);
    if (!context) continue;
    for (int p = 1; p <= context->attributes.phys_port_cnt; ++p) {
      const auto port = examine(context->context.get(), static_cast<std::uint8_t>(p), -1);
      if (!port) continue;
      const PortBehind one{port->device + ":" + std::to_string(p),
                           !interface.empty() && port->interface_name == interface};
      if (one.behind) return one;
      if (!first) first = one;
    }
  }
  if (first) return *first;
  // Says why each of them is not usable.
  auto none = open_port({});
  if (!none) return std::move(none).error();
  return PortBehind{none->port.device + ":" + std::to_string(none->port.port), false};
}

std::vector<std::string> describe_ports() {
  std::vector<std::string> out;
  auto found = devices();
  if (!found) return {found.error().message};
  for (std::size_t i = 0; i < found->count; ++i) {
    ibv_device* const device = found->list.get()[i];
    auto context = open_context(device);
    if (!context) {
      out.push_back(context.error().message);
      continue;
    }
    for (int p = 1; p <= context->attributes.phys_port_cnt; ++p) {
      const auto port = examine(context->context.get(), static_cast<std::uint8_t>(p), -1);
      out.push_back(port ? usable_text(*port) : port.error().message);
    }
  }
  return out;
}

std::optional<std::uint32_t> numa_node_of(const std::string& device) {
  // -1, which is not a number here, where the device is attached to none (Soft-RoCE, one node).
  const auto node = read_system_number("/sys/class/infiniband/" + device + "/device/numa_node");
  if (!node || *node > UINT32_MAX) return {};
  return static_cast<std::uint32_t>(*node);
}

}  // namespace selmcast::verbs
