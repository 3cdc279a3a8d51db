// Both ends of a packet train: windowed sending, counting and acknowledging.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "probes/arrival_curve.h"
#include "probes/probe_io.h"
#include "probes/probe_packet.h"

namespace selmcast {

/// When a train ends. It goes on for `time`, or until `frames_min` were delivered if that takes
/// longer, at most for `time_max`; and never beyond `bytes_max` wire bytes.
struct TrainLimits {
  Duration time{};
  Duration time_max{};
  std::uint64_t bytes_max = 0;
  std::uint64_t frames_min = 0;
};

/// Sends to all targets in turn, each within a window of frames under way. A window starts small
/// and grows with what is acknowledged for as long as the round trip stays short, so that the
/// narrow place is kept busy while its queue stays below some 20 ms (the idea of delay-based
/// congestion control: Brakmo, O'Malley, Peterson, "TCP Vegas", 1994).
class TrainSender {
 public:
  /// Allocates for `world` ranks.
  explicit TrainSender(std::uint32_t world);
  /// `window_max` frames per target. An empty `targets` is a train that never sends.
  void start(std::uint32_t train, std::span<const Rank> targets, Rank self,
             std::uint32_t window_max, const TrainLimits& limits, TimePoint now);
  void step(ProbeIo& io, TimePoint now) noexcept;
  void on_ack(const ProbePacket& ack, const ProbeIo& io, TimePoint now) noexcept;

  /// Every target has confirmed that it got the end.
  bool finished() const noexcept { return stopped_ && unconfirmed_ == 0; }
  /// A target that has not, for an error's text.
  std::optional<Rank> silent_target() const noexcept;
  /// Rate at which frames arrived at the targets, all together; 0 as TrainReceiver's.
  Kbps delivered_rate() const noexcept;
  /// Of all frames that arrived, headers of the network included.
  std::uint64_t delivered_bytes() const noexcept { return delivered_bytes_; }

 private:
  struct Target {
    Rank rank = 0;
    std::uint32_t sent = 0;       ///< Frames.
    std::uint32_t passed = 0;     ///< Highest frame number known to have arrived or been lost, + 1.
    std::uint32_t delivered = 0;  ///< Frames that arrived.
    std::uint32_t window = 0;
    TimePoint last_progress{};
    Duration round_trip_min = Duration::max();
    std::uint32_t round_begin = 0, round_end = 0;  ///< Frames of the round trip being timed.
    std::uint32_t round_delivered = 0;             ///< `delivered` when it began.
    TimePoint round_since{};
    double best_per_ms = 0;  ///< Frames; of the fastest round trip.
    bool faster = true;      ///< The last round trip was much faster than all before.
    bool confirmed = false;
    TimePoint next_fin{};
    Duration fin_spacing{};
  };
  bool send_some(ProbeIo& io, Target& target, TimePoint now) noexcept;
  void grow(Target& target, std::uint32_t newly, Duration round_trip, TimePoint now) noexcept;
  void take_stock(ProbeIo& io, TimePoint now) noexcept;
  void send_fins(ProbeIo& io, TimePoint now) noexcept;

  std::vector<Target> targets_;
  std::vector<std::uint32_t> target_of_rank_;
  ArrivalCurve curve_;
  TrainLimits limits_;
  std::uint32_t train_ = 0, window_max_ = 0;
  std::uint64_t sent_ = 0, delivered_ = 0, delivered_bytes_ = 0;
  std::size_t turn_ = 0, unconfirmed_ = 0;
  TimePoint started_{}, stopped_at_{};
  bool stopped_ = true;
};

/// When a packet was seen and, where the device says so, when it came (Timestamps::arrival_ns()).
struct Arrival {
  TimePoint seen{};
  std::uint64_t device_ns = 0;
};

/// Counts what arrives and acknowledges every few frames or once a millisecond. Where the device
/// stamps arrivals, the rate is that at which it took them in, however late this process looks;
/// senders that have used up the receive window meanwhile do pause.
class TrainReceiver {
 public:
  explicit TrainReceiver(std::uint32_t world);
  void start(std::uint32_t train, std::span<const Rank> senders, Rank self);
  void on_data(const ProbePacket& packet, const ProbeIo& io, const Arrival& arrival) noexcept;
  void on_fin(const ProbePacket& packet) noexcept;
  /// Sends the acknowledgements that are due.
  void step(ProbeIo& io, TimePoint now) noexcept;

  bool finished() const noexcept { return fins_missing_ == 0; }
  std::optional<Rank> silent_sender() const noexcept;
  /// Rate at which frames arrived while all senders were sending; 0 if nothing came, or all of it
  /// at one instant, as a reader sees it that was kept from running for as long as the train took.
  Kbps arrival_rate() const noexcept;
  /// Of all frames that came, headers of the network included.
  std::uint64_t arrived_bytes() const noexcept { return arrived_bytes_; }

 private:
  struct Source {
    bool expected = false;
    bool fin_seen = false;
    bool ack_now = false;
    std::uint32_t frames = 0;
    std::uint32_t highest = 0;  ///< Highest frame number seen, + 1.
    std::uint32_t unacked = 0;
    std::uint64_t last_stamp = 0;
    TimePoint unacked_since{};
    TimePoint last_arrival{};
  };
  TimePoint time_of(const Arrival& arrival) noexcept;

  std::vector<Source> sources_;
  ArrivalCurve curve_;
  Arrival first_{};  ///< The first one of the train that the device stamped.
  std::uint32_t train_ = 0;
  std::uint32_t fins_missing_ = 0;
  std::uint64_t arrived_bytes_ = 0;
  TimePoint first_arrival_{}, last_arrival_{};
};

}  // namespace selmcast
