#include <algorithm>

#include "tools/perf/engines.h"
#include "tools/perf/reap.h"
#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

constexpr std::uint64_t kEndless = ~std::uint64_t{0};
constexpr unsigned kLaneShift = 48;  // Of the 56 bits that the tag leaves.
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kLaneShift) - 1;
constexpr int kFloodReaped = 16;
constexpr std::uint32_t kFloodClockEvery = 64;  // Turns of the loop that did nothing, or messages.

}  // namespace

void Flood::start(std::uint32_t round, std::uint64_t messages) noexcept {
  round_ = round;
  const std::uint64_t lanes = lanes_.size();
  for (std::size_t q = 0; q < lanes_.size(); ++q) {
    lanes_[q].posted = lanes_[q].completed = lanes_[q].signalled = 0;
    lanes_[q].limit = messages == 0 ? kEndless : messages / lanes + (q < messages % lanes ? 1 : 0);
  }
}

void Flood::finish() noexcept {
  for (Lane& lane : lanes_) {
    const bool open = lane.posted != lane.signalled;
    lane.limit = std::min(lane.limit, lane.posted + (open ? list_ : 0));
  }
}

std::uint64_t Flood::completed() const noexcept {
  std::uint64_t out = 0;
  for (const Lane& lane : lanes_) out += lane.completed;
  return out;
}

bool Flood::post(std::size_t at) noexcept {
  Lane& lane = lanes_[at];
  const auto count =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(list_, lane.limit - lane.posted));
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_send_wr& wr = lane.chain[i].wr;
    wr.imm_data = stamp(round_, lane.posted);
    ++lane.posted;
    const bool signal = lane.posted - lane.signalled >= signal_every_ || lane.posted == lane.limit;
    wr.send_flags = flags_ | (signal ? unsigned{IBV_SEND_SIGNALED} : 0U);
    if (!signal) continue;
    wr.wr_id = verbs::tag(verbs::Work::send, (std::uint64_t{at} << kLaneShift) | lane.posted);
    lane.signalled = lane.posted;
  }
  ibv_send_wr* const last = &lane.chain[count - 1].wr;
  ibv_send_wr* const rest = last->next;
  last->next = nullptr;
  ibv_send_wr* refused = nullptr;
  fault_.error = ibv_post_send(lane.qp, &lane.chain[0].wr, &refused);
  last->next = rest;
  return fault_.error == 0;
}

int Flood::reap() noexcept {
  return perf::reap<kFloodReaped>(cq_, fault_, [this](const ibv_wc& completion) {
    const std::uint64_t id = verbs::number_of(completion.wr_id);
    lanes_[id >> kLaneShift].completed = id & kCountMask;
    return true;
  });
}

Slice Flood::run(TimePoint until) noexcept {
  for (std::uint32_t steps = 1;; ++steps) {
    bool busy = false, open = false;
    for (std::size_t q = 0; q < lanes_.size(); ++q) {
      Lane& lane = lanes_[q];
      while (lane.posted < lane.limit && lane.posted + list_ <= lane.completed + depth_) {
        if (!post(q)) return Slice::broken;
        busy = true;
        // A device without a queue of its own sends here and now: time passes.
        if ((steps += list_) >= kFloodClockEvery) break;
      }
      open = open || lane.completed != lane.limit;
    }
    if (!open) return Slice::finished;
    const int count = reap();
    if (count < 0) return Slice::broken;
    if (events_ && count == 0 && !busy) return Slice::idle;
    if (steps < kFloodClockEvery) continue;
    steps = 0;
    if (clock_.now() >= until) return Slice::over;
  }
}

}  // namespace selmcast::perf
