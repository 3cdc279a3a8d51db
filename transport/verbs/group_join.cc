#include "transport/verbs/group_join.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "transport/verbs/explain.h"
#include "transport/verbs/ipoib.h"

namespace selmcast::verbs {
namespace {

sockaddr_in socket_address(std::uint32_t ipv4) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(ipv4);
  return out;
}

std::string group_text(std::uint32_t ipv4) {
  std::array<char, INET_ADDRSTRLEN> text{};
  const in_addr address{.s_addr = htonl(ipv4)};
  inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

/// By which events name their group.
void* context_of(std::uint32_t ipv4) noexcept {
  return reinterpret_cast<void*>(std::uintptr_t{ipv4});
}
std::uint32_t group_of(const void* context) noexcept {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context));
}

bool is_of_group(rdma_cm_event_type kind) noexcept {
  return kind == RDMA_CM_EVENT_MULTICAST_ERROR || kind == RDMA_CM_EVENT_MULTICAST_JOIN;
}

/// Through the connection manager.
class CmJoin final : public GroupJoin {
 public:
  CmJoin(DevicePort port, EventChannel channel, CmId id)
      : port_(std::move(port)), channel_(std::move(channel)), id_(std::move(id)) {}
  ~CmJoin() override {
    for (const auto& [ipv4, held] : held_) {
      if (held.asked) exit(ipv4);
    }
  }

  Result<GroupRoute> join(std::uint32_t ipv4) override;
  Result<GroupRoute> route(std::uint32_t ipv4) override;
  void unroute(std::uint32_t ipv4) noexcept override {
    const auto known = held_.find(ipv4);
    if (known == held_.end() || known->second.senders == 0) return;
    --known->second.senders;
    exit_unused(known);
  }
  void leave(std::uint32_t ipv4) noexcept override {
    const auto known = held_.find(ipv4);
    if (known == held_.end()) return;
    known->second.received = false;
    exit_unused(known);
  }
  void progress(TimePoint now) noexcept override;
  bool ended() const noexcept override {
    return std::any_of(held_.begin(), held_.end(),
                       [](const auto& one) { return one.second.ended; });
  }
  std::optional<Moved> next_moved(std::uint32_t after) noexcept override;
  void followed(std::uint32_t ipv4) noexcept override {
    if (const auto known = held_.find(ipv4); known != held_.end()) known->second.moved = false;
  }
  std::string last_error() const override;

 private:
  struct Held {
    GroupRoute route;
    bool full = false;  ///< Not for sending only.
    bool received = false;
    std::uint32_t senders = 0;
    bool asked = true;   ///< There is a membership, or a request for one, to be left.
    bool ended = false;  ///< By the network; to be renewed.
    bool moved = false;  ///< Nobody has followed yet.
    // Of the latest attempt to renew it, and what is known of a membership for sending only.
    bool asks_full = false, light_refused = false;
    int error = 0;  ///< Of the end, or of the latest attempt to renew it.
    TimePoint ask_at{};
  };

  int ask(std::uint32_t ipv4, bool send_only) noexcept;
  void renew(std::uint32_t ipv4, Held& held) noexcept;
  Result<GroupRoute> enter(std::uint32_t ipv4, bool send_only);
  Result<GroupRoute> await(std::uint32_t ipv4);
  void note(const rdma_cm_event& event) noexcept;
  GroupRoute route_in(const rdma_ud_param& ud) const noexcept {
    return {.mgid = ud.ah_attr.grh.dgid,
            .mlid = port_.kind == GidKind::infiniband ? ud.ah_attr.dlid : std::uint16_t{0},
            .service_level = ud.ah_attr.sl};
  }
  void exit(std::uint32_t ipv4) noexcept {
    auto address = socket_address(ipv4);
    rdma_leave_multicast(id_.get(), reinterpret_cast<sockaddr*>(&address));
  }
  void exit_unused(std::map<std::uint32_t, Held>::iterator at) noexcept {
    if (at->second.received || at->second.senders > 0) return;
    if (at->second.asked) exit(at->first);
    held_.erase(at);
  }
  Error refused(std::uint32_t ipv4, int error) {
    refusal_ = error;
    return set_up_error("joining group " + group_text(ipv4), port_.text(), error);
  }

  DevicePort port_;
  EventChannel channel_;
  CmId id_;
  std::map<std::uint32_t, Held> held_;
  int refusal_ = 0;  ///< Of the latest join that failed.
};

