#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "train/report.h"

namespace selmcast {
namespace {

using Timer = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kProgressPeriod{250};

/// One run of train_rank().
class RankTraining {
 public:
  RankTraining(Worker& worker, const TrainTask& task, const TrainerOptions& options)
      : worker_(worker),
        task_(task),
        options_(options),
        learner_(task, worker.rank()),
        parameters_(task.initial_parameters()),
        gradient_(parameters_.size()) {
    report_.rank = worker.rank();
  }

  Result<void> run() {
    const bool shares_gradients = options_.exchange == Exchange::gradients;
    if (auto added = worker_.add_parameters(shares_gradients ? gradient_ : parameters_); !added) {
      return added;
    }
    if (auto published = publish_snapshot(0); !published) return published;
    const std::uint32_t epochs = task_.options().epochs;
    for (std::uint32_t epoch = 1; epoch <= epochs; ++epoch) {
      if (auto done = run_epoch(); !done) return done;
      if (epoch == epochs) {
        if (auto done = merge_the_rest(); !done) return done;
      }
      if (!has_snapshot(epoch, epochs)) continue;
      if (auto published = publish_snapshot(epoch); !published) return published;
    }
    report_.seconds = seconds_;
    report_.failed_ranks = worker_.failed_ranks();
    report_.notices = worker_.notices();
    report_.transport = worker_.transport_name();
    report_.policy = worker_.policy_text();
    return worker_.publish(kReportTag, encode(report_));
  }

 private:
  Result<void> run_epoch() {
    const auto begin = Timer::now();
    learner_.start_epoch();
    for (std::uint32_t r = 0; r < task_.rounds_per_epoch(); ++r) {
      if (auto done = run_step(); !done) return done;
    }
    seconds_ += std::chrono::duration<double>(Timer::now() - begin).count();
    return {};
  }

  Result<void> run_step() {
    const float rate = task_.learning_rate(steps_);
    const auto begin = Timer::now();
    learner_.gradient(parameters_, gradient_);
    if (options_.exchange == Exchange::parameters) descend(parameters_, gradient_, rate);
    const Timer::duration took = Timer::now() - begin;
    const auto due = std::max<Timer::duration>(took, options_.compute) * options_.slowdown;
    if (due > took) std::this_thread::sleep_for(due - took);
    ++steps_;
    const auto rounds = worker_.step();
    if (!rounds) return at_round(rounds.error());
    if (options_.exchange == Exchange::gradients) descend(parameters_, gradient_, rate);
    for (const RoundReport& round : *rounds) account(round);
    return {};
  }

  Result<void> merge_the_rest() {
    const auto begin = Timer::now();
    const auto rounds = worker_.finish();
    if (!rounds) return at_round(rounds.error());
    for (const RoundReport& round : *rounds) account(round);
    seconds_ += std::chrono::duration<double>(Timer::now() - begin).count();
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

  Result<void> publish_snapshot(std::uint32_t epoch) {
    const auto rounds = static_cast<std::uint32_t>(report_.round_ms.size());
    const Bytes bytes = encode(Snapshot{epoch, steps_, rounds, seconds_, parameters_});
    const auto now = Timer::now();
    if (now >= next_progress_) {
      next_progress_ = now + kProgressPeriod;
      if (auto told = worker_.publish(kProgressTag, bytes); !told) return told;
    }
    return worker_.publish(snapshot_tag(epoch), bytes);
  }

  Worker& worker_;
  const TrainTask& task_;
  TrainerOptions options_;
  Learner learner_;
  std::vector<float> parameters_;
  std::vector<float> gradient_;
  double seconds_ = 0.0;
  std::uint32_t steps_ = 0;
  Timer::time_point next_progress_{};
  RankReport report_;
};

}  // namespace

Result<void> train_rank(Worker& worker, const TrainTask& task, const TrainerOptions& options) {
  SELMCAST_CHECK(worker.world() == task.options().workers, "the task is for as many workers");
  SELMCAST_CHECK(options.slowdown >= 1.0, "a slowdown is at least 1");
  return RankTraining(worker, task, options).run();
}

}  // namespace selmcast
