// The connection manager's part: groups joined and left.
#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "tests/unit/verbs/fake/model.h"

namespace selmcast::fake {
namespace {

struct Events {
  rdma_event_channel base{};
  int write = -1;
  int users = 0;
  std::deque<rdma_cm_event> waiting;
};
struct Id {
  rdma_cm_id base{};
  bool bound = false;
  std::multimap<std::uint32_t, void*> groups;  ///< With the context of their events.
};
std::vector<Id*> ids;

void tell(rdma_cm_id* id, const rdma_cm_event& event) {
  auto* const events = of<Events>(id->channel);
  events->waiting.push_back(event);
  if (write(events->write, "e", 1) != 1) std::abort();
}

std::uint32_t ipv4_of(const sockaddr* address) {
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  return ntohl(in.sin_addr.s_addr);
}

}  // namespace

void end_memberships() {
  for (Id* id : ids) {
    for (const auto& [group, context] : id->groups) {
      rdma_cm_event event{};
      event.id = &id->base;
      event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
      event.status = -ENETRESET;
      event.param.ud.private_data = context;
      tell(&id->base, event);
    }
  }
}

}  // namespace selmcast::fake

using namespace selmcast::fake;  // NOLINT: the library's names are global

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
  if (const int error = fails("rdma_create_event_channel")) return errno = error, nullptr;
  auto* const out = new Events();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
  out->base.fd = ends[0];
  out->write = ends[1];
  count(Object::event_channel, 1);
  return &out->base;
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  auto* const events = of<Events>(channel);
  may_go("event channel", events->users);
  close(channel->fd);
  close(events->write);
  count(Object::event_channel, -1);
  delete events;
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space ps) {
  if (const int error = fails("rdma_create_id")) return errno = error, -1;
  auto* const out = new Id();
  out->base.channel = channel;
  out->base.context = context;
  out->base.ps = ps;
  ++of<Events>(channel)->users;
  ids.push_back(out);
  count(Object::cm_id, 1);
  *id = &out->base;
  return 0;
}
int rdma_destroy_id(rdma_cm_id* base) {
  auto* const id = of<Id>(base);
  count(Object::membership, -static_cast<int>(id->groups.size()));
  --of<Events>(base->channel)->users;
  count(Object::cm_id, -1);
  std::erase(ids, id);
  delete id;
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr*) {
  if (const int error = fails("rdma_bind_addr")) return errno = error, -1;
  of<Id>(id)->bound = true;
  return 0;
}

int rdma_join_multicast_ex(rdma_cm_id* base, rdma_cm_join_mc_attr_ex* attributes, void* context) {
  if (const int error = fails("rdma_join_multicast_ex")) return errno = error, -1;
  auto* const id = of<Id>(base);
  if (!id->bound) return errno = EINVAL, -1;
  const std::uint32_t group = ipv4_of(attributes->addr);
  id->groups.emplace(group, context);
  count(Object::membership, 1);
  const JoinEnd end = world().join_end;
  if (end == JoinEnd::silence) return 0;
  rdma_cm_event event{};
  event.id = base;
  event.event = RDMA_CM_EVENT_MULTICAST_JOIN;
  if (end == JoinEnd::device_removal) event.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
  if (end == JoinEnd::error_event) {
    event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
    event.status = -ENETUNREACH;
  }
  auto& ud = event.param.ud;
  ud.private_data = context;
  ud.qkey = end == JoinEnd::other_key ? 7 : RDMA_UDP_QKEY;
  ud.ah_attr.dlid = static_cast<std::uint16_t>(world().first_mlid | (group & 0xFFU));
  ud.ah_attr.sl = 3;
  const std::uint32_t network = htonl(group);
  ud.ah_attr.grh.dgid.raw[10] = ud.ah_attr.grh.dgid.raw[11] = 0xFF;
  std::memcpy(ud.ah_attr.grh.dgid.raw + 12, &network, sizeof network);
  tell(base, event);
  return 0;
}
int rdma_leave_multicast(rdma_cm_id* base, sockaddr* address) {
  auto* const id = of<Id>(base);
  const auto at = id->groups.find(ipv4_of(address));
  if (at == id->groups.end()) {
    violated("a group was left that is not joined");
    return errno = EADDRNOTAVAIL, -1;
  }
  id->groups.erase(at);
  count(Object::membership, -1);
  return 0;
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (const int error = fails("rdma_get_cm_event")) {
    // The event is there and stays there.
    return errno = error, -1;
  }
  auto* const events = of<Events>(channel);
  char byte = 0;
  if (read(channel->fd, &byte, 1) != 1) return -1;
  *event = new rdma_cm_event(events->waiting.front());
  events->waiting.pop_front();
  return 0;
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  delete event;
  return 0;
}

}  // extern "C"