Result<GroupRoute> CmJoin::join(std::uint32_t ipv4) {
  const auto known = held_.find(ipv4);
  if (known != held_.end() && known->second.full) {
    known->second.received = true;
    return known->second.route;
  }
  // Two memberships of one group are told apart by nothing when one of them is to be left.
  if (known != held_.end() && known->second.asked) exit(ipv4);
  auto out = enter(ipv4, false);
  if (out) {
    Held& held = held_[ipv4];
    held.moved = held.moved || (held.senders > 0 && !(held.route == *out));
    held.route = *out;
    held.full = held.received = held.asked = true;
    held.ended = false;
  } else if (known != held_.end()) {
    // What is sent from here needs its membership back: now, or where the network does not answer
    // by progress(), since to ask once more would be to wait once more.
    Held& held = known->second;
    held.error = refusal_;
    const auto again = refusal_ == ETIMEDOUT ? out : enter(ipv4, true);
    held.asked = again.has_value();
    held.ended = !again;
    if (again) {
      held.moved = held.moved || !(held.route == *again);
      held.route = *again;
    }
  }
  return out;
}

Result<GroupRoute> CmJoin::route(std::uint32_t ipv4) {
  if (port_.kind != GidKind::infiniband) return GroupRoute{.mgid = group_gid(ipv4, port_.kind)};
  const auto known = held_.find(ipv4);
  if (known != held_.end()) {
    ++known->second.senders;
    return known->second.route;
  }
  auto out = enter(ipv4, true);
  const bool light = out.has_value();
  if (!light && refusal_ != ETIMEDOUT) out = enter(ipv4, false);
  if (out) held_[ipv4] = {.route = *out, .full = !light, .received = false, .senders = 1};
  return out;
}

int CmJoin::ask(std::uint32_t ipv4, bool send_only) noexcept {
  auto address = socket_address(ipv4);
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.join_flags =
      send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  attributes.addr = reinterpret_cast<sockaddr*>(&address);
  return rdma_join_multicast_ex(id_.get(), &attributes, context_of(ipv4)) == 0 ? 0 : errno;
}

Result<GroupRoute> CmJoin::enter(std::uint32_t ipv4, bool send_only) {
  if (const int error = ask(ipv4, send_only); error != 0) return refused(ipv4, error);
  auto out = await(ipv4);
  if (!out) exit(ipv4);
  return out;
}

Result<GroupRoute> CmJoin::await(std::uint32_t ipv4) {
  const SteadyClock clock;
  const TimePoint end = clock.now() + kJoinDeadline;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock.now()).count();
    pollfd ready{.fd = channel_->fd, .events = POLLIN, .revents = 0};
    const int count = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return refused(ipv4, ETIMEDOUT);
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_.get(), &event) != 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return refused(ipv4, errno);
    }
    const auto kind = event->event;
    const int status = event->status;
    const rdma_ud_param ud = event->param.ud;
    // What happens to groups joined before comes on the same channel.
    const bool of_another = is_of_group(kind) && ud.private_data != context_of(ipv4);
    if (of_another) note(*event);
    rdma_ack_cm_event(event);
    if (of_another) continue;
    if (kind == RDMA_CM_EVENT_MULTICAST_ERROR) return refused(ipv4, status < 0 ? -status : EIO);
    if (kind == RDMA_CM_EVENT_DEVICE_REMOVAL) return refused(ipv4, ENODEV);
    if (kind != RDMA_CM_EVENT_MULTICAST_JOIN) continue;
    if (ud.qkey != RDMA_UDP_QKEY) {
      refusal_ = EKEYREJECTED;
      return failed("verbs: group " + group_text(ipv4) + " on " + port_.text() +
                    " exists with another Q_Key; have the subnet manager remove it");
    }
    return route_in(ud);
  }
}

void CmJoin::note(const rdma_cm_event& event) noexcept {
  const rdma_ud_param& ud = event.param.ud;
  const auto known = held_.find(group_of(ud.private_data));
  if (known == held_.end()) return;
  Held& held = known->second;
  if (event.event == RDMA_CM_EVENT_MULTICAST_ERROR) {
    // An attempt that failed, but for another restart, may be one that this manager does not know.
    if (held.ended && !held.asks_full && event.status != -ENETRESET) held.light_refused = true;
    held.ended = true;
    held.error = event.status < 0 ? -event.status : EIO;
  } else if (held.ended && ud.qkey == RDMA_UDP_QKEY) {
    const GroupRoute route = route_in(ud);
    held.moved = held.moved || !(route == held.route);
    held.route = route;
    held.full = held.asks_full;
    held.ended = held.light_refused = false;
  } else if (held.ended) {
    held.error = EKEYREJECTED;
  }
}

void CmJoin::renew(std::uint32_t ipv4, Held& held) noexcept {
  // What has ended is left all the same, and an attempt without an answer is given up.
  if (held.asked) exit(ipv4);
  held.asks_full = held.full || held.light_refused;
  int error = ask(ipv4, !held.asks_full);
  if (error != 0 && !held.asks_full) {
    held.asks_full = true;
    error = ask(ipv4, false);
  }
  held.asked = error == 0;
  if (error != 0) held.error = error;
}

