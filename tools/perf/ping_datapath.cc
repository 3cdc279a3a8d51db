#include <arpa/inet.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "tools/perf/engines.h"
#include "tools/perf/reap.h"
#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

constexpr int kPingReaped = 8;
constexpr std::uint32_t kPingClockEvery = 256;  // Turns of the loop.
constexpr std::uint32_t kLookEvery = 1024;  // Looks at memory before one at the completion queue.

/// Never that of the ping before or after, never that of fresh memory.
std::byte mark_of(std::uint64_t serial) noexcept {
  return static_cast<std::byte>(serial % 255 + 1);
}

}  // namespace

int Ping::post_all() noexcept {
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    if (!repost(i)) return fault_.error;
  }
  return 0;
}

void Ping::start(std::uint64_t messages) noexcept {
  limit_ = messages == 0
               ? kSamplesMost
               : static_cast<std::size_t>(std::min<std::uint64_t>(messages, kSamplesMost));
  count_ = 0;
  lost_ = 0;
  finishing_ = false;
  to_post_ = client_;
}

bool Ping::repost(std::uint64_t slot) noexcept {
  ibv_recv_wr* refused = nullptr;
  fault_.error = ibv_post_recv(qp_, &receives_[slot], &refused);
  return fault_.error == 0;
}

bool Ping::post() noexcept {
  if (client_) ++serial_;
  if (way_ == Way::memory) {
    // The one before has arrived, or there would be no reason to post: its byte may change.
    *mark_out_ = mark_of(serial_);
  }
  ++posted_;
  const bool signal = way_ == Way::completions || posted_ % signal_every_ == 0;
  request_.wr.imm_data = stamp(0, serial_);
  request_.wr.wr_id = verbs::tag(verbs::Work::send, posted_);
  request_.wr.send_flags = (request_.wr.send_flags & ~unsigned{IBV_SEND_SIGNALED}) |
                           (signal ? unsigned{IBV_SEND_SIGNALED} : 0U);
  ibv_send_wr* refused = nullptr;
  fault_.error = ibv_post_send(qp_, &request_.wr, &refused);
  return fault_.error == 0;
}

int Ping::reap() noexcept {
  return perf::reap<kPingReaped>(cq_, fault_, [this](const ibv_wc& completion) {
    const std::uint64_t number = verbs::number_of(completion.wr_id);
    if (verbs::work_of(completion.wr_id) == verbs::Work::send) {
      completed_ = number;
      got_ = got_ || way_ == Way::completions;
      return true;
    }
    if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) {
      got_ = true;
      got_stamp_ = completion.imm_data;
    }
    return repost(number);
  });
}

/// Whether what is waited for has come. Only after a look that found no error.
bool Ping::arrived() noexcept {
  if (way_ == Way::memory) {
    // acquire: pairs with the device's write, whose last byte this is.
    auto* const at = reinterpret_cast<std::uint8_t*>(mark_in_);
    const std::uint8_t now = std::atomic_ref<std::uint8_t>(*at).load(std::memory_order_acquire);
    return static_cast<std::byte>(now) == mark_of(client_ ? serial_ : serial_ + 1);
  }
  if (!std::exchange(got_, false)) return false;
  // An answer to a datagram that was given up is not one to the next.
  return way_ == Way::completions || !client_ || got_stamp_ == stamp(0, serial_);
}

/// What an arrival leads to: the next ping, or the answer.
void Ping::take_arrival() noexcept {
  to_post_ = true;
  if (!client_) {
    // Datagrams may have been lost: the stamp says which one came.
    serial_ = way_ == Way::receives ? ntohl(got_stamp_) : serial_ + 1;
    return;
  }
  const auto ns = (clock_.now() - began_).count();
  samples_[count_++] = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(ns, 0, std::numeric_limits<std::uint32_t>::max()));
  waiting_ = false;
}

Slice Ping::run(TimePoint until) noexcept {
  for (std::uint32_t turn = 1;; ++turn) {
    if (client_ && !waiting_ && (count_ == limit_ || finishing_)) return Slice::finished;
    if (to_post_ && room()) {
      to_post_ = false;
      if (client_) {
        waiting_ = true;
        began_ = clock_.now();
      }
      if (!post()) return Slice::broken;
    }
    const bool look =
        way_ != Way::memory || posted_ - completed_ >= signal_every_ || ++misses_ % kLookEvery == 0;
    const int count = look ? reap() : 0;
    if (count < 0) return Slice::broken;
    if (!to_post_ && arrived()) {
      take_arrival();
      continue;
    }
    const bool idle = events_ && count == 0;
    if (!idle && turn % kPingClockEvery != 0) continue;
    const TimePoint now = clock_.now();
    if (client_ && datagrams_ && waiting_ && now - began_ > kLostAfter) {
      ++lost_;
      waiting_ = false;
      to_post_ = true;
    }
    if (now >= until) return Slice::over;
    if (idle && !to_post_) return Slice::idle;
  }
}

}  // namespace selmcast::perf
