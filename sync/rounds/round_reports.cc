#include "sync/rounds/round_reports.h"

#include <algorithm>
#include <utility>

namespace selmcast {

namespace {

/// Of a rank's states on all streams: the first one that is not `good`, else that, else none.
template <class State, class StateOn>
State first_not(State good, const EpochState& epoch, const StateOn& state_on) noexcept {
  auto out = State::none;
  for (const auto& stream : epoch.streams) {
    const State state = state_on(stream);
    if (state == State::none) continue;
    out = state;
    if (state != good) break;
  }
  return out;
}

}  // namespace

void RoundReports::Totals::add_received(const EpochState& epoch) noexcept {
  for (const auto& stream : epoch.streams) {
    rx_payload_bytes += stream.receiver->counters().payload_bytes;
    read_frames += stream.receiver->counters().read_frames;
  }
}

ReceiverState RoundReports::reached(const EpochState& epoch, Rank rank) noexcept {
  return first_not(ReceiverState::acked, epoch,
                   [rank](const auto& stream) { return stream.sender->state(rank); });
}

SenderState RoundReports::heard(const EpochState& epoch, Rank rank) noexcept {
  return first_not(SenderState::complete, epoch,
                   [rank](const auto& stream) { return stream.receiver->state(rank); });
}

void RoundReports::fill(RoundReport& report, const What& what, const EpochState& own,
                        const EpochState* other) noexcept {
  Totals end = gone_;
  end.port = port_.counters();
  for (const EpochState* epoch : {&own, other}) {
    if (epoch != nullptr) end.add_received(*epoch);
  }
  const Totals begin = std::exchange(last_, end);
  report.round = what.round;
  report.epoch = own.program.epoch;
  report.ms = std::chrono::duration<double, std::milli>(what.took).count();
  const double frame = frame_payload_;
  const double on_wire =
      frame + kFrameHeaderBytes + port_.transport().capabilities().wire_overhead_bytes;
  report.rate_kbps = static_cast<Kbps>(static_cast<double>(what.wire_kbps) * frame / on_wire);
  report.tx_first_bytes = end.port.first_bytes - begin.port.first_bytes;
  report.tx_repair_bytes = end.port.repair_bytes - begin.port.repair_bytes;
  report.tx_patch_bytes = end.port.patch_bytes - begin.port.patch_bytes;
  report.tx_bytes = report.tx_first_bytes + report.tx_repair_bytes + report.tx_patch_bytes +
                    (end.port.control_bytes - begin.port.control_bytes);
  report.rx_payload_bytes = end.rx_payload_bytes - begin.rx_payload_bytes;
  report.repaired_frames = end.port.repaired_frames - begin.port.repaired_frames;
  report.read_frames = end.read_frames - begin.read_frames;
  report.foreign_frames = std::exchange(foreign_frames_, 0);
  report.transition_frames = std::exchange(transition_frames_, 0);
  report.membership_changes = std::exchange(membership_changes_, 0);
  // A round with a digest that differs does not end.
  report.verified = true;
  fill_peers(report, own, what.both_ways);
}

void RoundReports::fill_peers(RoundReport& report, const EpochState& own,
                              bool both_ways) const noexcept {
  report.receivers.clear();
  report.given_up.clear();
  report.complete = true;
  for (Rank rank = 0; rank < config_.world; ++rank) {
    const ReceiverState to = reached(own, rank);
    const SenderState from = both_ways ? heard(own, rank) : SenderState::none;
    const bool unheard =
        from == SenderState::silent || from == SenderState::lost || from == SenderState::evicted_us;
    report.complete = report.complete && !unheard;
    // Capacity for every rank was reserved at construction.
    if (to == ReceiverState::acked) report.receivers.push_back(rank);  // set-up: reserved
    const bool given_up = to == ReceiverState::evicted || to == ReceiverState::lost ||
                          to == ReceiverState::gave_up || unheard;
    if (given_up) report.given_up.push_back(rank);  // set-up: reserved
  }
}

}  // namespace selmcast
