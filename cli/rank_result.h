// What one rank reports of its run, and the job's JSON document made of all ranks' reports.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/wire.h"
#include "selmcast/worker.h"

namespace selmcast {

struct RankResult {
  std::string transport;
  std::string policy;
  std::uint64_t params_bytes = 0;
  double cpu_s = 0.0;
  std::vector<RoundReport> rounds;
  PlanReport plan;
  std::vector<Rank> failed_ranks;
  std::vector<std::string> notices;
};

Bytes serialize(const RankResult& result);
/// The bytes come from a rank of our own job, but from another process: checked all the same.
Result<RankResult> parse_rank_result(std::span<const std::byte> bytes);

/// The document of cli.md. Ranks without a result (lost) contribute zeros and empty lists.
/// `failed` are ranks known to have failed beside those the results name.
nlohmann::ordered_json job_document(std::uint32_t workers,
                                    const std::map<Rank, RankResult>& results,
                                    const std::vector<Rank>& failed);

/// Of a document that is not verified: why, in one line.
std::string why_unverified(const nlohmann::ordered_json& document);

/// A table for people: one line a round (at most 20, then every k-th) and a summary.
std::string job_table(const nlohmann::ordered_json& document);

}  // namespace selmcast
