// A job under pace=async or ssp:s drawn from a seed, with faults, and the rules that none may
// break.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tests/sim/free_job.h"

namespace selmcast::testing_jobs {

/// A drawn job with another policy, more rounds and unequal computing.
struct DrawnFree {
  Drawn job;
  std::uint32_t slack = 0;
};

inline DrawnFree draw_free(std::uint64_t seed) {
  DrawnFree out;
  out.job = draw(seed);
  SplitMix64 rng(mix_seed(seed ^ 0xF4EE));
  const auto ranks = static_cast<std::uint32_t>(out.job.config.network.links.size());
  out.slack = static_cast<std::uint32_t>(rng.below(4));
  const std::string p = std::to_string(1 + rng.below(ranks - 1));
  const std::string selects[] = {"select=all", "select=selmcast:" + p, "select=random:" + p,
                                 "select=selmcast:" + p + " route=unicast"};
  const std::string pace = rng.below(3) == 0 ? "async" : "ssp:" + std::to_string(out.slack);
  SimJobConfig& config = out.job.config;
  config.policy = parse_policy(selects[rng.below(4)] + " pace=" + pace).value();
  config.deterministic = false;
  config.element = WireElement::f32;
  config.rounds = static_cast<std::uint32_t>(1 + rng.below(12));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    config.compute.push_back(
        microseconds(rng.below(4) == 0 ? rng.below(20'000) : rng.below(3'000)));
  }
  return out;
}

inline std::string broken_free_rule(const DrawnFree& drawn, const FreeOutcome& out) {
  const Drawn& job = drawn.job;
  const SimJobResult& result = *out.result;
  if (result.timed_out) return "hangs: the virtual deadline passed";
  std::ostringstream why;
  const bool calm = job.kills.empty() && job.cuts.empty();
  std::vector<Rank> survivors;
  for (Rank r = 0; r < out.end.size(); ++r) {
    const std::string& error = result.errors[r];
    bool killed = false;
    for (const auto& kill : job.kills) killed = killed || kill.rank == r;
    if (!killed && error.empty()) survivors.push_back(r);
    // The death of others is no reason to fail.
    if (job.cuts.empty() && !killed && !error.empty()) {
      why << "rank " << r << " failed without a fault: " << error << "; ";
    }
    if (!error.empty() && error.find("rank ") == std::string::npos) why << "unnamed: " << error;
    std::uint32_t round = 0;
    for (const auto& report : result.reports[r]) {
      if (report.round != round++) why << "rank " << r << " reports round " << report.round << "; ";
      if (!report.verified) why << "not verified; ";
      if (report.foreign_frames != 0) why << "rank " << r << " foreign frames; ";
      if (calm && !report.given_up.empty()) why << "rank " << r << " gave somebody up; ";
    }
    if (error.empty() && !killed) {
      if (out.log.begin_of(r, job.config.rounds) == kNever) why << "rank " << r << " did not end; ";
      if (worst_replayed(out, r) > 1e-5) why << "rank " << r << " differs from the replay; ";
    }
    for (const float w : out.end[r]) {
      if (w >= -1e-5F && w <= 1.0F + 1e-5F) continue;
      why << "rank " << r << " holds " << w << "; ";
      break;
    }
  }
  if (calm && !result.failed_ranks.empty()) why << "ranks failed without a fault; ";
  if (job.config.policy.has(Trait::bounded)) {
    const auto ahead = out.log.most_ahead(survivors);
    const auto beyond = out.log.most_beyond_ended(survivors);
    if (ahead > drawn.slack) why << "a rank was " << ahead << " steps ahead; ";
    if (beyond > drawn.slack) why << "a rank was " << beyond << " beyond what had ended; ";
  }
  return why.str();
}

inline std::string play_free(std::uint64_t seed, std::uint64_t* hash = nullptr) {
  const DrawnFree drawn = draw_free(seed);
  const Drawn& job = drawn.job;
  const auto start = initial(job.config.network.links.size(), job.count);
  const auto out = run_free(job.config, start, nullptr, [&job](SimJob& sim) {
    for (const auto& kill : job.kills) {
      sim.at(kill.at, [kill](SimJob& j) { j.kill(kill.rank, kill.notice); });
    }
    for (const auto& cut : job.cuts) {
      sim.at(cut.from, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, true); });
      if (cut.to == kNever) continue;
      sim.at(cut.to, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, false); });
    }
  });
  if (!out.result) return "no plan: " + out.result.error().message;
  if (hash != nullptr) *hash = out.result->trace_hash;
  return broken_free_rule(drawn, out);
}

}  // namespace selmcast::testing_jobs
