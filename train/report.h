// What a rank tells the process that judges: its models as training goes on, and its account at the
// end. Travels through Worker::publish.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"

namespace selmcast {

/// Tag of a RankReport; snapshots have the tag snapshot_tag(epoch), and the newest one is published
/// a few times a second under kProgressTag too, for who watches.
inline constexpr const char* kReportTag = "train";
inline constexpr const char* kProgressTag = "progress";
std::string snapshot_tag(std::uint32_t epoch);
/// Whether models are published after this epoch (0 = before training): of the first and the last,
/// and of every one in between, or of about a hundred when there are more.
bool has_snapshot(std::uint32_t epoch, std::uint32_t epochs) noexcept;

/// A rank's own model after an epoch.
struct Snapshot {
  std::uint32_t epoch = 0;   ///< Counted from 1; 0 = before training.
  std::uint32_t steps = 0;   ///< Own steps done so far.
  std::uint32_t rounds = 0;  ///< Rounds closed so far.
  double seconds = 0.0;      ///< Time of training so far, publishing excluded.
  std::vector<float> parameters;
};

/// A rank's account of its rounds.
struct RankReport {
  Rank rank = 0;
  std::string transport;  ///< Backend in use.
  std::string policy;     ///< With every axis written out.
  double seconds = 0.0;
  bool verified = true;  ///< Every round was.
  std::uint64_t tx_bytes = 0;
  std::uint64_t tx_first_bytes = 0;
  std::uint64_t tx_repair_bytes = 0;
  std::uint64_t foreign_frames = 0;
  std::uint64_t repaired_frames = 0;
  std::vector<double> round_ms;          ///< One entry a round, as in the next two.
  std::vector<std::uint32_t> receivers;  ///< How many ranks this one reached.
  std::vector<Kbps> rate_kbps;           ///< Planned payload rate.
  std::vector<Rank> failed_ranks;        ///< Known lost at the end.
  std::vector<std::string> notices;
};

/// Explicit little-endian forms with a version; decoding takes hostile bytes. Errors: failed,
/// saying that a report of this kind is malformed.
Bytes encode(const Snapshot& snapshot);
Bytes encode(const RankReport& report);
Result<Snapshot> decode_snapshot(std::span<const std::byte> bytes);
Result<RankReport> decode_report(std::span<const std::byte> bytes);

}  // namespace selmcast
