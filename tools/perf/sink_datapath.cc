#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/perf/engines.h"
#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

constexpr int kSinkReaped = 32;
constexpr std::uint32_t kGivenBack = 16;       // Receives behind one doorbell.
constexpr std::uint32_t kSinkClockEvery = 64;  // Turns of the loop.
constexpr std::uint32_t kSample = 64, kEdge = 8;
constexpr std::uint32_t kNumberMask = 0xFFFFFF;

}  // namespace

int Sink::post_all() noexcept {
  for (Lane& lane : lanes_) {
    for (Receive& receive : lane.receives) {
      ibv_recv_wr* refused = nullptr;
      receive.wr.next = nullptr;
      if (const int error = ibv_post_recv(lane.qp, &receive.wr, &refused); error != 0) return error;
    }
  }
  return 0;
}

void Sink::start(std::uint32_t round) noexcept {
  round_ = round;
  goal_ = ~std::uint64_t{0};
  seen_ = Report{};
  unnoted_ = false;
  for (Lane& lane : lanes_) lane.next = 0;
}

/// Of a flood in which nothing is late or lost, messages come in their order.
void Sink::check_order(Lane& lane, std::uint32_t number) noexcept {
  const auto ahead =
      static_cast<std::uint32_t>(number - static_cast<std::uint32_t>(lane.next)) & kNumberMask;
  if (ahead == 0) {
    ++lane.next;
  } else if (!datagrams_) {
    ++seen_.wrong;
  } else if (ahead <= kNumberMask / 2) {
    lane.next += ahead + 1;
  } else {
    ++seen_.late;
  }
}

/// The edges and a window that moves on from message to message, or everything. The source of this
/// end holds what the other end sends.
void Sink::check_bytes(std::byte* at) noexcept {
  const std::byte* const good = rig_.source;
  if (verify_all_) {
    if (std::memcmp(at, good, size_) != 0) ++seen_.wrong;
    seen_.bytes_checked += size_;
    std::memset(at, 0, size_);  // The next message here must bring its own.
    return;
  }
  const std::uint32_t edge = std::min(kEdge, size_), window = std::min(kSample, size_);
  if (window_ + window > size_) window_ = 0;
  const bool same = std::memcmp(at, good, edge) == 0 &&
                    std::memcmp(at + size_ - edge, good + size_ - edge, edge) == 0 &&
                    std::memcmp(at + window_, good + window_, window) == 0;
  if (!same) ++seen_.wrong;
  seen_.bytes_checked += 2 * edge + window;
  window_ += window;
}

void Sink::take(const ibv_wc& completion) noexcept {
  const std::uint64_t id = verbs::number_of(completion.wr_id);
  Lane& lane = lanes_[id >> 32U];
  Receive& receive = lane.receives[id & 0xFFFFFFFFU];
  const std::uint32_t word = ntohl(completion.imm_data);
  const bool marked = (completion.wc_flags & IBV_WC_WITH_IMM) != 0;
  if (stamped_ && (!marked || word >> 24U != (round_ & 0xFFU))) {
    ++(datagrams_ ? seen_.foreign : seen_.wrong);
  } else {
    if (seen_.received++ == 0) first_ = clock_.now();
    unnoted_ = true;
    if (completion.byte_len != size_ + header_) {
      ++seen_.wrong;
    } else if (stamped_) {
      check_order(lane, word & kNumberMask);
      if (!bytes_arrive_in_place_) check_bytes(receive.at + header_);
    }
  }
  receive.wr.next = nullptr;
  if (lane.free++ == 0) {
    lane.first = &receive.wr;
  } else {
    lane.last->next = &receive.wr;
  }
  lane.last = &receive.wr;
}

bool Sink::give_back(Lane& lane) noexcept {
  ibv_recv_wr* refused = nullptr;
  fault_.error = ibv_post_recv(lane.qp, lane.first, &refused);
  lane.free = 0;
  return fault_.error == 0;
}

void Sink::note_time() noexcept {
  if (!unnoted_) return;
  unnoted_ = false;
  last_ = clock_.now();
  seen_.elapsed_ns = static_cast<std::uint64_t>((last_ - first_).count());
}

Slice Sink::run(TimePoint until) noexcept {
  std::array<ibv_wc, kSinkReaped> completions;
  for (std::uint32_t turn = 1;; ++turn) {
    const int count = ibv_poll_cq(rig_.cq.get(), kSinkReaped, completions.data());
    if (count < 0) {
      fault_.error = EIO;
      return Slice::broken;
    }
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        fault_.status = completion.status;
        return Slice::broken;
      }
      take(completion);
    }
    for (Lane& lane : lanes_) {
      const bool due = lane.free >= kGivenBack || (count == 0 && lane.free > 0);
      if (due && !give_back(lane)) return Slice::broken;
    }
    if (count == 0 || seen_.received >= goal_) note_time();
    if (seen_.received >= goal_) return Slice::finished;
    if (events_ && count == 0) return Slice::idle;
    if (turn % kSinkClockEvery == 0 && clock_.now() >= until) return Slice::over;
  }
}

}  // namespace selmcast::perf
