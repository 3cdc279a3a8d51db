// Options shared by `selmcast train` and its ranks, and the same as child arguments.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/run_options.h"
#include "train/task.h"
#include "train/trainer.h"

namespace selmcast {

struct TrainCommandOptions {
  TrainOptions training;        ///< Its seed is also the job's.
  std::string data = "digits";  ///< See load_data().
  std::string model = "mlp";
  std::string split = "skew";
  std::vector<double> slowdown;  ///< Empty, or one factor a rank.
  double compute_ms = 0.0;       ///< Least time of a step's computing, before the slowdown.
  std::string compute_trace;     ///< File of each step's computing time; empty: compute_ms.
  bool steps_by_speed = false;   ///< Faster ranks do more steps, where the pace lets them.
  bool record_trace = false;     ///< Of a rank: publish its trace.
  bool quiet = false;            ///< Of a rank: publish no progress.
  RunOptions job;                ///< Policy, transport, links and what else `run` has in common.
};

/// Adds the options to a subcommand.
void add_train_options(CLI::App& command, TrainCommandOptions& options);
/// Those that only the ranks have.
void add_rank_options(CLI::App& command, TrainCommandOptions& options);
/// The options as arguments of a child `train-worker`.
std::vector<std::string> as_arguments(const TrainCommandOptions& options);
/// Checks all that needs no other rank, and loads the data. Fills in what other options imply, e.g.
/// the size of the parameters. Errors: bad_input or unavailable (no data set), naming the option.
Result<TrainTask> make_task(TrainCommandOptions& options);
/// How this rank trains, from the policy and how long computing takes; after make_task(). Errors:
/// bad_input, the trace of compute times.
Result<TrainerOptions> trainer_options(const TrainCommandOptions& options, const TrainTask& task,
                                       Rank rank);

}  // namespace selmcast
