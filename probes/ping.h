// Paced pings to every peer in turn: half round trip and loss.
#pragma once

#include <cstdint>
#include <vector>

#include "probes/probe_io.h"
#include "probes/probe_packet.h"

namespace selmcast {

struct PingPlan {
  std::uint32_t per_peer = 0;
  Duration spacing{};  ///< Between two pings of a rank.
};

/// About `pings` per rank within `time`, longer where `slowest` forces it: pings of one rank take
/// at most a tenth of that rate and 300 ms more, so fewer are sent on very slow links. `wire_bytes`
/// is that of one ping. Pure, so that all ranks reach the same plan.
PingPlan plan_pings(std::uint32_t pings, Duration time, std::uint32_t world, Kbps slowest,
                    std::uint64_t wire_bytes);

class Pinger {
 public:
  Pinger(std::uint32_t world, Rank self);
  void start(const PingPlan& plan, TimePoint now);
  /// Sends the pings that are due and the answers owed.
  void step(ProbeIo& io, TimePoint now) noexcept;
  void on_ping(const ProbePacket& ping) noexcept;
  void on_pong(const ProbePacket& pong, TimePoint now) noexcept;

  /// All sent, and those under way had the time to arrive.
  bool finished(TimePoint now) const noexcept;
  TimePoint next_due() const noexcept;
  /// Half the median round trip; zero when no answer came.
  Duration latency() const;
  /// Pings that arrived from each rank.
  const std::vector<std::uint32_t>& arrived() const noexcept { return arrived_; }

 private:
  struct Answer {
    Rank to = 0;
    std::uint64_t stamp = 0;
  };
  std::vector<std::uint32_t> arrived_;
  std::vector<Answer> answers_;
  std::vector<std::uint64_t> round_trips_;
  PingPlan plan_;
  Rank self_;
  std::uint32_t sent_ = 0, total_ = 0;
  bool started_ = false;
  TimePoint started_at_{}, last_sent_{};
  Duration longest_{};
};

}  // namespace selmcast
