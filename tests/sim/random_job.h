// A job drawn from a seed, with faults, and the rules that no job may break.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "simulate/sim_job.h"

namespace selmcast::testing_jobs {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline std::vector<std::vector<float>> initial(std::size_t ranks, std::size_t count) {
  std::vector<std::vector<float>> out(ranks, std::vector<float>(count));
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      out[r][i] = static_cast<float>((1000003 * r + 7919 * i + 5) % 1024) / 1024.0F;
    }
  }
  return out;
}

/// Equal links that lose nothing.
inline SimJobConfig config(const std::string& policy, std::size_t ranks, Kbps rate = 1'000'000) {
  SimJobConfig out;
  auto parsed = parse_policy(policy);
  EXPECT_TRUE(parsed) << parsed.error().message;
  out.policy = *parsed;
  SimLink link;
  link.tx_kbps = link.rx_kbps = rate;
  out.network.links.assign(ranks, link);
  out.tx_kbps.assign(ranks, rate);
  out.rx_kbps.assign(ranks, rate);
  return out;
}

/// Round by round in double precision from the receiver sets alone: knows nothing of the driver.
inline std::vector<std::vector<double>> expected_average(
    const std::vector<std::vector<float>>& start,
    const std::vector<std::vector<RoundReport>>& reports) {
  std::vector<std::vector<double>> w;
  for (const auto& s : start) w.emplace_back(s.begin(), s.end());
  for (std::size_t round = 0; round < reports[0].size(); ++round) {
    auto next = w;
    std::vector<int> heard(w.size(), 0);
    for (std::size_t s = 0; s < w.size(); ++s) {
      for (const Rank to : reports[s][round].receivers) {
        ++heard[to];
        for (std::size_t i = 0; i < w[s].size(); ++i) next[to][i] += w[s][i];
      }
    }
    for (std::size_t r = 0; r < w.size(); ++r) {
      for (auto& x : next[r]) x /= heard[r] + 1;
    }
    w = next;
  }
  return w;
}

inline double worst_difference(const std::vector<std::vector<float>>& got,
                               const std::vector<std::vector<double>>& want) {
  double worst = 0;
  for (std::size_t r = 0; r < got.size(); ++r) {
    for (std::size_t i = 0; i < got[r].size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(got[r][i]) - want[r][i]));
    }
  }
  return worst;
}

/// How far from the exact means of numbers around [0, 1] a job may end: own and every update are
/// off by half a unit in the last place at most, in each round anew.
inline double tolerance(const SimJobConfig& config) {
  const double half_unit = config.element == WireElement::bf16  ? 0x1p-8
                           : config.element == WireElement::f16 ? 0x1p-11
                                                                : 0.0;
  return 1e-5 + 2 * half_unit * config.rounds;
}

struct Drawn {
  SimJobConfig config;
  std::size_t count = 1;
  std::uint32_t p = 0;
  struct Kill {
    Rank rank;
    TimePoint at;
    Duration notice;
  };
  struct Cut {
    Rank a, b;
    TimePoint from, to;
  };
  std::vector<Kill> kills;
  std::vector<Cut> cuts;
};

inline void draw_links(SplitMix64& rng, Drawn& job, std::uint32_t ranks) {
  const double trouble = rng.unit() * rng.unit();
  for (Rank r = 0; r < ranks; ++r) {
    SimLink link;
    link.tx_kbps = 50'000 + 1000 * rng.below(950);
    link.rx_kbps = 50'000 + 1000 * rng.below(950);
    link.delay = microseconds(1 + rng.below(500));
    link.queue_bytes = 64'000U << rng.below(6);
    link.loss = 0.15 * trouble * rng.unit();
    link.duplicate = 0.1 * trouble * rng.unit();
    link.reorder = 0.1 * trouble * rng.unit();
    link.corrupt = 0.05 * trouble * rng.unit();
    job.config.network.links.push_back(link);
    job.config.tx_kbps.push_back(link.tx_kbps);
    job.config.rx_kbps.push_back(link.rx_kbps);
  }
}

