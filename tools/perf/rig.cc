#include "tools/perf/rig.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kReceivesLeast = 512;  // As perftest's.
constexpr std::size_t kShared = std::size_t{4} << 20U;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint8_t kHops = 64;

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) noexcept {
  return (bytes + to - 1) / to * to;
}

Error refused(const Rig& rig, const char* what, int error) {
  return verbs::set_up_error(what, rig.opened.port.text(), error);
}

Result<void> check_size(const Rig& rig, const Settings& s) {
  if (unreliable(s.op) && s.size > rig.opened.port.mtu_bytes) {
    return bad_input("perf: --size " + std::to_string(s.size) + " is more than a datagram of " +
                     rig.opened.port.text() + " holds, " +
                     std::to_string(rig.opened.port.mtu_bytes));
  }
  if (s.op == Op::atomic && rig.opened.attributes.atomic_cap == IBV_ATOMIC_NONE) {
    return unavailable("perf: --op atomic: " + rig.opened.port.text() +
                       " has no atomic operations (ibv_devinfo -v: atomic_cap)");
  }
  return {};
}

Result<void> lay_out(Rig& rig, const Settings& s) {
  rig.stride = rounded(s.size, kPage);
  const std::size_t ends = rig.stride * s.queue_pairs;
  std::size_t places = 0;
  if (takes_receives(s.op)) {
    const auto most = static_cast<std::uint32_t>(std::max(rig.opened.attributes.max_qp_wr / 2, 1));
    rig.receives = std::min(std::max(2 * s.depth, kReceivesLeast), most);
    rig.receive_stride = rounded(s.size + Rig::kGrhBytes, 64);
    const std::size_t all = std::size_t{rig.receives} * s.queue_pairs;
    // Few places stay in the caches. Looking at every byte needs one each: bytes that did not
    // arrive must not be taken for those of an earlier message.
    const std::size_t shared = std::max<std::size_t>(kShared / rig.receive_stride, 1);
    rig.place_count = static_cast<std::uint32_t>(s.verify_all ? all : std::min(all, shared));
    places = rig.receive_stride * rig.place_count;
  }
  auto pages = Arena::map(2 * ends + places, {.numa_node = rig.opened.port.numa_node});
  if (!pages) {
    return unavailable("perf: " + pages.error().message + ", by a smaller --size or --depth");
  }
  rig.pages = std::move(pages).value();
  rig.source = rig.pages.data();
  rig.target = rig.source + ends;
  rig.receive_places = rig.target + ends;
  for (std::size_t q = 0; q < s.queue_pairs; ++q) {
    for (std::size_t i = 0; i < s.size; ++i) {
      rig.source[q * rig.stride + i] = static_cast<std::byte>(pattern(i));
    }
  }
  return {};
}

Result<void> make_queue(Rig& rig, const Settings& s) {
  rig.inline_bytes = s.inline_bytes;
  if (unreliable(s.op)) {
    verbs::UdSettings ud;
    ud.cq = rig.cq.get();
    ud.send_depth = s.depth;
    ud.receive_depth = rig.receives;
    ud.inline_bytes = s.inline_bytes;
    auto queue = verbs::make_ud(rig.pd.get(), rig.opened.port, ud);
    if (!queue) return std::move(queue).error();
    rig.queues.push_back(std::move(queue).value());
    rig.inline_bytes = std::min(s.inline_bytes, ud.inline_bytes);
    return {};
  }
  verbs::ReliableSettings reliable;
  reliable.send_cq = reliable.receive_cq = rig.cq.get();
  reliable.send_depth = s.depth;
  reliable.receive_depth = std::max(rig.receives, 1U);
  reliable.inline_bytes = s.inline_bytes;
  reliable.access = kAccess | (s.op == Op::atomic ? IBV_ACCESS_REMOTE_ATOMIC : 0);
  auto queue = verbs::make_reliable(rig.pd.get(), rig.opened.port, reliable);
  if (!queue) return std::move(queue).error();
  rig.queues.push_back(std::move(queue).value());
  rig.inline_bytes = std::min(s.inline_bytes, reliable.inline_bytes);
  return {};
}

Result<void> make_objects(Rig& rig, const Settings& s) {
  ibv_context* const context = rig.opened.context.get();
  errno = 0;
  rig.pd.reset(ibv_alloc_pd(context));
  if (rig.pd == nullptr) return refused(rig, "a protection domain", errno);
  if (s.events) {
    rig.channel.reset(ibv_create_comp_channel(context));
    if (rig.channel == nullptr) return refused(rig, "a completion channel", errno);
    if (::fcntl(rig.channel->fd, F_SETFL, ::fcntl(rig.channel->fd, F_GETFL) | O_NONBLOCK) != 0) {
      return refused(rig, "a completion channel", errno);
    }
  }
  const std::uint32_t entries = s.queue_pairs * (s.depth + rig.receives);
  rig.cq.reset(ibv_create_cq(context, static_cast<int>(entries), nullptr, rig.channel.get(), 0));
  if (rig.cq == nullptr) return refused(rig, "a completion queue (--depth)", errno);
  // A ping-pong looks at the last byte for the whole: there order matters.
  const int access = kAccess | (s.op == Op::atomic ? IBV_ACCESS_REMOTE_ATOMIC : 0) |
                     (s.latency || s.op == Op::atomic ? 0 : IBV_ACCESS_RELAXED_ORDERING);
  rig.region.reset(ibv_reg_mr(rig.pd.get(), rig.pages.data(), rig.pages.size(), access));
  if (rig.region == nullptr) return refused(rig, "registering memory", errno);
  std::random_device random;
  for (std::uint32_t q = 0; q < s.queue_pairs; ++q) {
    if (auto ok = make_queue(rig, s); !ok) return ok;
    rig.psns.push_back(unreliable(s.op) ? 0 : random() & 0xFFFFFFU);
  }
  return {};
}

