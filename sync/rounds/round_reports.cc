#include "sync/rounds/round_reports.h"

#include <algorithm>
#include <utility>

namespace selmcast {

void RoundReports::keep_received(const EpochState& epoch) noexcept {
  for (const auto& stream : epoch.streams) {
    gone_.rx_payload_bytes += stream.receiver->counters().payload_bytes;
    gone_.read_frames += stream.receiver->counters().read_frames;
  }
}

ReceiverState RoundReports::reached(const EpochState& epoch, Rank rank) noexcept {
  auto out = ReceiverState::none;
  for (const auto& stream : epoch.streams) {
    const auto state = stream.sender->state(rank);
    if (state == ReceiverState::none) continue;
    out = state;
    if (state != ReceiverState::acked) break;
  }
  return out;
}

SenderState RoundReports::heard(const EpochState& epoch, Rank rank) noexcept {
  auto out = SenderState::none;
  for (const auto& stream : epoch.streams) {
    const auto state = stream.receiver->state(rank);
    if (state == SenderState::none) continue;
    out = state;
    if (state != SenderState::complete) break;
  }
  return out;
}

void RoundReports::fill(RoundReport& report, const What& what, const EpochState& own,
                        const EpochState* other) noexcept {
  Totals end = gone_;
  end.port = port_.counters();
  for (const EpochState* epoch : {&own, other}) {
    if (epoch == nullptr) continue;
    for (const auto& stream : epoch->streams) {
      end.rx_payload_bytes += stream.receiver->counters().payload_bytes;
      end.read_frames += stream.receiver->counters().read_frames;
    }
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
