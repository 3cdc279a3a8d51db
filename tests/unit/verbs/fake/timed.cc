// Completion queues whose completions carry the device's time, read one by one.
#include <cerrno>
#include <utility>

#include "tests/unit/verbs/fake/model.h"

namespace selmcast::fake {
namespace {

Completions& queue_of(ibv_cq_ex* cq) {
  return *of<Completions>(ibv_cq_ex_to_cq(cq));
}

int take(ibv_cq_ex* cq) {
  Completions& queue = queue_of(cq);
  if (queue.entries.empty()) return ENOENT;
  queue.now = take_entry(queue);
  cq->wr_id = queue.now.wc.wr_id;
  cq->status = queue.now.wc.status;
  return 0;
}

int next(ibv_cq_ex* cq) {
  if (!queue_of(cq).polling) violated("ibv_next_poll outside a poll");
  if (const int error = fails("ibv_next_poll")) return error;
  return take(cq);
}

int start(ibv_cq_ex* cq, ibv_poll_cq_attr*) {
  Completions& queue = queue_of(cq);
  if (queue.polling) violated("ibv_start_poll within a poll");
  if (const int error = fails("ibv_start_poll")) return error;
  if (queue.entries.empty()) return ENOENT;
  queue.polling = true;
  return take(cq);
}

void end(ibv_cq_ex* cq) {
  if (!std::exchange(queue_of(cq).polling, false)) violated("ibv_end_poll outside a poll");
}

/// Which only completions without an error have.
template <auto field>
auto read(ibv_cq_ex* cq) {
  const ibv_wc& wc = queue_of(cq).now.wc;
  if (wc.status != IBV_WC_SUCCESS) violated("a completion in error was read beyond its status");
  return wc.*field;
}

}  // namespace

ibv_cq_ex* create_timed(ibv_context* context, ibv_cq_init_attr_ex* init) {
  if (const int error = fails("ibv_create_cq_ex")) return errno = error, nullptr;
  if (device_of(context).clock_mask == 0) violated("stamps asked of a device without a counter");
  ibv_cq* const made =
      ibv_create_cq(context, static_cast<int>(init->cqe), nullptr, init->channel, 0);
  if (made == nullptr) return nullptr;
  ibv_cq_ex& out = of<Completions>(made)->timed;
  out.start_poll = start;
  out.next_poll = next;
  out.end_poll = end;
  out.read_opcode = [](ibv_cq_ex* cq) { return read<&ibv_wc::opcode>(cq); };
  out.read_wc_flags = [](ibv_cq_ex* cq) { return read<&ibv_wc::wc_flags>(cq); };
  out.read_byte_len = [](ibv_cq_ex* cq) { return read<&ibv_wc::byte_len>(cq); };
  out.read_src_qp = [](ibv_cq_ex* cq) { return read<&ibv_wc::src_qp>(cq); };
  out.read_imm_data = [](ibv_cq_ex* cq) { return read<&ibv_wc::imm_data>(cq); };
  out.read_vendor_err = [](ibv_cq_ex* cq) { return queue_of(cq).now.wc.vendor_err; };
  out.read_qp_num = [](ibv_cq_ex* cq) { return queue_of(cq).now.wc.qp_num; };
  out.read_completion_ts = [](ibv_cq_ex* cq) {
    if (cq->status != IBV_WC_SUCCESS) violated("the time of a completion in error was read");
    return queue_of(cq).now.ticks & device_of(cq->context).clock_mask;
  };
  return &out;
}

}  // namespace selmcast::fake
