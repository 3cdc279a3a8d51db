// Training under stale synchronous parallel, as discrete events with fluid flows.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/select/published.h"
#include "tools/papers/compute_time.h"

namespace selmcast {

/// Each worker computes a round, multicasts its update, and computes the next one when the
/// multicast has ended and it is at most `ssp` rounds ahead of the slowest (0 = BSP). A round
/// counts when its multicast has ended.
struct SspConfig {
  std::vector<Kbps> tx_kbps, rx_kbps;  ///< One entry per worker; all > 0.
  /// Links that `jitter` mixes in, drawn anew every 100 ms: (1-jitter) of the rates above plus
  /// jitter times mean_kbps (1 + spread x), x uniform in [-1, 1).
  double jitter = 0.0, mean_kbps = 40e6, spread = 0.25;
  std::uint32_t p = 15;
  std::uint32_t k = 4;    ///< A pair not served in k rounds of its sender is forced; 0 = never.
  std::uint32_t ssp = 4;  ///< kNoBound = asynchronous.
  double eta = 0.75;
  Fanout fanout = Fanout::multicast;
  /// TSC Algorithm 2 with deadlines as priorities; otherwise Orpheus: p random receivers chosen
  /// when the multicast starts (overdue pairs first) and max-min fair sharing.
  bool selmcast = true;
  /// Whether SELMCAST's receivers of one multicast progress at rates of their own; the sender then
  /// pays for the fastest. Algorithm 2 keeps what is left per receiver, which allows for it, but
  /// the papers say that the slowest receiver sets the rate of all. Orpheus always runs like that.
  bool own_rates = false;
  double volume_bits = 1.6e9;
  double horizon_ms = 600'000;
  ComputeModel model = ComputeModel::constant;
  double compute_ms = 1000;           ///< Mean.
  std::vector<double> compute_scale;  ///< Factor per worker; empty = 1 for all.
  std::uint64_t seed = 1;

  static constexpr std::uint32_t kNoBound = ~std::uint32_t{0};
};

struct SspOutcome {
  double receivers = 0.0;    ///< Mean per finished multicast.
  double utilisation = 0.0;  ///< Share of the horizon in which a worker computes, mean.
  std::uint64_t multicasts = 0;
  std::vector<std::uint32_t> rounds;  ///< Finished per worker.
  /// Most rounds of a sender between two deliveries to the same receiver (start and end count).
  std::uint32_t worst_gap = 0;
  std::uint32_t most_ahead = 0;   ///< Most finished rounds by which a computing worker led.
  std::uint64_t added_again = 0;  ///< Receivers that came back after they were dropped: none.
};

/// Deterministic. CHECK: sizes agree, 1 <= p < n, rates > 0.
///
/// A sender's `blocked` time in Algorithm 2 is exact for stragglers that still compute (the
/// simulation knows when they end, as a worker with a good forecast would) plus p copies at the
/// mean receive rate for their multicast, and the deadline of those that already send.
SspOutcome simulate_ssp(const SspConfig& config);

}  // namespace selmcast
