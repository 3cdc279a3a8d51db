#include "transport/verbs/reliable.h"

#include <algorithm>
#include <cerrno>

#include "transport/verbs/explain.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint8_t kHops = 64;
constexpr std::uint8_t kReceiverNotReadyDelay = 12;  // 0.64 ms, IBA vol. 1, table 45

int to_init(ibv_qp* qp, const DevicePort& port, int access) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port.port;
  attributes.qp_access_flags = static_cast<unsigned>(access);
  return ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

}  // namespace

Result<QueuePair> make_reliable(ibv_pd* pd, const DevicePort& port, ReliableSettings& settings) {
  QueuePair qp;
  std::uint32_t inline_bytes = settings.inline_bytes;
  // Devices say no to more inline bytes than they have, without saying how many that is.
  for (;; inline_bytes /= 2) {
    ibv_qp_init_attr init{};
    init.send_cq = settings.send_cq;
    init.recv_cq = settings.receive_cq;
    init.srq = settings.srq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = settings.send_depth;
    init.cap.max_recv_wr = settings.srq == nullptr ? settings.receive_depth : 0;
    init.cap.max_send_sge = settings.send_slices;
    init.cap.max_recv_sge = settings.srq == nullptr ? 1 : 0;
    init.cap.max_inline_data = inline_bytes;
    errno = 0;
    qp.reset(ibv_create_qp(pd, &init));
    if (qp != nullptr) {
      settings.inline_bytes = init.cap.max_inline_data;
      break;
    }
    if (inline_bytes == 0 || errno != EINVAL) {
      return set_up_error("creating an RC queue pair of " + std::to_string(settings.send_depth) +
                              " sends and " + std::to_string(settings.receive_depth) + " receives",
                          port.text(), errno);
    }
  }
  if (const int error = to_init(qp.get(), port, settings.access); error != 0) {
    return set_up_error("bringing up an RC queue pair", port.text(), error);
  }
  return qp;
}

Result<void> connect_reliable(ibv_qp* qp, const DevicePort& port, const ibv_device_attr& device,
                              std::uint32_t psn, const ReliablePeer& peer,
                              const Persistence& persistence, std::uint8_t reads) {
  const auto within = [reads](int most) {
    return static_cast<std::uint8_t>(std::clamp(most, 0, int{reads}));
  };
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  // The smaller of the two paths' MTUs; a larger one would be dropped on the way without a word.
  attributes.path_mtu = std::min(port.mtu, peer.mtu);
  attributes.dest_qp_num = peer.qpn;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = within(device.max_qp_rd_atom);
  attributes.min_rnr_timer = kReceiverNotReadyDelay;
  attributes.ah_attr.port_num = port.port;
  attributes.ah_attr.dlid = peer.lid;
  attributes.ah_attr.is_global = port.kind == GidKind::infiniband ? 0 : 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
  attributes.ah_attr.grh.hop_limit = kHops;
  const std::string to =
      "connecting to queue pair " + std::to_string(peer.qpn) + " of " + gid_text(peer.gid);
  if (const int error =
          ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0) {
    return set_up_error(to + " (RTR)", port.text(), error);
  }
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = persistence.timeout;
  attributes.retry_cnt = persistence.retries;
  attributes.rnr_retry = persistence.receiver_retries;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = within(device.max_qp_init_rd_atom);
  if (const int error =
          ibv_modify_qp(qp, &attributes,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
      error != 0) {
    return set_up_error(to + " (RTS)", port.text(), error);
  }
  return {};
}

}  // namespace selmcast::verbs
