// Queue pairs of the fake devices: made, moved between states, attached to groups.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/unit/verbs/fake/model.h"

namespace selmcast::fake {

std::string group_key(const ibv_gid& gid, std::uint16_t lid) {
  return std::string(reinterpret_cast<const char*>(gid.raw), sizeof gid.raw) + std::to_string(lid);
}

namespace {

void flushed(QueuePair& qp, ibv_cq* cq, std::uint64_t id, ibv_wc_opcode opcode,
             std::uint64_t frees) {
  ibv_wc wc{};
  wc.wr_id = id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.opcode = opcode;
  wc.qp_num = qp.base.qp_num;
  of<Completions>(cq)->entries.push_back({.wc = wc, .owner = &qp, .frees = frees});
}

}  // namespace

void to_error(QueuePair& qp) {
  qp.base.state = IBV_QPS_ERR;
  for (const Send& send : qp.sends) {
    flushed(qp, qp.base.send_cq, send.request.wr_id, IBV_WC_SEND, send.number);
  }
  for (const Receive& receive : qp.receives) {
    flushed(qp, qp.base.recv_cq, receive.id, IBV_WC_RECV, 0);
  }
  qp.sends.clear();
  qp.receives.clear();
}

void to_reset(QueuePair& qp) {
  qp.rate_kbps = 0;
  qp.base.state = IBV_QPS_RESET;
  qp.sends.clear();
  qp.receives.clear();
  qp.freed = qp.posted;
  if (world().purges) forget(qp);
}

void forget(QueuePair& qp) {
  for (ibv_cq* cq : {qp.base.send_cq, qp.base.recv_cq}) {
    std::erase_if(of<Completions>(cq)->entries,
                  [&](const Entry& entry) { return entry.owner == &qp; });
  }
}

int limit_rate(ibv_qp* base, ibv_qp_rate_limit_attr* limit) {
  if (const int error = fails("ibv_modify_qp_rate_limit")) return error;
  const ibv_packet_pacing_caps& pacing = device_of(base->context).pacing;
  const std::uint32_t rate = limit->rate_limit;
  const bool within = pacing.qp_rate_limit_min <= rate && rate <= pacing.qp_rate_limit_max;
  if (base->state == IBV_QPS_ERR) return EINVAL;  // which a caller may not know yet
  if ((rate != 0 && !within) || (pacing.supported_qpts & 1U << base->qp_type) == 0 ||
      base->state != IBV_QPS_RTS) {
    violated("a rate was set that the device does not have");
    return EINVAL;
  }
  of<QueuePair>(base)->rate_kbps = rate;
  return 0;
}

ibv_mtu path_mtu_of(std::uint32_t qpn) {
  for (const QueuePair* qp : registry().queue_pairs) {
    if (qp->base.qp_num == qpn) return qp->attributes.path_mtu;
  }
  return {};
}

std::uint32_t rate_of(std::uint32_t qpn) {
  for (const QueuePair* qp : registry().queue_pairs) {
    if (qp->base.qp_num == qpn) return qp->rate_kbps;
  }
  return 0;
}

void break_queue_pair(std::uint32_t qpn) {
  for (QueuePair* qp : registry().queue_pairs) {
    if (qp->base.qp_num == qpn) to_error(*qp);
  }
}

std::vector<std::uint32_t> queue_pairs(ibv_qp_type type) {
  std::vector<std::uint32_t> out;
  for (const QueuePair* qp : registry().queue_pairs) {
    if (qp->base.qp_type == type) out.push_back(qp->base.qp_num);
  }
  return out;
}

std::size_t receives_posted(const std::string& device) {
  std::size_t out = 0;
  for (const SharedQueue* queue : registry().shared_queues) {
    if (device == queue->base.context->device->name) out += queue->receives.size();
  }
  for (const QueuePair* qp : registry().queue_pairs) {
    if (device == qp->base.context->device->name) out += qp->receives.size();
  }
  return out;
}

bool posted_twice() {
  std::set<std::uint64_t> places;
  const auto twice = [&](const std::deque<Receive>& receives) {
    return std::any_of(receives.begin(), receives.end(), [&](const Receive& r) {
      return std::any_of(r.places.begin(), r.places.end(),
                         [&](const ibv_sge& place) { return !places.insert(place.addr).second; });
    });
  };
  for (const SharedQueue* queue : registry().shared_queues) {
    if (twice(queue->receives)) return true;
  }
  for (const QueuePair* qp : registry().queue_pairs) {
    if (twice(qp->receives)) return true;
  }
  return false;
}

}  // namespace selmcast::fake

