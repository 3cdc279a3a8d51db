#include "transport/verbs/completions.h"

#include <bit>
#include <cerrno>

#include "transport/verbs/explain.h"

namespace selmcast::verbs {
namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;

ibv_wc entry_of(ibv_cq_ex* cq) noexcept {
  ibv_wc out{};
  out.wr_id = cq->wr_id;
  out.status = cq->status;
  out.vendor_err = ibv_wc_read_vendor_err(cq);
  out.qp_num = ibv_wc_read_qp_num(cq);
  // Of a completion in error nothing else says anything.
  if (cq->status != IBV_WC_SUCCESS) return out;
  out.opcode = ibv_wc_read_opcode(cq);
  out.wc_flags = ibv_wc_read_wc_flags(cq);
  out.byte_len = ibv_wc_read_byte_len(cq);
  out.src_qp = ibv_wc_read_src_qp(cq);
  if ((out.wc_flags & IBV_WC_WITH_IMM) != 0) out.imm_data = ibv_wc_read_imm_data(cq);
  return out;
}

}  // namespace

DeviceClock::DeviceClock(std::uint64_t mask, std::uint64_t khz) noexcept
    : unused_bits_(64U - static_cast<unsigned>(std::bit_width(mask))), khz_(khz) {}

std::uint64_t DeviceClock::nanoseconds(std::uint64_t ticks) noexcept {
  // Begins far above zero, so that completions that were overtaken stay above it.
  if (!started_) total_ = std::uint64_t{1} << 40U;
  const std::uint64_t change = started_ ? (ticks - last_) << unused_bits_ : 0;
  total_ += static_cast<std::uint64_t>(static_cast<std::int64_t>(change) >> unused_bits_);
  last_ = ticks;
  started_ = true;
  return total_ / khz_ * kNsPerMs + total_ % khz_ * kNsPerMs / khz_;
}

Result<Completions> Completions::make(const OpenedPort& opened, std::uint32_t entries,
                                      ibv_comp_channel* channel, bool timed) {
  ibv_context* const context = opened.context.get();
  Completions out;
  ibv_device_attr_ex extended{};
  if (timed && ibv_query_device_ex(context, nullptr, &extended) == 0 &&
      extended.completion_timestamp_mask != 0 && extended.hca_core_clock != 0) {
    ibv_cq_init_attr_ex init{};
    init.cqe = entries;
    init.channel = channel;
    init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                    IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    out.timed_ = ibv_create_cq_ex(context, &init);
    if (out.timed_ != nullptr) {
      out.cq_.reset(ibv_cq_ex_to_cq(out.timed_));
      out.clock_ = DeviceClock(extended.completion_timestamp_mask, extended.hca_core_clock);
      return out;
    }
  }
  out.cq_.reset(ibv_create_cq(context, static_cast<int>(entries), nullptr, channel, 0));
  if (out.cq_ == nullptr) return set_up_error("ibv_create_cq", opened.port.text(), errno);
  return out;
}

int Completions::poll(std::span<ibv_wc> out, std::span<std::uint64_t> times) noexcept {
  if (timed_ != nullptr) return poll_timed(out, times);
  return ibv_poll_cq(cq_.get(), static_cast<int>(out.size()), out.data());
}

int Completions::poll_timed(std::span<ibv_wc> out, std::span<std::uint64_t> times) noexcept {
  if (failed_) return -1;
  if (out.empty()) return 0;
  ibv_poll_cq_attr attributes{};
  const int state = ibv_start_poll(timed_, &attributes);
  if (state != 0) return state == ENOENT ? 0 : -1;  // without ibv_end_poll(), as its page says
  std::size_t count = 0;
  int next = 0;
  for (; next == 0 && count < out.size(); ++count) {
    out[count] = entry_of(timed_);
    const bool good = out[count].status == IBV_WC_SUCCESS;
    times[count] = good ? clock_.nanoseconds(ibv_wc_read_completion_ts(timed_)) : 0;
    if (count + 1 < out.size()) next = ibv_next_poll(timed_);
  }
  ibv_end_poll(timed_);
  // What was taken before a failure must not be lost.
  failed_ = next != 0 && next != ENOENT;
  return static_cast<int>(count);
}

}  // namespace selmcast::verbs
