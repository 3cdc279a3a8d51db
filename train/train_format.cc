// JSON and table of a TrainResult (declared in train_result.h).
#include <array>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "train/train_result.h"

namespace selmcast {
namespace {

nlohmann::ordered_json curve_json(const std::vector<CurvePoint>& curve) {
  auto points = nlohmann::ordered_json::array();
  for (const CurvePoint& point : curve) {
    points.push_back(
        {{"epoch", point.epoch},
         {"rounds", point.rounds},
         {"steps", point.steps},
         {"seconds", point.seconds},
         {"accuracy", point.accuracy},
         {"loss", point.loss},
         {"worker_accuracy", {{"min", point.worker_min}, {"mean", point.worker_mean}}}});
  }
  return points;
}

/// A formatted line.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...) {
  std::array<char, 200> line{};
  std::va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line.data(), line.size(), pattern, arguments);
  va_end(arguments);
  return line.data();
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000.0 && unit + 1 < kUnits.size(); ++unit) value /= 1000.0;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits.at(unit));
}

std::string ranks_text(const std::vector<Rank>& ranks) {
  std::string text;
  for (const Rank rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

nlohmann::ordered_json to_json(const TrainResult& result) {
  const TrainOptions& options = result.options;
  const CurvePoint& last = result.final_workers();
  const auto last_of = [](const std::vector<CurvePoint>& curve, double CurvePoint::*value) {
    return curve.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(curve.back().*value);
  };
  return {{"schema", 1},
          {"workers", options.workers},
          {"transport", result.transport},
          {"policy", result.policy},
          {"params_bytes", result.params_bytes},
          {"verified", result.verified},
          {"failed_ranks", result.failed_ranks},
          {"data", result.data},
          {"model", to_string(options.model)},
          {"split", to_string(options.split)},
          {"epochs", options.epochs},
          {"batch", options.batch},
          {"learning_rate", options.learning_rate},
          {"learning_rate_decay", options.decay},
          {"seed", options.seed},
          {"accuracy", last.accuracy},
          {"worker_accuracy", {{"min", last.worker_min}, {"mean", last.worker_mean}}},
          {"baseline_accuracy", last_of(result.baseline, &CurvePoint::accuracy)},
          {"local_only_accuracy", last_of(result.local_only, &CurvePoint::worker_mean)},
          {"seconds", result.seconds},
          {"steps", result.steps},
          {"rounds", result.rounds},
          {"bytes_on_wire", result.bytes_on_wire},
          {"rate_kbps", result.rate_kbps},
          {"receivers_per_round", result.receivers_per_round},
          {"round_ms",
           {{"min", result.round_ms.min},
            {"median", result.round_ms.median},
            {"p99", result.round_ms.p99},
            {"max", result.round_ms.max}}},
          {"rank_steps", result.rank_steps},
          {"rank_compute_ms", result.rank_compute_ms},
          {"foreign_frames", result.foreign_frames},
          {"repaired_frames", result.repaired_frames},
          {"notices", result.notices},
          {"curves",
           {{"workers", curve_json(result.workers)},
            {"by_time", curve_json(result.by_time)},
            {"baseline", curve_json(result.baseline)},
            {"local_only", curve_json(result.local_only)}}}};
}

std::string to_table(const TrainResult& result) {
  const TrainOptions& options = result.options;
  const CurvePoint& last = result.final_workers();
  std::string out = std::string(to_string(options.model)) + " on " + result.data;
  out += format(", %s split, %u workers, %u steps of batch %u, rate %g, seed %llu\n",
                to_string(options.split).data(), options.workers, result.steps, options.batch,
                options.learning_rate, static_cast<unsigned long long>(options.seed));
  out += "policy: " + result.policy + "\ntransport: " + result.transport + "\n\n";
  out += "                                        accuracy";
  out += result.has_references() ? "   to single process\n" : "\n";
  const auto row = [&](const char* name, double accuracy) {
    out += format("  %-36s    %.3f", name, accuracy);
    if (result.has_references()) {
      out += format("              %+.3f", accuracy - result.final_baseline().accuracy);
    }
    out += "\n";
  };
  row("average of the workers' models", last.accuracy);
  row("workers on their own, mean", last.worker_mean);
  row("workers on their own, worst", last.worker_min);
  if (result.has_references()) {
    out += format("  %-36s    %.3f\n", "single process, same samples",
                  result.final_baseline().accuracy);
    row("workers that never talk, mean", result.final_local_only().worker_mean);
  }
  out += format("\n  training time        %.2f s", result.seconds);
  if (result.has_references()) {
    out += format(" (single process %.2f s)", result.final_baseline().seconds);
  }
  out += "\n";
  out += format("  rounds               %u, median %.2f ms, p99 %.2f ms\n", result.rounds,
                result.round_ms.median, result.round_ms.p99);
  out += "  bytes on the wire    " + bytes_text(result.bytes_on_wire) +
         format(" in all, %s of parameters per worker and round\n",
                bytes_text(result.params_bytes).c_str());
  out += format("  planned rate         %.1f Mbit/s (median)\n",
                static_cast<double>(result.rate_kbps) / 1000.0);
  out += format("  receivers per round  %.2f (all workers together)\n", result.receivers_per_round);
  out += format("  frames repaired      %llu\n",
                static_cast<unsigned long long>(result.repaired_frames));
  out += std::string("  verified             ") + (result.verified ? "yes" : "NO") + "\n";
  if (!result.failed_ranks.empty()) {
    out += "  ranks lost           " + ranks_text(result.failed_ranks) + "\n";
  }
  return out;
}

}  // namespace selmcast
