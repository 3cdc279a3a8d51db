#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "selmcast/memory.h"
#include "train/report.h"
#include "train/trace.h"

namespace selmcast {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{250};

/// One run of train_rank().
class RankTraining {
 public:
  RankTraining(Worker& worker, const TrainTask& task, const TrainerOptions& options,
               TrainClock& clock)
      : worker_(worker),
        clock_(clock),
        task_(task),
        options_(options),
        learner_(task, worker.rank()),
        own_steps_(options.steps == 0 ? task.steps() : options.steps) {
    report_.rank = worker.rank();
  }

  Result<void> run() {
    if (auto made = allocate_memory(); !made) return made;
    if (auto added = register_memory(); !added) return added;
    begin_ = clock_.now();
    if (auto taken = take_snapshot(); !taken) return taken;
    while (steps_ < own_steps_) {
      if (steps_ % task_.rounds_per_epoch() == 0) learner_.start_epoch();
      if (auto done = layered() ? run_layered_step() : run_step(); !done) return done;
      if (layered() && (steps_ == own_steps_ || task_.is_point(nominal(steps_)))) {
        if (auto done = end_layered_step(); !done) return done;
      }
      if (steps_ == own_steps_ && !layered()) {
        if (auto done = merge_the_rest(); !done) return done;
      }
      const std::uint32_t done = nominal(steps_);
      if (done == nominal(steps_ - 1) || !task_.is_point(done)) continue;
      if (auto taken = take_snapshot(); !taken) return taken;
    }
    report_.seconds = seconds();
    return publish_all();
  }

 private:
  bool layered() const { return options_.exchange == Exchange::layers; }

  /// In memory that ranks of this host read in place.
  Result<void> allocate_memory() {
    const auto initial = task_.initial_parameters();
    for (const bool gradient : {false, true}) {
      auto made = allocate(initial.size() * sizeof(float));
      if (!made) return std::move(made).error();
      SharedMemory& memory = gradient ? gradient_memory_ : parameter_memory_;
      memory = std::move(made).value();
      (gradient ? gradient_ : parameters_) = memory.floats(initial.size());
    }
    std::copy(initial.begin(), initial.end(), parameters_.begin());
    return {};
  }

  Result<void> register_memory() {
    switch (options_.exchange) {
      case Exchange::parameters:
        return worker_.add_parameters(parameters_);
      case Exchange::gradients:
        return worker_.add_parameters(gradient_);
      case Exchange::layers:
        break;
    }
    const ModelShape& shape = task_.shape();
    for (std::size_t l = 0; l + 1 < shape.widths.size(); ++l) {
      layers_.push_back(shape.layer_parameters(l));
    }
    return worker_.add_layers(gradient_, layers_);
  }

  /// Takes over what the last step left under way, one layer after the other.
  template <class Then>
  Result<void> take_layers(Then then) {
    std::size_t at = 0;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      if (under_way_) {
        if (auto ok = worker_.wait_layer(l); !ok) return at_round(ok.error());
        descend(std::span(parameters_).subspan(at, layers_[l]), gradient_.subspan(at, layers_[l]),
                rate_);
      }
      at += layers_[l];
      then();
    }
    if (!std::exchange(under_way_, false)) return {};
    const auto round = worker_.wait();
    if (!round) return at_round(round.error());
    account(*round);
    return {};
  }

  /// A third of a step's computing is its forward pass, two are its backward pass, in equal parts
  /// per layer. What the computing really takes is between the two.
  Result<void> run_layered_step() {
    const auto begin = clock_.now();
    const auto part = std::chrono::duration_cast<Duration>(least_time() * options_.slowdown) /
                      static_cast<int>(3 * layers_.size());
    const auto sleep = [&](int parts) {
      if (part.count() > 0) clock_.sleep(parts * part);
    };
    if (auto taken = take_layers([&] { sleep(1); }); !taken) return taken;
    rate_ = task_.learning_rate(nominal(steps_));
    learner_.gradient(parameters_, gradient_);
    for (std::size_t l = layers_.size(); l-- > 0;) {
      sleep(2);
      if (auto ok = worker_.push_layer(l); !ok) return at_round(ok.error());
    }
    under_way_ = true;
    ++steps_;
    report_.compute_seconds += std::chrono::duration<double>(part * 3 * layers_.size()).count();
    if (options_.trace) trace_step(begin, clock_.now(), {});
    return {};
  }
  Result<void> end_layered_step() {
    return take_layers([] {});
  }

  /// How far the task's schedule is after so many own steps.
  std::uint32_t nominal(std::uint32_t steps) const {
    return static_cast<std::uint32_t>(std::uint64_t{steps} * task_.steps() / own_steps_);
  }

  double seconds() const { return std::chrono::duration<double>(clock_.now() - begin_).count(); }

  Result<void> publish_all() {
    report_.steps = steps_;
    report_.failed_ranks = worker_.failed_ranks();
    report_.notices = worker_.notices();
    report_.transport = worker_.transport_name();
    report_.policy = worker_.policy_text();
    for (const Snapshot& snapshot : snapshots_) {
      auto told = worker_.publish(snapshot_tag(snapshot.steps), encode(snapshot));
      if (!told) return told;
    }
    if (options_.trace) {
      if (auto told = worker_.publish(kTraceTag, encode_trace(trace_)); !told) return told;
    }
    return worker_.publish(kReportTag, encode(report_));
  }

