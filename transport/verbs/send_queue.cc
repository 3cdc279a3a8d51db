#include "transport/verbs/send_queue.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "transport/verbs/verbs_address.h"
#include "transport/verbs/work_id.h"

namespace selmcast::verbs {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kInlineWish = 256;  // control frames; beyond that the copy costs more
// What was posted comes back at once in error; a device that does not do so is reset regardless.
constexpr Duration kDrain = milliseconds(100);
constexpr Duration kQueuePauseFirst = milliseconds(1);
constexpr Duration kQueuePauseMost = milliseconds(100);

}  // namespace

Result<std::unique_ptr<SendQueue>> SendQueue::make(ibv_pd* pd, ibv_cq* cq, const DevicePort& port,
                                                   std::uint32_t depth, std::uint32_t slices) {
  UdSettings settings;
  settings.cq = cq;
  settings.send_depth = depth;
  settings.send_slices = slices;
  settings.inline_bytes = kInlineWish;
  auto qp = make_ud(pd, port, settings);
  if (!qp) return std::move(qp).error();
  return std::unique_ptr<SendQueue>(  // set-up:
      new SendQueue(std::move(qp).value(), port, depth, slices, settings.inline_bytes));
}

SendQueue::SendQueue(QueuePair qp, DevicePort port, std::uint32_t depth, std::uint32_t slices,
                     std::uint32_t inline_bytes)
    : port_(std::move(port)),
      qp_(std::move(qp)),
      depth_(depth),
      slices_(slices),
      inline_bytes_(inline_bytes),
      chain_(kChain),
      places_(std::size_t{kChain} * slices),
      chain_bytes_(kChain),
      pacing_(pacing_of(qp_->context, IBV_QPT_UD)) {
  for (std::uint32_t i = 0; i < kChain; ++i) {
    chain_[i].sg_list = &places_[std::size_t{i} * slices];
    chain_[i].opcode = IBV_WR_SEND;
    chain_[i].wr.ud.remote_qkey = kQueueKey;
  }
}

void SendQueue::begin_frame(ibv_ah* ah, std::uint32_t qpn) noexcept {
  SELMCAST_CHECK(chained_ < kChain && has_room(1), "no room was made for this frame");
  ibv_send_wr& request = chain_[chained_];
  chain_bytes_[chained_] = 0;
  ++chained_;
  ++added_;
  request.wr_id = tag(Work::send, added_);
  request.num_sge = 0;
  request.send_flags = added_ % kSignalEvery == 0 ? unsigned{IBV_SEND_SIGNALED} : 0U;
  request.wr.ud.ah = ah;
  request.wr.ud.remote_qpn = qpn;
}

bool SendQueue::add_slice(const std::byte* data, std::uint32_t bytes, std::uint32_t lkey) noexcept {
  ibv_send_wr& request = chain_[chained_ - 1];
  if (static_cast<std::uint32_t>(request.num_sge) == slices_) return false;
  request.sg_list[request.num_sge++] = {reinterpret_cast<std::uintptr_t>(data), bytes, lkey};
  chain_bytes_[chained_ - 1] += bytes;
  return true;
}

void SendQueue::take_back(std::uint64_t last) noexcept {
  chained_ -= static_cast<std::uint32_t>(added_ - last);
  added_ = last;
}

int SendQueue::ring() noexcept {
  if (chained_ == 0) return 0;
  for (std::uint32_t i = 0; i < chained_; ++i) {
    chain_[i].next = i + 1 < chained_ ? &chain_[i + 1] : nullptr;
    if (chain_bytes_[i] <= inline_bytes_) chain_[i].send_flags |= IBV_SEND_INLINE;
  }
  chain_[chained_ - 1].send_flags |= IBV_SEND_SIGNALED;
  chained_ = 0;
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(qp_.get(), chain_.data(), &refused);
  // What was taken before the refused one still completes; revive() gives up on the rest.
  if (error != 0) completed(completed_, false);
  return error;
}

void SendQueue::completed(std::uint64_t number, bool ok) noexcept {
  completed_ = std::max(completed_, std::min(number, added_));
  if (ok || broken_) return;
  broken_ = true;
  broken_at_known_ = false;
  pause_ = kQueuePauseFirst;
}

bool SendQueue::set_rate(std::uint32_t kbps) noexcept {
  const int error = verbs::limit_rate(qp_.get(), kbps);
  // In error it takes no rate, which says nothing about the rate; revive() sets it.
  if (error != 0 && !in_error(qp_.get())) {
    rate_refused_.store(error, std::memory_order_relaxed);
    return false;
  }
  rate_ = kbps;
  return true;
}

bool SendQueue::limit_rate(std::uint64_t kbps) noexcept {
  if (!pacing_) return false;
  const bool can = pacing_->has(kbps) && rate_refused() == 0;
  if (broken_) {
    rate_ = can ? static_cast<std::uint32_t>(kbps) : 0;
    return can || kbps == 0;
  }
  if (can && (kbps == rate_ || set_rate(static_cast<std::uint32_t>(kbps)))) return true;
  // A rate of an earlier plan would hold this one up.
  if (rate_ != 0) set_rate(0);
  return kbps == 0;
}

void SendQueue::give_up() noexcept {
  completed_ = added_;
  chained_ = 0;
  broken_ = true;
}

bool SendQueue::revive(TimePoint now) noexcept {
  if (!broken_) return true;
  if (!broken_at_known_) {
    broken_at_known_ = true;
    broken_at_ = try_at_ = now;
  }
  if (completed_ != added_ && now < broken_at_ + kDrain) return false;
  if (now < try_at_) return false;
  // failure: a system call, at most one a millisecond and ten a second.
  revive_error_ = restart_ud(qp_.get(), port_);
  if (revive_error_ == 0 && rate_ != 0 && !set_rate(rate_)) rate_ = 0;
  try_at_ = now + pause_;
  pause_ = std::min(pause_ * 2, kQueuePauseMost);
  if (revive_error_ != 0) return false;
  completed_ = added_;
  broken_ = false;
  return true;
}

}  // namespace selmcast::verbs
