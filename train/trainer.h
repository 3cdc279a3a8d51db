// One rank's side of data-parallel training over a Worker.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "selmcast/worker.h"
#include "train/task.h"
#include "train/train_clock.h"

namespace selmcast {

/// What the ranks exchange every round.
enum class Exchange : std::uint8_t {
  layers,      ///< As gradients, layer by layer: handed over from the last to the first as a
               ///< backward pass makes them, waited for from the first to the last (mix=sgd).
  parameters,  ///< A local step, then the models are mixed (mix=average).
  gradients,   ///< Gradients are mixed, then all take the same step (select=all mix=sgd).
};

/// When the rounds of Worker::step() depart, for the trace.
enum class Departure : std::uint8_t {
  with_closing,   ///< A round departs and closes after the same step (pace=bsp, periodic).
  after_closing,  ///< The next one departs when one has closed, the first after the first step
                  ///< (pace=overlap).
};

struct TrainerOptions {
  Exchange exchange = Exchange::parameters;
  /// A step's computing takes at least `compute`, and `slowdown` times that (the rank sleeps); the
  /// factor is at least 1.
  double slowdown = 1.0;
  std::chrono::microseconds compute{0};
  /// Instead of `compute`, unless it is empty: the time of each step, from the start again after
  /// the last.
  std::vector<std::chrono::nanoseconds> compute_times{};
  Departure departure = Departure::with_closing;
  /// Steps of this rank in the whole run, at least the task's; 0 = as many as the task's. With more
  /// of them the learning rate and the points of the curves follow the share of them that is done.
  std::uint32_t steps = 0;
  bool trace = false;    ///< Publish the trace of the steps (kTraceTag).
  bool progress = true;  ///< Publish the newest model now and then (kProgressTag).
};

/// Trains on the shard of worker.rank(): registers the parameters (or gradients) with the worker,
/// does every round, and publishes at the end Snapshots (TrainTask::is_point()) and a
/// TrainingReport. Does not leave the job. worker.world() must be the task's number of workers.
/// Blocks; errors are those of the Worker, with this rank and the round.
Result<void> train_rank(Worker& worker, const TrainTask& task, const TrainerOptions& options);
/// The same by another clock: computing takes what `options` say, if that takes no time by it.
Result<void> train_rank(Worker& worker, const TrainTask& task, const TrainerOptions& options,
                        TrainClock& clock);

}  // namespace selmcast