  Result<void> run_step() {
    const float rate = task_.learning_rate(nominal(steps_));
    const auto begin = clock_.now();
    learner_.gradient(parameters_, gradient_);
    if (options_.exchange == Exchange::parameters) descend(parameters_, gradient_, rate);
    const Duration took = clock_.now() - begin;
    const auto due = std::max<Duration>(took, least_time()) * options_.slowdown;
    if (due > took) clock_.sleep(std::chrono::duration_cast<Duration>(due - took));
    const auto end = clock_.now();
    report_.compute_seconds += std::chrono::duration<double>(end - begin).count();
    ++steps_;
    const auto rounds = worker_.step();
    if (!rounds) return at_round(rounds.error());
    if (options_.trace) trace_step(begin, end, *rounds);
    if (options_.exchange == Exchange::gradients) descend(parameters_, gradient_, rate);
    for (const RoundReport& round : *rounds) account(round);
    return {};
  }

  /// Of this step's computing, before the slowdown.
  Duration least_time() const {
    const auto& times = options_.compute_times;
    return times.empty() ? Duration(options_.compute) : times[steps_ % times.size()];
  }

  void trace_step(TimePoint begin, TimePoint end, const std::vector<RoundReport>& closed) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    TracedStep step;
    step.start_ms = Milliseconds(begin - begin_).count();
    step.compute_ms = Milliseconds(end - begin).count();
    if (!closed.empty()) step.closed = closed.back().round;
    if (options_.departure == Departure::with_closing) {
      step.departed = step.closed;
    } else if (!closed.empty()) {
      step.departed = closed.back().round + 1;
    } else if (trace_.empty()) {
      step.departed = 0;
    }
    trace_.push_back(step);
  }

  Result<void> merge_the_rest() {
    const auto rounds = worker_.finish();
    if (!rounds) return at_round(rounds.error());
    for (const RoundReport& round : *rounds) account(round);
    return {};
  }

  Error at_round(const Error& error) const {
    return {error.kind, "rank " + std::to_string(worker_.rank()) + ": round " +
                            std::to_string(report_.round_ms.size()) + ": " + error.message};
  }

  void account(const RoundReport& round) {
    report_.verified = report_.verified && round.verified;
    report_.tx_bytes += round.tx_bytes;
    report_.tx_first_bytes += round.tx_first_bytes;
    report_.tx_repair_bytes += round.tx_repair_bytes;
    report_.foreign_frames += round.foreign_frames;
    report_.repaired_frames += round.repaired_frames;
    report_.round_ms.push_back(round.ms);
    report_.receivers.push_back(static_cast<std::uint32_t>(round.receivers.size()));
    report_.rate_kbps.push_back(round.rate_kbps);
  }

  /// Keeps the model until the end: publishing it now would hold up this rank's next step.
  Result<void> take_snapshot() {
    const auto rounds = static_cast<std::uint32_t>(report_.round_ms.size());
    const std::uint32_t done = nominal(steps_);
    snapshots_.push_back({done / task_.rounds_per_epoch(),
                          done,
                          rounds,
                          seconds(),
                          {parameters_.begin(), parameters_.end()}});
    const auto now = clock_.now();
    if (!options_.progress || now < next_progress_) return {};
    next_progress_ = now + kProgressPeriod;
    return worker_.publish(kProgressTag, encode(snapshots_.back()));
  }

  Worker& worker_;
  TrainClock& clock_;
  const TrainTask& task_;
  TrainerOptions options_;
  Learner learner_;
  std::uint32_t own_steps_;
  SharedMemory parameter_memory_, gradient_memory_;
  std::span<float> parameters_, gradient_;  ///< In them.
  std::vector<std::size_t> layers_;         ///< Elements of each, with Exchange::layers.
  bool under_way_ = false;                  ///< Layers were handed over and not taken back.
  float rate_ = 0.0F;                       ///< Of their step.
  TimePoint begin_{};
  std::uint32_t steps_ = 0;
  std::vector<Snapshot> snapshots_;
  RankTrace trace_;
  TimePoint next_progress_{};
  TrainingReport report_;
};

}  // namespace

Result<void> train_rank(Worker& worker, const TrainTask& task, const TrainerOptions& options) {
  RealTrainClock clock;
  return train_rank(worker, task, options, clock);
}

Result<void> train_rank(Worker& worker, const TrainTask& task, const TrainerOptions& options,
                        TrainClock& clock) {
  SELMCAST_CHECK(worker.world() == task.options().workers, "the task is for as many workers");
  SELMCAST_CHECK(options.slowdown >= 1.0, "a slowdown is at least 1");
  SELMCAST_CHECK(options.steps == 0 || options.steps >= task.steps(), "the task's steps at least");
  return RankTraining(worker, task, options, clock).run();
}

}  // namespace selmcast
