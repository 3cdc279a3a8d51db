#include "cli/train_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "train/trace.h"

namespace selmcast {

namespace {

constexpr double kSlowdownMax = 1000.0;
constexpr std::array kModels{ModelKind::mlp, ModelKind::softmax, ModelKind::cnn};

/// Digits enough to read the same double again.
std::string exact(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

Result<void> check_compute(const TrainCommandOptions& options) {
  constexpr double kComputeMax = 60'000.0;
  if (!(options.compute_ms >= 0.0 && options.compute_ms <= kComputeMax)) {
    return bad_input("--compute-ms: " + std::to_string(options.compute_ms) +
                     " is not within 0..60000");
  }
  if (!options.compute_trace.empty()) {
    if (options.compute_ms > 0.0) {
      return bad_input(
          "--compute-ms, --compute-trace: both say how long computing takes; drop one");
    }
    if (auto trace = load_trace(options.compute_trace, options.training.workers); !trace) {
      return trace.error();
    }
  }
  const auto& factors = options.slowdown;
  if (factors.empty()) return {};
  if (factors.size() != options.training.workers) {
    return bad_input("--slowdown: " + std::to_string(factors.size()) + " factors for --workers " +
                     std::to_string(options.training.workers) + "; one per worker is needed");
  }
  for (const double factor : factors) {
    if (factor >= 1.0 && factor <= kSlowdownMax) continue;
    return bad_input("--slowdown: " + std::to_string(factor) + " is not within 1..1000");
  }
  return {};
}

Result<void> read_words(TrainCommandOptions& options) {
  const auto model =
      std::ranges::find(kModels, options.model, [](ModelKind kind) { return to_string(kind); });
  if (model == kModels.end()) {
    return bad_input("--model: `" + options.model + "` is not mlp, softmax or cnn");
  }
  options.training.model = *model;
  if (options.split != "skew" && options.split != "iid") {
    return bad_input("--split: `" + options.split + "` is not skew or iid");
  }
  options.training.split = options.split == "skew" ? ShardKind::skew : ShardKind::iid;
  options.training.seed = options.job.seed;
  return {};
}

void add_job_options(CLI::App& command, RunOptions& job) {
  command
      .add_option("--policy", job.policy_text, "Policy string; `selmcast policies` lists the words")
      ->capture_default_str();
  command
      .add_option(
          "--transport", job.transport,
          "auto, shm, uring, verbs or sim; with auto all ranks agree on the fastest that works")
      ->capture_default_str();
  command.add_option("--links", job.links_file,
                     "JSON file with tx_kbps and rx_kbps of each rank; without it the links are "
                     "measured first");
  command
      .add_option(
          "--seed", job.seed,
          "Seed of the division of the data, the initial parameters, the batches and random "
          "selections")
      ->capture_default_str();
  command
      .add_option("--timeout", job.timeout_s,
                  "Seconds for which a peer may be silent before it is evicted")
      ->capture_default_str();
  command
      .add_option("--loss", job.loss,
                  "Share of received data frames that every rank drops, 0 to 1, to test repair")
      ->capture_default_str();
  command.add_option("--mtu", job.mtu, "Largest packet in bytes; 0 takes the interface's MTU")
      ->capture_default_str();
  command.add_flag("--deterministic", job.deterministic,
                   "Add in fixed point, so that equal inputs give equal bits in every run");
}

}  // namespace

void add_train_options(CLI::App& command, TrainCommandOptions& o) {
  command
      .add_option(
          "--data", o.data,
          "digits (shipped), generated[:N] (N samples, 20000 unless given), or a CSV file with 64 "
          "pixels from 0 to 16 and a digit in each line")
      ->capture_default_str();
  command.add_option("--epochs", o.training.epochs, "Number of passes over the data")
      ->capture_default_str();
  command.add_option("--batch", o.training.batch, "Samples in one step of one worker")
      ->capture_default_str();
  command.add_option("--lr", o.training.learning_rate, "Learning rate")->capture_default_str();
  command
      .add_option("--lr-decay", o.training.decay,
                  "Share of the rounds at the end during which the learning rate falls to 0")
      ->capture_default_str();
  command.add_option("--model", o.model, "mlp, softmax or cnn (8 filters of 3x3, 2x2 pooling)")
      ->capture_default_str();
  command.add_option("--hidden", o.training.hidden, "Hidden units of the mlp")
      ->capture_default_str();
  command
      .add_option("--curve-steps", o.training.curve_steps,
                  "Steps between two points of the curves; 0 means one pass over the data")
      ->capture_default_str();
  command
      .add_option("--split", o.split,
                  "How the data is divided: skew (a worker sees 2 or 3 classes) or iid")
      ->capture_default_str();
  command
      .add_option("--slowdown", o.slowdown,
                  "A factor for each rank by which its computing is slowed down")
      ->delimiter(',');
  command
      .add_option(
          "--compute-ms", o.compute_ms,
          "Shortest computing time of a step, before --slowdown; it stands for a larger model")
      ->capture_default_str();
  command.add_option(
      "--compute-trace", o.compute_trace,
      "CSV file `rank,step,compute_ms` with the shortest computing time of each step, "
      "repeated when it ends; files of --write-trace have this form");
  command.add_flag("--steps-by-speed", o.steps_by_speed,
                   "Ranks that compute faster by --slowdown or --compute-trace take more steps, so "
                   "that all ranks end together; for paces without a common step (overlap)");
  add_job_options(command, o.job);
}

void add_rank_options(CLI::App& command, TrainCommandOptions& o) {
  command.add_flag("--record-trace", o.record_trace, "Publish when each step was computed");
  command.add_flag("--quiet", o.quiet, "Publish no progress");
}

std::vector<std::string> as_arguments(const TrainCommandOptions& o) {
  std::vector<std::string> out{"--data",        o.data,
                               "--epochs",      std::to_string(o.training.epochs),
                               "--batch",       std::to_string(o.training.batch),
                               "--lr",          exact(o.training.learning_rate),
                               "--lr-decay",    exact(o.training.decay),
                               "--model",       o.model,
                               "--hidden",      std::to_string(o.training.hidden),
                               "--curve-steps", std::to_string(o.training.curve_steps),
                               "--split",       o.split,
                               "--policy",      o.job.policy_text,
                               "--transport",   o.job.transport,
                               "--seed",        std::to_string(o.job.seed),
                               "--timeout",     exact(o.job.timeout_s),
                               "--loss",        exact(o.job.loss),
                               "--mtu",         std::to_string(o.job.mtu)};
  if (!o.slowdown.empty()) {
    std::string list;
    for (const double factor : o.slowdown) {
      if (!list.empty()) list += ',';
      list += exact(factor);
    }
    out.insert(out.end(), {"--slowdown", list});
  }
  if (o.compute_ms > 0.0) out.insert(out.end(), {"--compute-ms", exact(o.compute_ms)});
  if (!o.job.links_file.empty()) out.insert(out.end(), {"--links", o.job.links_file});
  if (!o.compute_trace.empty()) out.insert(out.end(), {"--compute-trace", o.compute_trace});
  if (o.steps_by_speed) out.emplace_back("--steps-by-speed");
  if (o.record_trace) out.emplace_back("--record-trace");
  if (o.quiet) out.emplace_back("--quiet");
  if (o.job.deterministic) out.emplace_back("--deterministic");
  return out;
}

Result<TrainTask> make_task(TrainCommandOptions& options) {
  if (auto ok = read_words(options); !ok) return std::move(ok).error();
  auto data = load_data(options.data);
  if (!data) return std::move(data).error();
  auto task = TrainTask::make(options.training, std::move(*data));
  if (!task) return task;
  if (auto ok = check_compute(options); !ok) return std::move(ok).error();
  // What is left is a `run` of so many rounds on so many bytes.
  options.job.rounds = task->steps();
  options.job.params_bytes = task->shape().parameters() * sizeof(float);
  if (auto ok = read_policy(options.job, options.training.workers); !ok) {
    return std::move(ok).error();
  }
  if (auto ok = check_run_options(options.job, options.training.workers, options.training.workers);
      !ok) {
    return std::move(ok).error();
  }
  return task;
}

namespace {

/// Mean time of a rank's steps as asked for, in a unit that is the same for all ranks.
double pace_of(const TrainCommandOptions& options, const std::vector<RankTrace>& traces,
               Rank rank) {
  const double factor = options.slowdown.empty() ? 1.0 : options.slowdown.at(rank);
  if (traces.empty()) return factor;
  double sum = 0.0;
  for (const TracedStep& step : traces.at(rank)) sum += step.compute_ms;
  return factor * sum / static_cast<double>(traces.at(rank).size());
}

/// Steps of a rank, so that it takes as long over them as the slowest over `least` of its own.
std::uint32_t steps_of(const TrainCommandOptions& options, const std::vector<RankTrace>& traces,
                       std::uint32_t least, Rank rank) {
  double slowest = 0.0;
  for (Rank other = 0; other < options.training.workers; ++other) {
    slowest = std::max(slowest, pace_of(options, traces, other));
  }
  constexpr double kFactorMax = 1000.0;  // What --slowdown allows; a trace may hold zeros.
  const double own = std::max(pace_of(options, traces, rank), slowest / kFactorMax);
  const double steps = own > 0.0 ? std::round(least * slowest / own) : least;
  return static_cast<std::uint32_t>(std::min(steps, 4e9));
}

}  // namespace

Result<TrainerOptions> trainer_options(const TrainCommandOptions& options, const TrainTask& task,
                                       Rank rank) {
  TrainerOptions out;
  const Policy& policy = options.job.policy;
  if (policy.has(Trait::gradients)) {
    out.exchange = policy.has(Trait::layered) ? Exchange::layers : Exchange::gradients;
  }
  if (policy.has(Trait::overlapping)) out.departure = Departure::after_closing;
  if (!options.slowdown.empty()) out.slowdown = options.slowdown.at(rank);
  out.compute = std::chrono::microseconds(std::lround(options.compute_ms * 1000.0));
  out.trace = options.record_trace;
  out.progress = !options.quiet;
  std::vector<RankTrace> traces;
  if (!options.compute_trace.empty()) {
    auto loaded = load_trace(options.compute_trace, options.training.workers);
    if (!loaded) return std::move(loaded).error();
    traces = std::move(*loaded);
    for (const TracedStep& step : traces.at(rank)) {
      out.compute_times.emplace_back(std::llround(step.compute_ms * 1e6));
    }
  }
  if (options.steps_by_speed && policy.has(Trait::uneven_steps)) {
    out.steps = steps_of(options, traces, task.steps(), rank);
  }
  return out;
}

}  // namespace selmcast
