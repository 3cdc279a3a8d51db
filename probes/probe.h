// Probe: measures what every rank's link can carry, before or between rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/link_estimate.h"
#include "base/result.h"
#include "store/rendezvous.h"
#include "transport/transport.h"

namespace selmcast {

struct ProbeConfig {
  std::uint32_t job = 0;  ///< Packets of another job are dropped.
  std::string tag = "0";  ///< Part of the store's keys; a new one for each probe of a job.
  /// Which ranks share a link: equal numbers = same host. One entry per rank.
  std::vector<std::uint32_t> host_of_rank;
  std::uint32_t repeats =
      3;  ///< Trains that count, after one that warms up and drains token buckets.
  Duration train_time{std::chrono::milliseconds(50)};
  Duration train_time_max{std::chrono::milliseconds(250)};  ///< For slow links.
  std::uint64_t train_bytes_max = 64U << 20U;               ///< Per sender and train, on the wire.
  std::uint32_t pings = 512;                                ///< Per rank, about.
  Duration ping_time{std::chrono::milliseconds(100)};       ///< Longer where links are slow.
  Duration timeout{std::chrono::seconds(10)};               ///< Longest wait for a silent rank.
};

/// One rank's side. All ranks of the job run it at the same time with the same configuration.
///
/// Rates are wire rates: frames with Capabilities::wire_overhead_bytes each. What a rank can
/// transmit is judged by the acknowledgements of all its receivers on its own clock, what it can
/// receive by the arrivals from all senders on its own clock; so no two clocks are ever compared. A
/// rate cannot come out higher than the other ends together can take or give. Latency and loss come
/// from small pings at a tenth of the slowest rate. Loss of a direction is that of the whole path:
/// where all of it arises at the receivers, a sender's transmit loss is the mean of theirs.
///
/// A state machine driven from one thread: call step() whenever something may have happened and at
/// next_wakeup() at the latest. The transport must not be polled by anyone else meanwhile.
class Probe {
 public:
  /// `peers[r]` is a connected endpoint of rank r (the own entry is not used). Transport,
  /// rendezvous and endpoints stay the caller's and must outlive the probe. Error: bad_input for a
  /// configuration that does not fit the world, unavailable when memory cannot be registered.
  static Result<std::unique_ptr<Probe>> create(Transport& transport, Rendezvous& rendezvous,
                                               std::span<const EndpointId> peers,
                                               ProbeConfig config);
  virtual ~Probe() = default;

  /// True when done. Error: which rank was lost or silent and in which step, the same on all ranks
  /// that can still reach the store; further calls repeat it.
  virtual Result<bool> step(TimePoint now) = 0;
  virtual TimePoint next_wakeup() const noexcept = 0;
  /// One entry per rank, when done; equal on all ranks but for `measured`, which is this rank's
  /// time of the end. A world of one rank has nothing to measure against: all zero.
  virtual const std::vector<LinkEstimate>& estimates() const noexcept = 0;

 protected:
  Probe() = default;
};

/// Drives a probe to its end on a real transport.
Result<std::vector<LinkEstimate>> run_probe(Probe& probe, Transport& transport, const Clock& clock);

}  // namespace selmcast
