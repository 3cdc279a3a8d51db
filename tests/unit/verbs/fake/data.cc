// What the fake devices do with work requests.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/unit/verbs/fake/model.h"

namespace selmcast::fake {
namespace {

constexpr std::uint32_t kGrh = 40, kMulticast = 0xFFFFFF;

Region* region_of(std::uint32_t key, bool remote, std::uint64_t at, std::size_t bytes) {
  for (Region* region : registry().regions) {
    if ((remote ? region->base.rkey : region->base.lkey) != key) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(region->base.addr);
    if (at >= begin && at + bytes <= begin + region->base.length) return region;
  }
  return nullptr;
}

void complete(QueuePair& qp, bool send, ibv_wc wc, std::uint64_t frees) {
  auto* const queue = of<Completions>(send ? qp.base.send_cq : qp.base.recv_cq);
  wc.qp_num = qp.base.qp_num;
  queue->entries.push_back({.wc = wc, .owner = &qp, .frees = frees});
  if (queue->entries.size() > static_cast<std::size_t>(queue->timed.cqe)) {
    violated("a completion queue overran");
  }
  if (!queue->armed) return;
  queue->armed = false;
  if (write(of<Channel>(queue->timed.channel)->write, &queue, sizeof queue) != sizeof queue) {
    std::abort();
  }
}

/// Scatters a datagram behind its GRH over the places of a receive.
ibv_wc_status scatter(const Receive& receive, const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> all(kGrh, 0);
  all.insert(all.end(), bytes.begin(), bytes.end());
  std::size_t room = 0, done = 0;
  for (const ibv_sge& place : receive.places) {
    if (region_of(place.lkey, false, place.addr, place.length) == nullptr) {
      violated("a receive names memory that is not registered");
      return IBV_WC_LOC_PROT_ERR;
    }
    room += place.length;
  }
  if (all.size() > room) return IBV_WC_LOC_LEN_ERR;
  for (const ibv_sge& place : receive.places) {
    const std::size_t part = std::min<std::size_t>(place.length, all.size() - done);
    std::memcpy(reinterpret_cast<void*>(place.addr), all.data() + done, part);
    done += part;
  }
  return IBV_WC_SUCCESS;
}

void arrive(QueuePair& qp, const std::vector<std::uint8_t>& bytes) {
  if (qp.base.state != IBV_QPS_RTR && qp.base.state != IBV_QPS_RTS) return;
  if (world().loses && world().loses(qp.base.qp_num, bytes)) return;
  auto& receives = qp.base.srq != nullptr ? of<SharedQueue>(qp.base.srq)->receives : qp.receives;
  if (receives.empty()) return;
  const Receive receive = receives.front();
  receives.pop_front();
  ibv_wc wc{};
  wc.wr_id = receive.id;
  wc.opcode = IBV_WC_RECV;
  wc.status = world().receive_status ? world().receive_status(qp.base) : IBV_WC_SUCCESS;
  if (wc.status == IBV_WC_SUCCESS) wc.status = scatter(receive, bytes);
  if (wc.status == IBV_WC_SUCCESS) {
    wc.byte_len = static_cast<std::uint32_t>(bytes.size()) + kGrh;
  }
  complete(qp, false, wc, 0);
  if (wc.status != IBV_WC_SUCCESS) to_error(qp);
}

ibv_wc_status gather(const Send& send, std::vector<std::uint8_t>& out) {
  out = send.copy;
  for (const ibv_sge& place : send.places) {
    if (region_of(place.lkey, false, place.addr, place.length) == nullptr) {
      return IBV_WC_LOC_PROT_ERR;
    }
    const auto* const from = reinterpret_cast<const std::uint8_t*>(place.addr);
    out.insert(out.end(), from, from + place.length);
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status send_datagram(const QueuePair& from, const Send& send) {
  std::vector<std::uint8_t> bytes;
  if (const auto status = gather(send, bytes); status != IBV_WC_SUCCESS) return status;
  const auto& to = send.request.wr.ud;
  const ibv_ah_attr& way = of<Way>(to.ah)->attributes;
  const std::string group = group_key(way.grh.dgid, way.dlid);
  const bool to_group = to.remote_qpn == kMulticast;
  // The network forgot the groups that went by other LIDs.
  if (to_group && way.dlid != 0 && (way.dlid & 0xFF00U) != world().first_mlid)
    return IBV_WC_SUCCESS;
  const auto all = registry().queue_pairs;
  for (QueuePair* qp : all) {
    if (qp->base.qp_type != IBV_QPT_UD || qp == &from) continue;
    const bool reached = to_group ? qp->groups.contains(group) : qp->base.qp_num == to.remote_qpn;
    if (reached && qp->attributes.qkey == to.remote_qkey) arrive(*qp, bytes);
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status read_remote(const QueuePair& from, const Send& send) {
  const auto at = std::find_if(
      registry().queue_pairs.begin(), registry().queue_pairs.end(), [&](const QueuePair* qp) {
        return qp->base.qp_num == from.attributes.dest_qp_num && qp->base.state == IBV_QPS_RTS &&
               qp->attributes.dest_qp_num == from.base.qp_num &&
               qp->attributes.rq_psn == from.attributes.sq_psn;
      });
  if (at == registry().queue_pairs.end()) return IBV_WC_RETRY_EXC_ERR;
  const ibv_sge& into = send.places.front();
  const Region* const local = region_of(into.lkey, false, into.addr, into.length);
  if (local == nullptr || (local->access & IBV_ACCESS_LOCAL_WRITE) == 0) return IBV_WC_LOC_PROT_ERR;
  const auto& remote = send.request.wr.rdma;
  const Region* const there = region_of(remote.rkey, true, remote.remote_addr, into.length);
  if (there == nullptr || (there->access & IBV_ACCESS_REMOTE_READ) == 0 ||
      ((*at)->attributes.qp_access_flags & IBV_ACCESS_REMOTE_READ) == 0) {
    to_error(**at);
    return IBV_WC_REM_ACCESS_ERR;
  }
  std::memcpy(reinterpret_cast<void*>(into.addr), reinterpret_cast<const void*>(remote.remote_addr),
              into.length);
  return IBV_WC_SUCCESS;
}

void work(QueuePair& qp) {
  while (!qp.sends.empty()) {
    const Send send = qp.sends.front();
    qp.sends.pop_front();
    ibv_wc wc{};
    wc.wr_id = send.request.wr_id;
    wc.status = world().send_status ? world().send_status(qp.base, send.request) : IBV_WC_SUCCESS;
    if (wc.status == IBV_WC_SUCCESS) {
      wc.status =
          send.request.opcode == IBV_WR_RDMA_READ ? read_remote(qp, send) : send_datagram(qp, send);
    }
    const bool signaled = (send.request.send_flags & IBV_SEND_SIGNALED) != 0;
    if (signaled || wc.status != IBV_WC_SUCCESS) complete(qp, true, wc, send.number);
    if (wc.status != IBV_WC_SUCCESS) to_error(qp);
  }
}

int take(QueuePair& qp, const ibv_send_wr& request) {
  if (qp.base.state != IBV_QPS_RTS && qp.base.state != IBV_QPS_ERR) return EINVAL;
  if (qp.posted - qp.freed == qp.cap.max_send_wr) return ENOMEM;
  if (static_cast<std::uint32_t>(request.num_sge) > qp.cap.max_send_sge) return EINVAL;
  Send send;
  send.request = request;
  send.places.assign(request.sg_list, request.sg_list + request.num_sge);
  send.number = ++qp.posted;
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    for (const ibv_sge& place : send.places) {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(place.addr);
      send.copy.insert(send.copy.end(), from, from + place.length);
    }
    send.places.clear();
    if (send.copy.size() > qp.cap.max_inline_data) return EINVAL;
  }
  qp.sends.push_back(std::move(send));
  if (qp.base.state == IBV_QPS_ERR) to_error(qp);
  return 0;
}

template <class Queue>
int take_all(Queue& receives, std::uint32_t depth, std::uint32_t slices, ibv_recv_wr* chain,
             ibv_recv_wr** refused) {
  for (; chain != nullptr; chain = chain->next) {
    if (receives.size() == depth) return *refused = chain, ENOMEM;
    if (chain->num_sge < 1 || static_cast<std::uint32_t>(chain->num_sge) > slices) {
      return *refused = chain, EINVAL;
    }
    receives.push_back(
        {.id = chain->wr_id, .places = {chain->sg_list, chain->sg_list + chain->num_sge}});
  }
  return 0;
}

}  // namespace

int access_to(const void* at) {
  int out = -1;
  for (const Region* region : registry().regions) {
    const auto* const begin = static_cast<const std::byte*>(region->base.addr);
    if (begin <= at && at < begin + region->base.length) out = region->access;
  }
  return out;
}

void deliver() {
  const auto all = registry().queue_pairs;
  for (QueuePair* qp : all) work(*qp);
}

void inject(std::uint32_t qpn, const std::vector<std::uint8_t>& bytes) {
  for (QueuePair* qp : registry().queue_pairs) {
    if (qp->base.qp_num == qpn) arrive(*qp, bytes);
  }
}

int post_send(ibv_qp* base, ibv_send_wr* chain, ibv_send_wr** refused) {
  auto* const qp = of<QueuePair>(base);
  int error = fails("ibv_post_send");
  *refused = chain;
  const int most = error == 0 ? -1 : world().takes_of_chain;
  for (int i = 0; chain != nullptr; chain = chain->next, ++i) {
    *refused = chain;
    if (error != 0 && i >= most) break;
    if (const int refusal = take(*qp, *chain); refusal != 0) {
      error = refusal;
      break;
    }
  }
  if (!world().hold) work(*qp);
  return error;
}

int post_receive(ibv_qp* base, ibv_recv_wr* chain, ibv_recv_wr** refused) {
  auto* const qp = of<QueuePair>(base);
  if (const int error = fails("ibv_post_recv")) return *refused = chain, error;
  if (base->state == IBV_QPS_RESET) return *refused = chain, EINVAL;
  const int error =
      take_all(qp->receives, qp->cap.max_recv_wr, qp->cap.max_recv_sge, chain, refused);
  if (base->state == IBV_QPS_ERR) to_error(*qp);
  return error;
}

int post_shared(ibv_srq* base, ibv_recv_wr* chain, ibv_recv_wr** refused) {
  if (const int error = fails("ibv_post_srq_recv")) return *refused = chain, error;
  auto* const queue = of<SharedQueue>(base);
  return take_all(queue->receives, queue->depth, 1, chain, refused);
}

int poll_completions(ibv_cq* cq, int most, ibv_wc* out) {
  if (fails("ibv_poll_cq") != 0) return -1;
  auto* const queue = of<Completions>(cq);
  int taken = 0;
  for (; taken < most && !queue->entries.empty(); ++taken) out[taken] = take_entry(*queue).wc;
  return taken;
}

Entry take_entry(Completions& queue) {
  const Entry entry = queue.entries.front();
  if (entry.owner != nullptr) entry.owner->freed = std::max(entry.owner->freed, entry.frees);
  queue.entries.pop_front();
  return entry;
}

int arm(ibv_cq* cq, int) {
  if (const int error = fails("ibv_req_notify_cq")) return error;
  of<Completions>(cq)->armed = true;
  return 0;
}

}  // namespace selmcast::fake
