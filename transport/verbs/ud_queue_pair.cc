#include "transport/verbs/ud_queue_pair.h"

#include <cerrno>

#include "transport/verbs/explain.h"
#include "transport/verbs/verbs_address.h"

namespace selmcast::verbs {

Result<QueuePair> make_ud(ibv_pd* pd, const DevicePort& port, UdSettings& settings) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = settings.cq;
  init.srq = settings.srq;
  init.qp_type = IBV_QPT_UD;
  init.cap.max_send_wr = settings.send_depth;
  init.cap.max_recv_wr = settings.srq == nullptr ? settings.receive_depth : 0;
  init.cap.max_send_sge = settings.send_slices;
  init.cap.max_recv_sge = settings.srq == nullptr ? 1 : 0;
  init.cap.max_inline_data = settings.inline_bytes;
  // Devices say no to more inline bytes than they have, without saying how many that is.
  QueuePair qp;
  while (qp == nullptr) {
    const ibv_qp_cap asked = init.cap;
    errno = 0;
    qp.reset(ibv_create_qp(pd, &init));
    if (qp != nullptr) break;
    if (asked.max_inline_data == 0 || errno != EINVAL) {
      return set_up_error("creating a UD queue pair of " + std::to_string(settings.send_depth) +
                              " sends and " + std::to_string(settings.receive_depth) + " receives",
                          port.text(), errno);
    }
    init.cap = asked;
    init.cap.max_inline_data /= 2;
  }
  settings.inline_bytes = init.cap.max_inline_data;
  if (const int error = ready_ud(qp.get(), port); error != 0) {
    return set_up_error("bringing up a UD queue pair", port.text(), error);
  }
  return qp;
}

int ready_ud(ibv_qp* qp, const DevicePort& port) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port.port;
  attributes.qkey = kQueueKey;
  int error =
      ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  if (error != 0) return error;
  attributes.qp_state = IBV_QPS_RTR;
  error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
  if (error != 0) return error;
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 0;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int restart_ud(ibv_qp* qp, const DevicePort& port) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  if (const int error = ibv_modify_qp(qp, &attributes, IBV_QP_STATE); error != 0) return error;
  return ready_ud(qp, port);
}

bool in_error(ibv_qp* qp) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  return ibv_query_qp(qp, &attributes, IBV_QP_STATE, &init) == 0 &&
         (attributes.qp_state == IBV_QPS_ERR || attributes.qp_state == IBV_QPS_SQE);
}

}  // namespace selmcast::verbs