Result<void> join_group(Rig& rig, const Settings& s) {
  auto join = verbs::GroupJoin::make(rig.opened.port);
  if (!join) return std::move(join).error();
  rig.group = std::move(join).value();
  const auto route = rig.group->join(s.group);
  if (!route) return route.error();
  ibv_qp* const queue = rig.queues[0].get();
  if (const int error = ibv_attach_mcast(queue, &route->mgid, route->mlid); error != 0) {
    return refused(rig, "attaching to the group", error);
  }
  rig.attached = {queue, DetachGroup{.mgid = route->mgid, .mlid = route->mlid}};
  return {};
}

Result<void> make_address(Rig& rig, const ibv_gid& gid, std::uint16_t lid, std::uint8_t level) {
  const verbs::DevicePort& port = rig.opened.port;
  ibv_ah_attr attributes{};
  attributes.port_num = port.port;
  attributes.dlid = lid;
  attributes.sl = level;
  attributes.is_global = 1;
  attributes.grh.dgid = gid;
  attributes.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
  attributes.grh.hop_limit = kHops;
  errno = 0;
  rig.address.reset(ibv_create_ah(rig.pd.get(), &attributes));
  if (rig.address != nullptr) return {};
  return verbs::set_up_error("an address handle to " + verbs::gid_text(gid), port.text(), errno);
}

}  // namespace

Result<Rig> Rig::make(const Settings& settings, bool serves) {
  auto wish = verbs::parse_port_wish(settings.device);
  if (!wish) return Error{wish.error().kind, "perf: --device: " + wish.error().message};
  auto opened = verbs::open_port(*wish);
  if (!opened) return std::move(opened).error();
  Rig out;
  out.opened = std::move(opened).value();
  if (auto ok = check_size(out, settings); !ok) return ok.error();
  if (auto ok = lay_out(out, settings); !ok) return ok.error();
  if (auto ok = make_objects(out, settings); !ok) return ok.error();
  if (settings.op == Op::multicast && serves) {
    if (auto ok = join_group(out, settings); !ok) return ok.error();
  }
  return out;
}

End Rig::end() const {
  End out;
  std::memcpy(out.gid.data(), opened.port.gid.raw, out.gid.size());
  out.lid = opened.port.lid;
  out.mtu = static_cast<std::uint8_t>(opened.port.mtu);
  out.reads = static_cast<std::uint8_t>(std::clamp(opened.attributes.max_qp_rd_atom, 0, 255));
  out.rkey = region->rkey;
  out.source = reinterpret_cast<std::uintptr_t>(source);
  out.target = reinterpret_cast<std::uintptr_t>(target);
  for (std::size_t q = 0; q < queues.size(); ++q) {
    out.queues.push_back({.qpn = queues[q]->qp_num, .psn = psns[q]});
  }
  return out;
}

Result<void> Rig::connect(const Settings& settings, const End& peer) {
  ibv_gid gid{};
  std::memcpy(gid.raw, peer.gid.data(), peer.gid.size());
  if (peer.queues.size() != queues.size()) return failed("perf: unequal numbers of queue pairs");
  if (unreliable(settings.op)) {
    remote_qpn = peer.queues[0].qpn;
    return make_address(*this, gid, peer.lid, 0);
  }
  const verbs::Persistence persistence;
  const auto reads = static_cast<std::uint8_t>(std::clamp<int>(peer.reads, 1, 16));
  for (std::size_t q = 0; q < queues.size(); ++q) {
    const verbs::ReliablePeer to{.gid = gid,
                                 .lid = peer.lid,
                                 .qpn = peer.queues[q].qpn,
                                 .psn = peer.queues[q].psn,
                                 .mtu = static_cast<ibv_mtu>(peer.mtu)};
    if (auto ok = verbs::connect_reliable(queues[q].get(), opened.port, opened.attributes, psns[q],
                                          to, persistence, reads);
        !ok) {
      return ok;
    }
  }
  return {};
}

Result<void> Rig::address_group(const Settings& settings) {
  auto join = verbs::GroupJoin::make(opened.port);
  if (!join) return std::move(join).error();
  group = std::move(join).value();
  const auto route = group->route(settings.group);
  if (!route) return route.error();
  remote_qpn = verbs::kMulticastQueuePair;
  return make_address(*this, route->mgid, route->mlid, route->service_level);
}

Result<void> Rig::limit_rate(std::uint64_t kbps) {
  const auto pacing = verbs::pacing_of(opened.context.get(), queues[0]->qp_type);
  if (!pacing) {
    return unavailable("perf: --rate-limit: " + opened.port.text() +
                       " cannot pace packets (packet_pacing_caps is empty); leave the flag out");
  }
  if (!pacing->has(kbps)) {
    return bad_input("perf: --rate-limit: " + std::to_string(kbps) + " kbit/s; " +
                     opened.port.text() + " paces " + std::to_string(pacing->least) + ".." +
                     std::to_string(pacing->most));
  }
  for (const auto& queue : queues) {
    const int error = verbs::limit_rate(queue.get(), static_cast<std::uint32_t>(kbps));
    if (error != 0) return refused(*this, "pacing (--rate-limit)", error);
  }
  return {};
}

}  // namespace selmcast::perf
