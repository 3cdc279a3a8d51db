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

/// Tag of a TrainingReport; a snapshot has the tag snapshot_tag(), and the newest one is published
/// a few times a second under kProgressTag too, for who watches.
inline constexpr const char* kReportTag = "train";
inline constexpr const char* kProgressTag = "progress";
/// Of the model after so many steps.
std::string snapshot_tag(std::uint32_t steps);

/// A rank's own model at a point of the curves (TrainTask::is_point()).
struct Snapshot {
  std::uint32_t epoch = 0;  ///< Whole epochs done so far.
  std::uint32_t steps =
      0;  ///< Of the task's schedule done so far; own steps unless there are more.
  std::uint32_t rounds = 0;  ///< Rounds closed so far.
  double seconds = 0.0;      ///< Time since training began.
  std::vector<float> parameters;
};

/// A rank's account of its rounds.
struct TrainingReport {
  Rank rank = 0;
  std::string transport;  ///< Backend in use.
  std::string policy;     ///< With every axis written out.
  double seconds = 0.0;
  std::uint32_t steps = 0;
  double compute_seconds = 0.0;  ///< Of all steps, without any exchange.
  bool verified = true;          ///< Every round was.
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
Bytes encode(const TrainingReport& report);
Result<Snapshot> decode_snapshot(std::span<const std::byte> bytes);
Result<TrainingReport> decode_report(std::span<const std::byte> bytes);

}  // namespace selmcast
