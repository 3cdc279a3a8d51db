#include "train/train_result.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "train/reference.h"

namespace selmcast {
namespace {

/// Value at quantile `q` of sorted values by the nearest-rank rule. Needs at least one value.
template <class T>
T quantile(const std::vector<T>& sorted, double q) {
  const auto rank = std::ceil(q * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::string key_of(Rank rank, const std::string& tag) {
  return std::to_string(rank) + "/" + tag;
}

/// The published value of a rank that should have one.
Result<std::span<const std::byte>> find(const std::map<std::string, Bytes>& published, Rank rank,
                                        const std::string& tag) {
  const auto at = published.find(key_of(rank, tag));
  if (at != published.end()) return std::span<const std::byte>(at->second);
  return failed("rank " + std::to_string(rank) + ": ended without publishing " + tag);
}

Error of_rank(Rank rank, const Error& error) {
  return {error.kind, "rank " + std::to_string(rank) + ": " + error.message};
}

/// Reports of the ranks that finished, or the first complaint.
Result<std::vector<TrainingReport>> collect_reports(const std::map<std::string, Bytes>& published,
                                                    const std::vector<Rank>& finishers,
                                                    RoundCounts counts) {
  std::vector<TrainingReport> reports;
  for (const Rank rank : finishers) {
    const auto bytes = find(published, rank, kReportTag);
    if (!bytes) return bytes.error();
    auto report = decode_report(*bytes);
    if (!report) return of_rank(rank, report.error());
    const bool first = reports.empty() || counts == RoundCounts::own;
    const auto rounds = first ? report->round_ms.size() : reports[0].round_ms.size();
    if (report->rank != rank || rounds == 0 || report->steps == 0 ||
        report->round_ms.size() != rounds || report->receivers.size() != rounds ||
        report->rate_kbps.size() != rounds) {
      return of_rank(rank, failed("its account is not of the " + std::to_string(rounds) +
                                  " rounds of this job"));
    }
    reports.push_back(std::move(*report));
  }
  return reports;
}

/// All models of one rank, at all points of the task.
Result<std::vector<Snapshot>> collect_snapshots(const std::map<std::string, Bytes>& published,
                                                Rank rank, const TrainTask& task) {
  std::vector<Snapshot> snapshots;
  for (std::uint32_t steps = 0; steps <= task.steps(); ++steps) {
    if (!task.is_point(steps)) continue;
    const auto bytes = find(published, rank, snapshot_tag(steps));
    if (!bytes) return bytes.error();
    auto snapshot = decode_snapshot(*bytes);
    if (!snapshot) return of_rank(rank, snapshot.error());
    const bool backwards = !snapshots.empty() && snapshot->seconds < snapshots.back().seconds;
    if (snapshot->steps != steps || !std::isfinite(snapshot->seconds) || backwards ||
        snapshot->parameters.size() != task.shape().parameters()) {
      return of_rank(rank, failed("its model after step " + std::to_string(steps) +
                                  " has another size, step or an impossible time"));
    }
    snapshots.push_back(std::move(*snapshot));
  }
  return snapshots;
}

Result<void> judge_workers(const TrainTask& task, const std::map<std::string, Bytes>& published,
                           const std::vector<Rank>& finishers, TrainResult& result) {
  std::vector<std::vector<Snapshot>> ranks;
  for (const Rank rank : finishers) {
    auto snapshots = collect_snapshots(published, rank, task);
    if (!snapshots) return std::move(snapshots).error();
    ranks.push_back(std::move(*snapshots));
  }
  Judge judge(task);
  const std::size_t points = ranks.front().size();
  std::vector<std::vector<double>> own(ranks.size());
  for (std::size_t point = 0; point < points; ++point) {
    std::vector<Snapshot> models;
    std::vector<double> accuracies;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      models.push_back(ranks[r][point]);
      accuracies.push_back(judge.score(models.back().parameters).accuracy);
      own[r].push_back(accuracies.back());
    }
    result.workers.push_back(judge_models(judge, models, accuracies));
  }
  result.by_time = judge_by_time(judge, ranks, own, points);
  return {};
}

void add_accounts(const std::vector<TrainingReport>& reports, TrainResult& result) {
  std::vector<double> slowest(result.rounds, 0.0);
  std::vector<Kbps> rates;
  double receivers = 0.0;
  std::set<std::string> notices;
  std::set<Rank> lost(result.failed_ranks.begin(), result.failed_ranks.end());
  result.verified = true;
  result.rank_steps.assign(result.options.workers, 0);
  result.rank_compute_ms.assign(result.options.workers, std::nan(""));
  for (const TrainingReport& report : reports) {
    result.rank_steps.at(report.rank) = report.steps;
    result.rank_compute_ms.at(report.rank) = 1e3 * report.compute_seconds / report.steps;
    result.verified = result.verified && report.verified;
    result.seconds = std::max(result.seconds, report.seconds);
    result.bytes_on_wire += report.tx_bytes;
    result.foreign_frames += report.foreign_frames;
    result.repaired_frames += report.repaired_frames;
    const auto rounds = report.round_ms.size();
    for (std::size_t r = 0; r < rounds; ++r) slowest[r] = std::max(slowest[r], report.round_ms[r]);
    receivers += std::accumulate(report.receivers.begin(), report.receivers.end(), 0.0) /
                 static_cast<double>(rounds);
    rates.insert(rates.end(), report.rate_kbps.begin(), report.rate_kbps.end());
    notices.insert(report.notices.begin(), report.notices.end());
    lost.insert(report.failed_ranks.begin(), report.failed_ranks.end());
  }
  std::sort(slowest.begin(), slowest.end());
  std::sort(rates.begin(), rates.end());
  result.round_ms = {slowest.front(), quantile(slowest, 0.5), quantile(slowest, 0.99),
                     slowest.back()};
  result.rate_kbps = quantile(rates, 0.5);
  result.receivers_per_round = receivers;
  result.notices.assign(notices.begin(), notices.end());
  result.failed_ranks.assign(lost.begin(), lost.end());
}

/// The curve of models trained in this process; `sharers` is how many run side by side in reality,
/// which the time is divided by.
template <class Train>
std::vector<CurvePoint> reference_curve(const TrainTask& task, std::uint32_t sharers,
                                        Train&& train) {
  using Timer = std::chrono::steady_clock;
  Judge judge(task);
  std::vector<CurvePoint> curve;
  Timer::duration judging{};
  const auto begin = Timer::now();
  const auto observe = [&](std::uint32_t steps, std::span<const std::vector<float>> models) {
    const auto paused = Timer::now();
    const double seconds =
        std::chrono::duration<double>(paused - begin - judging).count() / sharers;
    std::vector<Snapshot> snapshots;
    for (const auto& model : models) {
      snapshots.push_back({steps / task.rounds_per_epoch(), steps, steps, seconds, model});
    }
    curve.push_back(judge_models(judge, snapshots));
    judging += Timer::now() - paused;
  };
  observe(0, std::vector<std::vector<float>>{task.initial_parameters()});
  train(observe);
  return curve;
}

}  // namespace

CurvePoint judge_models(Judge& judge, std::span<const Snapshot> snapshots,
                        std::span<const double> own) {
  SELMCAST_CHECK(!snapshots.empty(), "a point without models");
  CurvePoint point;
  point.epoch = snapshots[0].epoch;
  point.steps = snapshots[0].steps;
  point.rounds = snapshots[0].rounds;
  point.worker_min = 1.0;
  std::vector<std::vector<float>> models;
  for (std::size_t i = 0; i < snapshots.size(); ++i) {
    const Snapshot& snapshot = snapshots[i];
    const double accuracy = own.empty() ? judge.score(snapshot.parameters).accuracy : own[i];
    point.worker_min = std::min(point.worker_min, accuracy);
    point.worker_mean += accuracy / static_cast<double>(snapshots.size());
    point.seconds = std::max(point.seconds, snapshot.seconds);
    models.push_back(snapshot.parameters);
  }
  const Score score = judge.score(mean_model(models));
  point.accuracy = score.accuracy;
  point.loss = score.loss;
  return point;
}

std::vector<CurvePoint> judge_by_time(Judge& judge, std::span<const std::vector<Snapshot>> ranks,
                                      std::span<const std::vector<double>> own,
                                      std::size_t points) {
  SELMCAST_CHECK(!ranks.empty() && points >= 2, "a curve of two points at least");
  double end = 0.0;
  for (const auto& snapshots : ranks) end = std::max(end, snapshots.back().seconds);
  std::vector<std::size_t> newest(ranks.size(), 0);
  std::vector<CurvePoint> curve;
  for (std::size_t p = 0; p < points; ++p) {
    CurvePoint point;
    point.seconds =
        p + 1 == points ? end : end * static_cast<double>(p) / static_cast<double>(points - 1);
    point.worker_min = 1.0;
    double steps = 0.0;
    std::vector<std::vector<float>> models;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto& all = ranks[r];
      while (newest[r] + 1 < all.size() && all[newest[r] + 1].seconds <= point.seconds) {
        ++newest[r];
      }
      const Snapshot& snapshot = all[newest[r]];
      const double accuracy = own[r].at(newest[r]);
      point.worker_min = std::min(point.worker_min, accuracy);
      point.worker_mean += accuracy / static_cast<double>(ranks.size());
      point.epoch = r == 0 ? snapshot.epoch : std::min(point.epoch, snapshot.epoch);
      point.rounds = std::max(point.rounds, snapshot.rounds);
      steps += snapshot.steps;
      models.push_back(snapshot.parameters);
    }
    point.steps =
        static_cast<std::uint32_t>(std::lround(steps / static_cast<double>(ranks.size())));
    const Score score = judge.score(mean_model(models));
    point.accuracy = score.accuracy;
    point.loss = score.loss;
    curve.push_back(point);
  }
  return curve;
}

LiveCurve::LiveCurve(const TrainTask& task)
    : judge_(task), workers_(task.options().workers), parameters_(task.shape().parameters()) {}

std::optional<CurvePoint> LiveCurve::take(std::string_view key, std::span<const std::byte> value) {
  if (!key.ends_with(std::string("/") + kProgressTag)) return {};
  auto snapshot = decode_snapshot(value);
  if (!snapshot || snapshot->parameters.size() != parameters_) return {};
  std::optional<CurvePoint> point;
  if (heard_.contains(key)) point = judge_heard();
  heard_.insert_or_assign(std::string(key), std::move(*snapshot));
  if (heard_.size() == workers_) point = judge_heard();
  return point;
}

CurvePoint LiveCurve::judge_heard() {
  std::vector<Snapshot> snapshots;
  for (auto& [key, snapshot] : heard_) snapshots.push_back(std::move(snapshot));
  heard_.clear();
  return judge_models(judge_, snapshots);
}

Result<TrainResult> assemble(const TrainTask& task, const std::map<std::string, Bytes>& published,
                             std::span<const Rank> lost, References references,
                             RoundCounts counts) {
  TrainResult result;
  result.options = task.options();
  result.data = task.data().name;
  result.params_bytes = task.shape().parameters() * sizeof(float);
  result.steps = task.steps();
  const std::set<Rank> lost_set(lost.begin(), lost.end());
  result.failed_ranks.assign(lost_set.begin(), lost_set.end());
  std::vector<Rank> finishers;
  for (Rank rank = 0; rank < task.options().workers; ++rank) {
    if (!lost_set.contains(rank)) finishers.push_back(rank);
  }
  if (finishers.empty()) return failed("no worker finished the training");

  auto reports = collect_reports(published, finishers, counts);
  if (!reports) return std::move(reports).error();
  result.policy = reports->front().policy;
  result.transport = reports->front().transport;
  for (const TrainingReport& report : *reports) {
    result.rounds = std::max(result.rounds, static_cast<std::uint32_t>(report.round_ms.size()));
  }
  add_accounts(*reports, result);

  if (auto ok = judge_workers(task, published, finishers, result); !ok) return ok.error();
  if (references == References::no) return result;
  result.baseline =
      reference_curve(task, 1, [&](const PointObserver& observer) { train_alone(task, observer); });
  const std::uint32_t workers = task.options().workers;
  result.local_only = reference_curve(task, workers, [&](const PointObserver& observer) {
    train_with_gossip(task, nobody(workers), observer);
  });
  return result;
}

}  // namespace selmcast
