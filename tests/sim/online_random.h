// A job under pace=ssp:s,eta drawn from a seed, with faults, and the rules that none may break.
#pragma once

#include "tests/sim/free_random.h"

namespace selmcast::testing_jobs {

/// Unequal links and speeds, 2 to 12 ranks, in one of three with kills, in one of four with a cut
/// link.
inline DrawnFree draw_online(std::uint64_t seed) {
  DrawnFree out;
  out.job = draw(seed);
  SplitMix64 rng(mix_seed(seed ^ 0x0517));
  SimJobConfig& config = out.job.config;
  const auto more = static_cast<std::uint32_t>(rng.below(6));
  SplitMix64 links(mix_seed(seed ^ 0x11));
  draw_links(links, out.job, more);
  const auto ranks = static_cast<std::uint32_t>(config.network.links.size());
  out.job.p = static_cast<std::uint32_t>(1 + rng.below(ranks - 1));
  out.slack = static_cast<std::uint32_t>(rng.below(5));
  const std::string k = rng.below(2) == 0 ? "," + std::to_string(1 + rng.below(5)) : "";
  const char* const etas[] = {"0", "0.25", "0.75", "0.75", "1"};
  config.policy = parse_policy("select=selmcast:" + std::to_string(out.job.p) + k +
                               " pace=ssp:" + std::to_string(out.slack) + "," + etas[rng.below(5)])
                      .value();
  config.deterministic = false;
  config.element = WireElement::f32;
  config.rounds = static_cast<std::uint32_t>(1 + rng.below(16));
  config.network.join_settle = microseconds(rng.below(2) == 0 ? 0 : rng.below(2000));
  for (std::uint32_t r = 0; r < ranks; ++r) {
    config.compute.push_back(
        microseconds(rng.below(4) == 0 ? rng.below(20'000) : rng.below(3'000)));
  }
  return out;
}

struct OnlineCounts {
  std::uint64_t rounds = 0, alone = 0, cut = 0;
};

/// What selection promises beyond the rules of all free rounds, of the ranks that lived to the end.
inline std::string broken_selection(const DrawnFree& drawn, const FreeOutcome& out,
                                    OnlineCounts* counts = nullptr) {
  const Drawn& job = drawn.job;
  const SimJobResult& result = *out.result;
  const auto n = static_cast<std::uint32_t>(out.end.size());
  const std::uint32_t k = job.config.policy.resolved_k(n);
  const bool calm = job.kills.empty() && job.cuts.empty();
  std::ostringstream why;
  const auto lived = [&](Rank r) {
    return result.errors[r].empty() &&
           std::none_of(job.kills.begin(), job.kills.end(),
                        [r](const Drawn::Kill& kill) { return kill.rank == r; });
  };
  for (Rank sender = 0; sender < n; ++sender) {
    if (!lived(sender)) continue;
    std::vector<std::uint32_t> unserved(n, 0);
    for (const RoundReport& report : result.reports[sender]) {
      const auto chosen = out.replay->selected(sender).find(report.round);
      if (chosen == out.replay->selected(sender).end()) {
        why << "rank " << sender << " selected nothing for round " << report.round << "; ";
        continue;
      }
      const auto& to = chosen->second.receivers;
      if (counts != nullptr) {
        ++counts->rounds;
        counts->alone += chosen->second.alone ? 1 : 0;
        counts->cut += to.size() - report.receivers.size();
      }
      for (const Rank receiver : report.receivers) {
        if (std::find(to.begin(), to.end(), receiver) == to.end()) {
          why << "rank " << sender << " reached " << receiver << " unasked; ";
        }
      }
      if (calm && report.receivers.size() < std::min(job.p, n - 1)) {
        why << "rank " << sender << " reached " << report.receivers.size() << " in round "
            << report.round << "; ";
      }
      for (Rank receiver = 0; receiver < n; ++receiver) {
        ++unserved[receiver];
        if (std::binary_search(report.receivers.begin(), report.receivers.end(), receiver)) {
          unserved[receiver] = 0;
        }
        // A cut link may have kept them apart; where not, once in k + 1 rounds of the sender.
        if (job.cuts.empty() && k > 0 && receiver != sender && lived(receiver) &&
            unserved[receiver] > k) {
          why << "rank " << sender << " left " << receiver << " unserved for " << unserved[receiver]
              << " rounds up to " << report.round << "; ";
        }
      }
    }
  }
  return why.str();
}

inline FreeOutcome run_drawn(const DrawnFree& drawn) {
  const Drawn& job = drawn.job;
  const auto start = initial(job.config.network.links.size(), job.count);
  return run_free(job.config, start, nullptr, [&job](SimJob& sim) {
    for (const auto& kill : job.kills) {
      sim.at(kill.at, [kill](SimJob& j) { j.kill(kill.rank, kill.notice); });
    }
    for (const auto& cut : job.cuts) {
      sim.at(cut.from, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, true); });
      if (cut.to == kNever) continue;
      sim.at(cut.to, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, false); });
    }
  });
}

inline std::string play_online(std::uint64_t seed, OnlineCounts* counts = nullptr,
                               std::uint64_t* hash = nullptr) {
  const DrawnFree drawn = draw_online(seed);
  const auto out = run_drawn(drawn);
  if (!out.result) return "no plan: " + out.result.error().message;
  if (hash != nullptr) *hash = out.result->trace_hash;
  return broken_free_rule(drawn, out) + broken_selection(drawn, out, counts);
}

}  // namespace selmcast::testing_jobs
