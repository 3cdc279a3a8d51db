#include "transport/verbs/removal_watch.h"

#include <fcntl.h>
#include <netinet/in.h>

#include <cstring>

namespace selmcast::verbs {

std::unique_ptr<RemovalWatch> RemovalWatch::make(const DevicePort& port) {
  sockaddr_storage address{};
  if (port.kind == GidKind::rocev2_ipv4) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    std::memcpy(&ipv4.sin_addr, port.gid.raw + 12, sizeof ipv4.sin_addr);
    std::memcpy(&address, &ipv4, sizeof ipv4);
  } else if (port.kind != GidKind::infiniband) {
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_scope_id = port.kind == GidKind::rocev2_link_local ? port.interface_index : 0;
    std::memcpy(&ipv6.sin6_addr, port.gid.raw, sizeof ipv6.sin6_addr);
    std::memcpy(&address, &ipv6, sizeof ipv6);
  } else {
    return nullptr;  // drivers of InfiniBand devices report it as an event of the device
  }
  EventChannel channel(rdma_create_event_channel());
  rdma_cm_id* raw = nullptr;
  if (channel == nullptr || rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_UDP) != 0) {
    return nullptr;
  }
  CmId id(raw);
  const int flags = fcntl(channel->fd, F_GETFL);
  if (rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address)) != 0 || flags < 0 ||
      fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return nullptr;
  }
  return std::unique_ptr<RemovalWatch>(new RemovalWatch(std::move(channel), std::move(id)));
}

bool RemovalWatch::removed() noexcept {
  bool out = false;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_.get(), &event) == 0) {
    out = out || event->event == RDMA_CM_EVENT_DEVICE_REMOVAL;
    rdma_ack_cm_event(event);
  }
  return out;
}

}  // namespace selmcast::verbs
