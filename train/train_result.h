// The outcome of a training run: assembled from what the ranks published, as JSON and as a table.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"
#include "train/report.h"
#include "train/task.h"

namespace selmcast {

/// One point of a curve, on the test set.
struct CurvePoint {
  std::uint32_t epoch = 0;   ///< Whole epochs done.
  std::uint32_t steps = 0;   ///< Of each worker.
  std::uint32_t rounds = 0;  ///< Closed by the first of them.
  double seconds = 0.0;      ///< Of training, up to here; of the slowest rank.
  double accuracy = 0.0;     ///< Of the average of the models.
  double loss = 0.0;         ///< Of the average of the models.
  double worker_min = 0.0;   ///< Accuracy of the worst model on its own.
  double worker_mean = 0.0;  ///< Mean accuracy of the models on their own.
};

struct TrainResult {
  TrainOptions options;
  std::string policy, transport;  ///< As the ranks report them.
  std::string data;               ///< Name of the data set.
  std::uint64_t params_bytes = 0;
  bool verified = false;
  std::vector<Rank> failed_ranks;  ///< Ascending; their last models count in no figure.
  std::uint32_t steps = 0;         ///< Of the schedule: of each worker, if none does more.
  /// As many as steps under pace=bsp and ssp; under async of the rank that has most.
  std::uint32_t rounds = 0;
  double seconds = 0.0;
  std::uint64_t bytes_on_wire = 0;  ///< All that all ranks sent, control included.
  std::uint64_t foreign_frames = 0;
  std::uint64_t repaired_frames = 0;
  Kbps rate_kbps = 0;                ///< Median planned rate.
  double receivers_per_round = 0.0;  ///< Sum over ranks of their means.
  struct {
    double min = 0, median = 0, p99 = 0, max = 0;
  } round_ms;                             ///< The slowest rank's of each.
  std::vector<std::uint32_t> rank_steps;  ///< Own steps, by rank; 0 of lost ones.
  std::vector<double> rank_compute_ms;    ///< Mean of a step, by rank; not a number of lost ones.
  /// By steps: each point is of the models of all ranks after equally many steps, and its time is
  /// that of the slowest. The last two are empty when References::no was asked for.
  std::vector<CurvePoint> workers, baseline, local_only;
  /// By time: each point is of the newest model that each rank had at that moment, at evenly spread
  /// moments, as many as `workers` has points. Steps are the mean over the ranks.
  std::vector<CurvePoint> by_time;
  std::vector<std::string> notices;  ///< Of all ranks, each once.

  /// The last point; present in every assembled result.
  const CurvePoint& final_workers() const { return workers.back(); }
  bool has_references() const noexcept { return !baseline.empty(); }
  /// Only with references.
  const CurvePoint& final_baseline() const { return baseline.back(); }
  const CurvePoint& final_local_only() const { return local_only.back(); }
};

/// Scores the models of one point of the curve by steps. Needs at least one snapshot, of models of
/// the task's size. `own`: the accuracy of each on its own, if it is known already.
CurvePoint judge_models(Judge& judge, std::span<const Snapshot> snapshots,
                        std::span<const double> own = {});
/// The curve by time from every rank's snapshots, ascending, the first of each at 0 s, and the
/// accuracy of each; `points` of them, at least 2.
std::vector<CurvePoint> judge_by_time(Judge& judge, std::span<const std::vector<Snapshot>> ranks,
                                      std::span<const std::vector<double>> own, std::size_t points);

/// Follows a run from what its ranks publish as kProgressTag, sampled at any moments.
class LiveCurve {
 public:
  explicit LiveCurve(const TrainTask& task);
  /// A rank's newest snapshot, key "RANK/progress". Gives a point when every rank has a newer one
  /// than at the last point; when a rank reports again before the others, those are slow or lost,
  /// and the point is of the ranks heard. Other keys and malformed values are ignored: assemble()
  /// complains.
  std::optional<CurvePoint> take(std::string_view key, std::span<const std::byte> value);

 private:
  CurvePoint judge_heard();

  Judge judge_;
  std::uint32_t workers_;
  std::size_t parameters_;
  std::map<std::string, Snapshot, std::less<>> heard_;  ///< Since the last point, by key.
};

/// Whether every rank has as many rounds as the others. (Where nobody waits, steps travel together
/// when a rank's rounds take longer than they.)
enum class RoundCounts : std::uint8_t { equal, own };
/// Whether assemble() trains what the result is compared with, which takes a while.
enum class References : bool { no, yes };

/// Makes the result from all published keys, and trains the baseline and the workers that never
/// talk. `lost` are the ranks known to have failed. Errors (failed): a report missing of a rank
/// that is not lost, malformed, or of another size; no rank finished.
Result<TrainResult> assemble(const TrainTask& task, const std::map<std::string, Bytes>& published,
                             std::span<const Rank> lost, References references = References::yes,
                             RoundCounts counts = RoundCounts::equal);

/// The document of `selmcast train --json`.
nlohmann::ordered_json to_json(const TrainResult& result);
/// A few lines for a person, each ended by a line break.
std::string to_table(const TrainResult& result);

}  // namespace selmcast
