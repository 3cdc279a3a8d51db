// The network interface of an InfiniBand port (IPoIB). The kernel names none with the port's GIDs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string>

namespace selmcast::verbs {

/// Of the interfaces described in `folder` as in /sys/class/net: one whose hardware address ends in
/// the interface identifier of `gid`, which a port's GIDs and interfaces share. Of several not that
/// of another partition than the default one, then one with an IPv4 address (a bond has it in its
/// members' place), then the first by name. Empty: there is none.
std::string ipoib_interface(const ibv_gid& gid, const std::string& folder);

/// The folder that ports' interfaces are looked up in: /sys/class/net, or what a test puts there.
std::string& interfaces_folder();

/// The first IPv4 address of a network interface, in host byte order.
std::optional<std::uint32_t> interface_ipv4(const std::string& name);

}  // namespace selmcast::verbs
