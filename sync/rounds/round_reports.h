// What rounds cost and whom they reached, put together in one place for every pace.
#pragma once

#include <cstdint>

#include "sync/rounds/epoch_state.h"
#include "sync/rounds/hand_over.h"

namespace selmcast {

/// Driver's thread. A report counts what happened since the one before.
class RoundReports {
 public:
  RoundReports(const FramePort& port, const DriverConfig& config, std::uint32_t frame_payload)
      : port_(port), config_(config), frame_payload_(frame_payload) {}

  /// Data that was not merged: from a rank that this round does not hear, or around a change of
  /// view.
  void count_stray(bool transition) noexcept {
    ++(transition ? transition_frames_ : foreign_frames_);
  }
  void count_changes(std::size_t joined_and_left) noexcept {
    membership_changes_ += static_cast<std::uint32_t>(joined_and_left);
  }
  /// What an epoch that goes away received.
  void keep_received(const EpochState& epoch) noexcept { gone_.add_received(epoch); }

  struct What {
    std::uint32_t round = 0;
    Duration took{};
    Kbps wire_kbps = 0;     ///< Planned.
    bool both_ways = true;  ///< The round heard its senders, too, and they are reported.
  };
  /// `own`: the round's epoch; `other`: another one in which ranks are still heard, or null.
  void fill(RoundReport& report, const What& what, const EpochState& own,
            const EpochState* other) noexcept;

  /// Of all streams: the first state that says that not all is well.
  static ReceiverState reached(const EpochState& epoch, Rank rank) noexcept;
  static SenderState heard(const EpochState& epoch, Rank rank) noexcept;

 private:
  struct Totals {
    PortCounters port;
    std::uint64_t rx_payload_bytes = 0;
    std::uint64_t read_frames = 0;

    void add_received(const EpochState& epoch) noexcept;
  };
  void fill_peers(RoundReport& report, const EpochState& own, bool both_ways) const noexcept;

  const FramePort& port_;
  const DriverConfig& config_;
  std::uint32_t frame_payload_;
  Totals gone_;  ///< Received in epochs that are gone.
  Totals last_;  ///< When the report before was made.
  std::uint64_t foreign_frames_ = 0, transition_frames_ = 0;
  std::uint32_t membership_changes_ = 0;
};

}  // namespace selmcast