using namespace selmcast::fake;  // NOLINT: the library's names are global

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (const int error = fails("ibv_create_qp")) return errno = error, nullptr;
  const Device& device = device_of(pd->context);
  if (init->cap.max_inline_data > device.inline_most ||
      init->cap.max_send_wr > static_cast<std::uint32_t>(device.max_qp_wr)) {
    return errno = EINVAL, nullptr;
  }
  auto* const out = new QueuePair();
  out->base.context = pd->context;
  out->base.pd = pd;
  out->base.send_cq = init->send_cq;
  out->base.recv_cq = init->recv_cq;
  out->base.srq = init->srq;
  out->base.qp_num = registry().next_qpn++;
  out->base.state = IBV_QPS_RESET;
  out->base.qp_type = init->qp_type;
  out->cap = init->cap;
  ++of<Domain>(pd)->children;
  of<Completions>(init->send_cq)->users += 2;
  if (init->srq != nullptr) ++of<SharedQueue>(init->srq)->users;
  registry().queue_pairs.push_back(out);
  count(Object::queue_pair, 1);
  return &out->base;
}

int ibv_destroy_qp(ibv_qp* base) {
  auto* const qp = of<QueuePair>(base);
  if (!may_go("queue pair", static_cast<int>(qp->groups.size()))) return EBUSY;
  if (world().purges) forget(*qp);
  for (Entry& entry : of<Completions>(base->send_cq)->entries) {
    if (entry.owner == qp) entry.owner = nullptr;
  }
  --of<Domain>(base->pd)->children;
  of<Completions>(base->send_cq)->users -= 2;
  if (base->srq != nullptr) --of<SharedQueue>(base->srq)->users;
  std::erase(registry().queue_pairs, qp);
  count(Object::queue_pair, -1);
  delete qp;
  return 0;
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attributes, int mask) {
  if (const int error = fails("ibv_modify_qp")) return error;
  auto* const qp = of<QueuePair>(base);
  if ((mask & IBV_QP_AV) != 0 && !has_source(base->context, attributes->ah_attr)) return EINVAL;
  if ((mask & IBV_QP_PATH_MTU) != 0) qp->attributes.path_mtu = attributes->path_mtu;
  if ((mask & IBV_QP_QKEY) != 0) qp->attributes.qkey = attributes->qkey;
  if ((mask & IBV_QP_DEST_QPN) != 0) qp->attributes.dest_qp_num = attributes->dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) qp->attributes.rq_psn = attributes->rq_psn;
  if ((mask & IBV_QP_SQ_PSN) != 0) qp->attributes.sq_psn = attributes->sq_psn;
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
    qp->attributes.qp_access_flags = attributes->qp_access_flags;
  }
  if ((mask & IBV_QP_STATE) == 0) return 0;
  const ibv_qp_state to = attributes->qp_state;
  if (to == IBV_QPS_ERR) {
    if (base->state != IBV_QPS_ERR && base->state != IBV_QPS_RESET) to_error(*qp);
    return 0;
  }
  if (to == IBV_QPS_RESET) {
    to_reset(*qp);
    return 0;
  }
  // RESET, INIT, RTR and RTS follow each other, in this order of numbers.
  if (static_cast<int>(to) != static_cast<int>(base->state) + 1) return EINVAL;
  base->state = to;
  return 0;
}

int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
  if (const int error = fails("ibv_query_qp")) return error;
  attributes->qp_state = base->state;
  return 0;
}

int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  if (const int error = fails("ibv_attach_mcast")) return error;
  of<QueuePair>(qp)->groups.insert(group_key(*gid, lid));
  return 0;
}
int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return of<QueuePair>(qp)->groups.erase(group_key(*gid, lid)) == 1 ? 0 : EINVAL;
}

}  // extern "C"
