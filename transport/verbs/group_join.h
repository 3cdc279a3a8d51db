// Becoming a member of a multicast group on one port, so that the network delivers it there.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "base/units.h"
#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

/// What a queue pair is attached to, and what senders address.
struct GroupRoute {
  ibv_gid mgid{};
  std::uint16_t mlid = 0;  ///< InfiniBand: the multicast LID; 0 on Ethernet.
  std::uint8_t service_level = 0;
  bool operator==(const GroupRoute& other) const noexcept;
};

/// Joins groups on one port. Memberships end with the object. One thread; may block for at most
/// kJoinDeadline. On RoCE with an IPv4 GID and on InfiniBand by rdma_cm, which sends IGMP reports
/// or asks the subnet manager; with an IPv6 GID by an MLD membership of a socket, because the
/// kernel refuses rdma_cm there.
class GroupJoin {
 public:
  static constexpr Duration kJoinDeadline = std::chrono::seconds(5);

  static Result<std::unique_ptr<GroupJoin>> make(const DevicePort& port);
  virtual ~GroupJoin() = default;

  /// `ipv4` in host byte order names the group (see transport/group_address.h). Each group is
  /// joined at most once at a time. Error failed: the network refuses; the text says which.
  virtual Result<GroupRoute> join(std::uint32_t ipv4) = 0;
  /// What a sender needs to reach the group. On Ethernet nothing is joined for it; on InfiniBand
  /// a send-only membership where the subnet manager has them, a full one otherwise, which all
  /// senders and a later join() share.
  virtual Result<GroupRoute> route(std::uint32_t ipv4) = 0;
  /// Undoes one route().
  virtual void unroute(std::uint32_t ipv4) noexcept = 0;
  /// Undoes join().
  virtual void leave(std::uint32_t ipv4) noexcept = 0;

  /// A group that is reached by another route than before.
  struct Moved {
    std::uint32_t ipv4 = 0;
    GroupRoute route;
  };
  /// Memberships that the network ended are asked for again, each once a kAskAgain at most: the
  /// kernel ends those of InfiniBand when the subnet manager starts anew, and when the port was
  /// down. Never waits. System calls.
  virtual void progress(TimePoint) noexcept {}
  /// Some membership has ended and not been renewed.
  virtual bool ended() const noexcept { return false; }
  /// The first group above `after` whose renewal brought another route, and which nobody has
  /// followed() yet.
  virtual std::optional<Moved> next_moved(std::uint32_t /*after*/) noexcept { return {}; }
  virtual void followed(std::uint32_t) noexcept {}
  /// Which group has ended and why it is not renewed; empty: none.
  virtual std::string last_error() const { return {}; }
  static constexpr Duration kAskAgain = std::chrono::seconds(1);
};

/// The MGID of an IPv4 group on a port of `kind`: ::ffff:a.b.c.d (IBTA annex A17.9.1), or, where
/// the GID is an IPv6 address, ff15::a.b.c.d (site-local, transient).
ibv_gid group_gid(std::uint32_t ipv4, GidKind kind) noexcept;

}  // namespace selmcast::verbs