inline Drawn draw(std::uint64_t seed) {
  SplitMix64 rng(mix_seed(seed));
  Drawn job;
  const auto ranks = static_cast<std::uint32_t>(2 + rng.below(6));
  job.p = static_cast<std::uint32_t>(1 + rng.below(ranks - 1));
  const std::string p = std::to_string(job.p);
  const std::string policies[] = {"select=all",
                                  "select=selmcast:" + p,
                                  "select=selmcast:" + p,
                                  "select=selmcast:" + p + " groups=sender",
                                  "select=random:" + p + " groups=sender",
                                  "select=selmcast:" + p + " route=unicast groups=sender"};
  const auto which = rng.below(6);
  if (which == 0) job.p = ranks - 1;
  job.config.policy = parse_policy(policies[which]).value();
  job.config.seed = job.config.network.seed = seed;
  job.config.rounds = static_cast<std::uint32_t>(1 + rng.below(5));
  job.config.timeout = seconds(1);
  job.config.deadline = seconds(120);
  job.config.deterministic = rng.below(4) == 0;
  job.config.loss = rng.below(3) == 0 ? 0.05 * rng.unit() : 0.0;
  job.count = 1 + rng.below(rng.below(4) == 0 ? 60'000 : 6'000);
  draw_links(rng, job, ranks);
  const auto moment = [&] { return TimePoint(microseconds(rng.below(40'000))); };
  if (rng.below(3) == 0) {
    for (std::uint64_t kill = 1 + rng.below(2); kill > 0; --kill) {
      job.kills.push_back(
          {static_cast<Rank>(rng.below(ranks)), moment(), microseconds(rng.below(50'000))});
    }
  }
  if (rng.below(4) == 0) {
    const auto a = static_cast<Rank>(rng.below(ranks));
    const auto b = static_cast<Rank>((a + 1 + rng.below(ranks - 1)) % ranks);
    const TimePoint from = moment();
    const bool heals = rng.below(2) == 0;
    job.cuts.push_back({a, b, from, heals ? from + milliseconds(rng.below(500)) : kNever});
  }
  const WireElement elements[] = {WireElement::f32, WireElement::f32, WireElement::bf16,
                                  WireElement::f16};
  job.config.element = elements[rng.below(4)];
  return job;
}

/// Empty if no rule is broken; otherwise which.
inline std::string broken_rule(const Drawn& job, const std::vector<std::vector<float>>& start,
                               const std::vector<std::vector<float>>& end,
                               const SimJobResult& result) {
  std::ostringstream out;
  const bool calm = job.kills.empty() && job.cuts.empty();
  const double slack = tolerance(job.config);
  if (result.timed_out) return "hangs: the virtual deadline passed";
  std::vector<std::uint8_t> killed(start.size(), 0);
  for (const auto& kill : job.kills) killed[kill.rank] = 1;
  // As the survivors ran them. One that was killed may have run a round under the view before that
  // they ran without it under the next, but none under a later view than theirs.
  std::vector<std::uint32_t> epoch_of_round(job.config.rounds, 0);
  for (Rank r = 0; r < start.size(); ++r) {
    if (killed[r] != 0) continue;
    for (std::size_t i = 0; i < result.reports[r].size(); ++i) {
      epoch_of_round[i] = std::max(epoch_of_round[i], result.reports[r][i].epoch);
    }
  }
  for (Rank r = 0; r < start.size(); ++r) {
    const auto& reports = result.reports[r];
    const std::string& error = result.errors[r];
    if (calm && !error.empty()) out << "rank " << r << " failed without a fault: " << error << "; ";
    if (!error.empty() && error.find("rank ") == std::string::npos) out << "unnamed: " << error;
    if (error.empty() && killed[r] == 0 && reports.size() != job.config.rounds) {
      out << "rank " << r << " ran " << reports.size() << " rounds; ";
    }
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const RoundReport& report = reports[i];
      if (report.round != i) out << "rank " << r << " reports round " << report.round << "; ";
      if (!report.verified) out << "not verified; ";
      if (report.foreign_frames != 0) out << "rank " << r << " foreign frames; ";
      if (calm && report.receivers.size() + 1 < job.p) {
        out << "rank " << r << " reached " << report.receivers.size() << "; ";
      }
      const auto epoch = epoch_of_round[i];  // 0 when no survivor ran it.
      if (killed[r] != 0 ? epoch > 0 && report.epoch > epoch : report.epoch != epoch) {
        out << "round " << i << " ran under two views; ";
      }
    }
    // A mean never leaves the range of what was averaged, whatever was lost on the way.
    for (std::size_t i = 0; i < end[r].size(); ++i) {
      const auto value = static_cast<double>(end[r][i]);
      if (!(value >= -slack && value <= 1 + slack)) {
        out << "rank " << r << " element " << i << " is " << end[r][i] << "; ";
        break;
      }
    }
  }
  if (calm && !result.failed_ranks.empty()) out << "ranks failed without a fault; ";
  if (calm && out.str().empty() &&
      worst_difference(end, expected_average(start, result.reports)) > slack) {
    out << "values differ from the receiver sets; ";
  }
  return out.str();
}

struct Played {
  std::string broken;
  std::uint64_t trace_hash = 0;
};

inline Played play(std::uint64_t seed) {
  const Drawn job = draw(seed);
  const auto start = initial(job.config.network.links.size(), job.count);
  auto parameters = start;
  SimJob sim(job.config, parameters);
  for (const auto& kill : job.kills) {
    sim.at(kill.at, [kill](SimJob& j) { j.kill(kill.rank, kill.notice); });
  }
  for (const auto& cut : job.cuts) {
    sim.at(cut.from, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, true); });
    if (cut.to == kNever) continue;
    sim.at(cut.to, [cut](SimJob& j) { j.network().partition(cut.a, cut.b, false); });
  }
  auto result = sim.run();
  if (!result) return {"no plan: " + result.error().message, 0};
  return {broken_rule(job, start, parameters, *result), result->trace_hash};
}

}  // namespace selmcast::testing_jobs
