#include "sync/free/clock_board.h"

#include <algorithm>
#include <utility>

namespace selmcast {

namespace {
constexpr Duration kTellAgain = std::chrono::microseconds(100);
}  // namespace

ClockBoard::ClockBoard(FramePort& port, Duration timeout)
    : port_(port), clocks_(port.self(), port.world(), timeout), to_tell_(port.world(), 0) {}

void ClockBoard::lose(Rank rank) noexcept {
  clocks_.lose(rank);
  if (std::exchange(to_tell_[rank], std::uint8_t{0}) != 0) --to_tell_count_;
}

void ClockBoard::tell_all() noexcept {
  to_tell_count_ = 0;
  for (Rank rank = 0; rank < port_.world(); ++rank) {
    to_tell_[rank] = rank != port_.self() && clocks_.alive(rank) ? 1 : 0;
    to_tell_count_ += to_tell_[rank];
  }
}

bool ClockBoard::tell(Rank to, std::uint16_t flags) noexcept {
  if (own_.stopped) flags |= frame_flag::kFinal;
  if (own_.finished) flags |= frame_flag::kOver;
  return port_.send_control(to,
                            FrameHeader{.kind = FrameKind::clock,
                                        .epoch = own_.epoch,
                                        .round = own_.round,
                                        .offset = own_.steps,
                                        .flags = flags},
                            {});
}

void ClockBoard::tell_pending(TimePoint now) noexcept {
  for (Rank rank = 0; to_tell_count_ > 0 && rank < port_.world(); ++rank) {
    if (to_tell_[rank] == 0) continue;
    if (!tell(rank)) break;
    to_tell_[rank] = 0;
    --to_tell_count_;
  }
  tell_at_ = to_tell_count_ > 0 ? now + kTellAgain : kNever;
}

}  // namespace selmcast