void CmJoin::progress(TimePoint now) noexcept {
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_.get(), &event) == 0) {
    if (is_of_group(event->event)) note(*event);
    rdma_ack_cm_event(event);
  }
  for (auto& [ipv4, held] : held_) {
    if (!held.ended || now < held.ask_at) continue;
    renew(ipv4, held);
    held.ask_at = now + kAskAgain;
  }
}

std::optional<GroupJoin::Moved> CmJoin::next_moved(std::uint32_t after) noexcept {
  for (auto at = held_.upper_bound(after); at != held_.end(); ++at) {
    if (at->second.moved) return Moved{.ipv4 = at->first, .route = at->second.route};
  }
  return {};
}

std::string CmJoin::last_error() const {
  for (const auto& [ipv4, held] : held_) {
    if (held.ended) {
      return set_up_error("renewing the membership of group " + group_text(ipv4) +
                              ", which the network ended,",
                          port_.text(), held.error)
          .message;
    }
  }
  return {};
}

/// Through a socket's membership; the queue pair is attached all the same.
class SocketJoin final : public GroupJoin {
 public:
  SocketJoin(DevicePort port, UniqueFd socket) : port_(std::move(port)), fd_(std::move(socket)) {}

  Result<GroupRoute> join(std::uint32_t ipv4) override {
    if (change(ipv4, IPV6_JOIN_GROUP) != 0) {
      return set_up_error("joining group " + gid_text(group_gid(ipv4, port_.kind)), port_.text(),
                          errno);
    }
    return route(ipv4);
  }
  Result<GroupRoute> route(std::uint32_t ipv4) override {
    return GroupRoute{.mgid = group_gid(ipv4, port_.kind)};
  }
  void unroute(std::uint32_t) noexcept override {}
  void leave(std::uint32_t ipv4) noexcept override { change(ipv4, IPV6_LEAVE_GROUP); }

 private:
  int change(std::uint32_t ipv4, int option) noexcept {
    ipv6_mreq request{};
    const ibv_gid gid = group_gid(ipv4, port_.kind);
    std::memcpy(&request.ipv6mr_multiaddr, gid.raw, sizeof gid.raw);
    request.ipv6mr_interface = port_.interface_index;
    return ::setsockopt(fd_.get(), IPPROTO_IPV6, option, &request, sizeof request);
  }

  DevicePort port_;
  UniqueFd fd_;
};

Result<std::unique_ptr<GroupJoin>> make_cm_join(const DevicePort& port) {
  std::optional<std::uint32_t> source;
  if (port.kind == GidKind::infiniband) {
    source = interface_ipv4(port.interface_name);
    if (!source) {
      return unavailable("verbs: " + port.text() + " needs " + ipoib_address_wanted(port));
    }
  } else {
    std::uint32_t network = 0;
    std::memcpy(&network, port.gid.raw + 12, sizeof network);
    source = ntohl(network);
  }
  EventChannel channel(rdma_create_event_channel());
  if (channel == nullptr) return set_up_error("rdma_create_event_channel", port.text(), errno);
  // progress() must not wait; await() does so by poll().
  if (fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return set_up_error("the connection manager's events", port.text(), errno);
  }
  rdma_cm_id* raw = nullptr;
  if (rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_UDP) != 0) {
    return set_up_error("rdma_create_id", port.text(), errno);
  }
  CmId id(raw);
  auto address = socket_address(*source);
  if (rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address)) != 0) {
    return set_up_error("rdma_bind_addr to " + group_text(*source), port.text(), errno);
  }
  return std::unique_ptr<GroupJoin>(
      std::make_unique<CmJoin>(port, std::move(channel), std::move(id)));
}

}  // namespace

bool GroupRoute::operator==(const GroupRoute& other) const noexcept {
  return std::memcmp(mgid.raw, other.mgid.raw, sizeof mgid.raw) == 0 && mlid == other.mlid &&
         service_level == other.service_level;
}

ibv_gid group_gid(std::uint32_t ipv4, GidKind kind) noexcept {
  ibv_gid out{};
  const std::uint32_t network = htonl(ipv4);
  std::memcpy(out.raw + 12, &network, sizeof network);
  if (kind == GidKind::rocev2_ipv6 || kind == GidKind::rocev2_link_local) {
    out.raw[0] = 0xFF;
    out.raw[1] = 0x15;
  } else {
    out.raw[10] = out.raw[11] = 0xFF;
  }
  return out;
}

Result<std::unique_ptr<GroupJoin>> GroupJoin::make(const DevicePort& port) {
  if (port.kind == GidKind::rocev2_ipv4 || port.kind == GidKind::infiniband) {
    return make_cm_join(port);
  }
  UniqueFd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return set_up_error("an IPv6 socket for MLD", port.text(), errno);
  return std::unique_ptr<GroupJoin>(std::make_unique<SocketJoin>(port, std::move(socket)));
}

}  // namespace selmcast::verbs
