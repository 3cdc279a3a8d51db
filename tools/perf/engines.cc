#include "tools/perf/engines.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

ibv_wr_opcode opcode_of(Op op) noexcept {
  switch (op) {
    case Op::write:
      return IBV_WR_RDMA_WRITE;
    case Op::write_imm:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
    case Op::read:
      return IBV_WR_RDMA_READ;
    case Op::atomic:
      return IBV_WR_ATOMIC_FETCH_AND_ADD;
    default:
      return IBV_WR_SEND_WITH_IMM;
  }
}

}  // namespace

std::string text_of(const Fault& fault) {
  if (fault.status != IBV_WC_SUCCESS) return verbs::explain_status(fault.status);
  return std::string("the device takes no more requests: ") + std::strerror(fault.error) +
         verbs::remedy_of_errno(fault.error);
}

std::uint32_t stamp(std::uint32_t round, std::uint64_t number) noexcept {
  return htonl(((round & 0xFFU) << 24U) | static_cast<std::uint32_t>(number & 0xFFFFFFU));
}

void prepare(const Rig& rig, const Settings& settings, std::size_t q, const End* peer,
             Request& out) {
  const std::size_t at = q * rig.stride;
  const bool comes_back = answered_by_device(settings.op);
  std::byte* const here = (comes_back ? rig.target : rig.source) + at;
  out.place = {reinterpret_cast<std::uintptr_t>(here), settings.size, rig.region->lkey};
  out.wr.sg_list = &out.place;
  out.wr.num_sge = 1;
  out.wr.opcode = opcode_of(settings.op);
  const bool fits = !comes_back && settings.size <= rig.inline_bytes;
  out.wr.send_flags = fits ? unsigned{IBV_SEND_INLINE} : 0U;
  if (unreliable(settings.op)) {
    out.wr.wr.ud.ah = rig.address.get();
    out.wr.wr.ud.remote_qpn = rig.remote_qpn;
    out.wr.wr.ud.remote_qkey = verbs::kQueueKey;
  } else if (settings.op == Op::atomic) {
    out.wr.wr.atomic.remote_addr = peer->target + at;
    out.wr.wr.atomic.rkey = peer->rkey;
    out.wr.wr.atomic.compare_add = 1;
  } else if (settings.op != Op::send) {
    out.wr.wr.rdma.remote_addr = (settings.op == Op::read ? peer->source : peer->target) + at;
    out.wr.wr.rdma.rkey = peer->rkey;
  }
}

Flood::Flood(const Rig& rig, const Settings& settings, const End* peer)
    : cq_(rig.cq.get()),
      lanes_(rig.queues.size()),
      depth_(settings.depth),
      list_(settings.post_list),
      signal_every_(settings.signal_every),
      events_(settings.events) {
  for (std::size_t q = 0; q < lanes_.size(); ++q) {
    lanes_[q].qp = rig.queues[q].get();
    lanes_[q].chain.resize(list_);
    for (Request& request : lanes_[q].chain) prepare(rig, settings, q, peer, request);
    for (std::size_t i = 0; i + 1 < list_; ++i) {
      lanes_[q].chain[i].wr.next = &lanes_[q].chain[i + 1].wr;
    }
  }
  flags_ = lanes_[0].chain[0].wr.send_flags;
}

Sink::Sink(const Rig& rig, const Settings& settings, bool stamped)
    : rig_(rig),
      lanes_(rig.queues.size()),
      size_(settings.size),
      header_(unreliable(settings.op) ? Rig::kGrhBytes : 0),
      datagrams_(unreliable(settings.op)),
      bytes_arrive_in_place_(settings.op == Op::write_imm),
      verify_all_(settings.verify_all),
      events_(settings.events),
      stamped_(stamped) {
  std::size_t place = 0;
  for (std::size_t q = 0; q < lanes_.size(); ++q) {
    lanes_[q].qp = rig.queues[q].get();
    lanes_[q].receives.resize(rig.receives);
    for (std::size_t i = 0; i < rig.receives; ++i) {
      Receive& receive = lanes_[q].receives[i];
      receive.at = rig.receive_places + (place++ % rig.place_count) * rig.receive_stride;
      receive.place = {reinterpret_cast<std::uintptr_t>(receive.at), size_ + header_,
                       rig.region->lkey};
      receive.wr.wr_id = verbs::tag(verbs::Work::receive, (std::uint64_t{q} << 32U) | i);
      receive.wr.sg_list = &receive.place;
      receive.wr.num_sge = bytes_arrive_in_place_ ? 0 : 1;
    }
  }
}

Ping::Ping(const Rig& rig, const Settings& settings, const End& peer, bool client)
    : cq_(rig.cq.get()),
      qp_(rig.queues[0].get()),
      way_(answered_by_device(settings.op) ? Way::completions
           : settings.op == Op::write      ? Way::memory
                                           : Way::receives),
      client_(client),
      events_(settings.events),
      datagrams_(unreliable(settings.op)),
      depth_(settings.depth),
      signal_every_(std::clamp(settings.depth / 2, 1U, 32U)),
      mark_out_(rig.source + settings.size - 1),
      mark_in_(rig.target + settings.size - 1) {
  prepare(rig, settings, 0, &peer, request_);
  if (client) samples_.resize(kSamplesMost);
  const std::uint32_t header = datagrams_ ? Rig::kGrhBytes : 0;
  const std::uint32_t receives = way_ == Way::receives ? rig.receives : 0;
  receives_.resize(receives);
  places_.resize(receives);
  for (std::size_t i = 0; i < receives; ++i) {
    std::byte* const at = rig.receive_places + (i % rig.place_count) * rig.receive_stride;
    places_[i] = {reinterpret_cast<std::uintptr_t>(at), settings.size + header, rig.region->lkey};
    receives_[i].wr_id = verbs::tag(verbs::Work::receive, i);
    receives_[i].sg_list = &places_[i];
    receives_[i].num_sge = settings.op == Op::write_imm ? 0 : 1;
  }
}

}  // namespace selmcast::perf
