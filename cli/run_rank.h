// One rank of `selmcast run`: joins, runs the rounds, publishes what happened.
#pragma once

#include "base/result.h"
#include "cli/rank_result.h"
#include "cli/run_options.h"
#include "simulate/sim_job.h"

namespace selmcast {

struct RankPlace {
  Rank rank = 0;
  std::uint32_t world = 1;
  std::string rendezvous;
  std::string interface;
};

/// What a rank joins with.
WorkerConfig worker_config(const RunOptions& options, const RankPlace& place,
                           std::optional<LinkTable> links);

/// Rank 0 prints what all ranks agreed on while joining, beside the policy's notices, which whoever
/// reads the policy prints.
void print_joining(const Worker& worker, const Policy& policy);

/// Runs to the end and publishes the result as "run". With --dump it leaves raw little-endian
/// float32 in FOLDER/rank-I.f32, complete or absent. Errors as Worker's.
Result<RankResult> run_rank(const RunOptions& options, const RankPlace& place);

/// A job in virtual time with the options' links (default: 10 Gbit/s), which are also enforced.
Result<SimJobConfig> simulated_job(const RunOptions& options, std::uint32_t world);
/// The same job in one process and in virtual time.
Result<std::map<Rank, RankResult>> run_simulated(const RunOptions& options, std::uint32_t world);

}  // namespace selmcast
