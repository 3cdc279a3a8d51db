#include "cli/rank_result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace selmcast {

using nlohmann::ordered_json;

namespace {

ordered_json to_json(const RoundReport& r) {
  return {{"round", r.round},
          {"epoch", r.epoch},
          {"ms", r.ms},
          {"rate_kbps", r.rate_kbps},
          {"receivers", r.receivers},
          {"tx_first_bytes", r.tx_first_bytes},
          {"tx_repair_bytes", r.tx_repair_bytes},
          {"tx_patch_bytes", r.tx_patch_bytes},
          {"tx_bytes", r.tx_bytes},
          {"rx_payload_bytes", r.rx_payload_bytes},
          {"foreign_frames", r.foreign_frames},
          {"transition_frames", r.transition_frames},
          {"repaired_frames", r.repaired_frames},
          {"read_frames", r.read_frames},
          {"membership_changes", r.membership_changes},
          {"verified", r.verified},
          {"given_up", r.given_up}};
}

RoundReport round_from(const ordered_json& j) {
  RoundReport r;
  r.round = j.at("round");
  r.epoch = j.at("epoch");
  r.ms = j.at("ms");
  r.rate_kbps = j.at("rate_kbps");
  r.receivers = j.at("receivers").get<std::vector<Rank>>();
  r.tx_first_bytes = j.at("tx_first_bytes");
  r.tx_repair_bytes = j.at("tx_repair_bytes");
  r.tx_patch_bytes = j.at("tx_patch_bytes");
  r.tx_bytes = j.at("tx_bytes");
  r.rx_payload_bytes = j.at("rx_payload_bytes");
  r.foreign_frames = j.at("foreign_frames");
  r.transition_frames = j.at("transition_frames");
  r.repaired_frames = j.at("repaired_frames");
  r.read_frames = j.at("read_frames");
  r.membership_changes = j.at("membership_changes");
  r.verified = j.at("verified");
  r.given_up = j.at("given_up").get<std::vector<Rank>>();
  return r;
}

/// Nearest-rank quantile of sorted values.
double quantile(const std::vector<double>& sorted, double q) {
  const auto index = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1];
}

ordered_json round_document(std::uint32_t workers, std::size_t index,
                            const std::map<Rank, RankResult>& results) {
  double ms = 0.0;
  Kbps rate = 0;
  std::uint32_t epoch = 0;
  std::uint64_t total = 0, repaired = 0, read = 0, changes = 0;
  std::vector<std::vector<Rank>> receivers(workers), given_up(workers);
  std::map<std::string, std::vector<std::uint64_t>> columns;
  for (const char* name : {"tx_first_bytes", "tx_repair_bytes", "tx_patch_bytes", "tx_bytes",
                           "foreign_frames", "transition_frames", "rx_payload_bytes"}) {
    columns[name].assign(workers, 0);
  }
  for (const auto& [rank, result] : results) {
    if (index >= result.rounds.size()) continue;
    const RoundReport& r = result.rounds[index];
    ms = std::max(ms, r.ms);
    epoch = r.epoch;
    rate = rate == 0 ? r.rate_kbps : std::min(rate, r.rate_kbps);
    receivers[rank] = r.receivers;
    given_up[rank] = r.given_up;
    total += r.receivers.size();
    repaired += r.repaired_frames;
    read += r.read_frames;
    changes += r.membership_changes;
    columns["tx_first_bytes"][rank] = r.tx_first_bytes;
    columns["tx_repair_bytes"][rank] = r.tx_repair_bytes;
    columns["tx_patch_bytes"][rank] = r.tx_patch_bytes;
    columns["tx_bytes"][rank] = r.tx_bytes;
    columns["foreign_frames"][rank] = r.foreign_frames;
    columns["transition_frames"][rank] = r.transition_frames;
    columns["rx_payload_bytes"][rank] = r.rx_payload_bytes;
  }
  return {{"round", index},
          {"epoch", epoch},
          {"ms", ms},
          {"rate_kbps", rate},
          {"receivers", receivers},
          {"receivers_total", total},
          {"given_up", given_up},
          {"tx_first_bytes", columns["tx_first_bytes"]},
          {"tx_repair_bytes", columns["tx_repair_bytes"]},
          {"tx_patch_bytes", columns["tx_patch_bytes"]},
          {"tx_bytes", columns["tx_bytes"]},
          {"foreign_frames", columns["foreign_frames"]},
          {"transition_frames", columns["transition_frames"]},
          {"rx_payload_bytes", columns["rx_payload_bytes"]},
          {"repaired_frames", repaired},
          {"read_frames", read},
          {"membership_changes", changes}};
}

ordered_json summary(const std::map<Rank, RankResult>& results, const std::vector<double>& ms) {
  std::vector<double> sorted = ms;
  std::sort(sorted.begin(), sorted.end());
  double seconds = 0.0, cpu = 0.0;
  for (const double m : ms) seconds += m / 1000.0;
  std::uint64_t payload = 0;
  for (const auto& [rank, result] : results) {
    cpu += result.cpu_s;
    for (const auto& r : result.rounds) payload += r.rx_payload_bytes;
  }
  const auto ranks = static_cast<double>(std::max<std::size_t>(results.size(), 1));
  const PlanReport plan = results.empty() ? PlanReport{} : results.begin()->second.plan;
  return {
      {"round_ms",
       {{"min", sorted.empty() ? 0.0 : sorted.front()},
        {"median", sorted.empty() ? 0.0 : quantile(sorted, 0.5)},
        {"p99", sorted.empty() ? 0.0 : quantile(sorted, 0.99)},
        {"max", sorted.empty() ? 0.0 : sorted.back()}}},
      {"goodput_kbps_per_receiver",
       seconds > 0 ? static_cast<Kbps>(static_cast<double>(payload) * 8 / 1000 / seconds / ranks)
                   : 0},
      {"cpu_s_per_gb", payload > 0 ? cpu / (static_cast<double>(payload) / 1e9) : 0.0},
      {"pair_age", {{"worst", plan.pair_age_worst}, {"mean", plan.pair_age_mean}}},
      {"k", plan.k},
      {"senders_below_p", plan.senders_below_p},
      {"group_entries_max", plan.group_entries_max},
      {"k_rate_share", plan.k_rate_share},
      {"joins", plan.joins},
      {"member_joins_max", plan.member_joins_max},
      {"joins_per_round_max", plan.joins_per_round_max},
      {"epochs", plan.epoch}};
}

}  // namespace

Bytes serialize(const RankResult& result) {
  ordered_json rounds = ordered_json::array();
  for (const auto& r : result.rounds) rounds.push_back(to_json(r));
  const PlanReport& p = result.plan;
  const ordered_json document = {
      {"transport", result.transport},
      {"policy", result.policy},
      {"params_bytes", result.params_bytes},
      {"cpu_s", result.cpu_s},
      {"rounds", rounds},
      {"plan",
       {p.epoch, p.members, p.k, p.pair_age_worst, p.senders_below_p, p.group_entries_max, p.joins,
        p.member_joins_max, p.joins_per_round_max}},
      {"pair_age_mean", p.pair_age_mean},
      {"k_rate_share", p.k_rate_share},
      {"failed_ranks", result.failed_ranks},
      {"notices", result.notices}};
  const std::string text = document.dump();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<RankResult> parse_rank_result(std::span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  const auto j = ordered_json::parse(text, text + bytes.size(), nullptr, false);
  try {
    RankResult out;
    out.transport = j.at("transport");
    out.policy = j.at("policy");
    out.params_bytes = j.at("params_bytes");
    out.cpu_s = j.at("cpu_s");
    for (const auto& r : j.at("rounds")) out.rounds.push_back(round_from(r));
    const auto plan = j.at("plan").get<std::vector<std::uint32_t>>();
    if (plan.size() != 9) return failed("a rank's result has a plan of the wrong length");
    out.plan = {plan[0],
                plan[1],
                plan[2],
                plan[3],
                j.at("pair_age_mean"),
                plan[4],
                plan[5],
                j.at("k_rate_share"),
                plan[6],
                plan[7],
                plan[8]};
    out.failed_ranks = j.at("failed_ranks").get<std::vector<Rank>>();
    out.notices = j.at("notices").get<std::vector<std::string>>();
    return out;
  } catch (const nlohmann::json::exception& error) {
    return failed(std::string("a rank's result cannot be read: ") + error.what());
  }
}

ordered_json job_document(std::uint32_t workers, const std::map<Rank, RankResult>& results,
                          const std::vector<Rank>& failed) {
  std::set<Rank> lost(failed.begin(), failed.end());
  std::size_t rounds = 0;
  bool verified = !results.empty();
  for (const auto& [rank, result] : results) {
    rounds = std::max(rounds, result.rounds.size());
    lost.insert(result.failed_ranks.begin(), result.failed_ranks.end());
    for (const auto& r : result.rounds) verified = verified && r.verified;
  }
  ordered_json list = ordered_json::array();
  std::vector<double> ms;
  for (std::size_t i = 0; i < rounds; ++i) {
    list.push_back(round_document(workers, i, results));
    ms.push_back(list.back()["ms"].get<double>());
    // Nothing was merged wrongly where nobody heard anybody, but that is no success either.
    const bool alone = workers == 1 || !lost.empty();
    verified = verified && (alone || list.back()["receivers_total"].get<std::uint64_t>() > 0);
  }
  const RankResult first = results.empty() ? RankResult{} : results.begin()->second;
  return {{"schema", 1},
          {"workers", workers},
          {"transport", first.transport},
          {"policy", first.policy},
          {"params_bytes", first.params_bytes},
          {"verified", verified},
          {"failed_ranks", std::vector<Rank>(lost.begin(), lost.end())},
          {"rounds", list},
          {"summary", summary(results, ms)}};
}

std::string job_table(const ordered_json& document) {
  std::string out;
  char line[240];
  const auto& rounds = document["rounds"];
  const std::size_t step = (rounds.size() + 19) / 20;
  std::snprintf(line, sizeof line, "%7s %10s %14s %10s %14s %9s %7s %8s\n", "round", "ms",
                "planned Mbit/s", "receivers", "first MB/rank", "repaired", "read", "foreign");
  out += line;
  for (std::size_t i = 0; i < rounds.size(); i += step) {
    const auto& r = rounds[i];
    std::uint64_t first = 0, foreign = 0;
    for (const auto& b : r["tx_first_bytes"]) first = std::max(first, b.get<std::uint64_t>());
    for (const auto& f : r["foreign_frames"]) foreign += f.get<std::uint64_t>();
    std::snprintf(line, sizeof line, "%7zu %10.2f %14.1f %10llu %14.3f %9llu %7llu %8llu\n", i,
                  r["ms"].get<double>(), r["rate_kbps"].get<double>() / 1000.0,
                  static_cast<unsigned long long>(r["receivers_total"].get<std::uint64_t>()),
                  static_cast<double>(first) / 1e6,
                  static_cast<unsigned long long>(r["repaired_frames"].get<std::uint64_t>()),
                  static_cast<unsigned long long>(r["read_frames"].get<std::uint64_t>()),
                  static_cast<unsigned long long>(foreign));
    out += line;
  }
  const auto& s = document["summary"];
  std::snprintf(line, sizeof line,
                "round ms: median %.2f, min %.2f, p99 %.2f, max %.2f; goodput %.1f Mbit/s per "
                "receiver; %.2f CPU s per GB\n",
                s["round_ms"]["median"].get<double>(), s["round_ms"]["min"].get<double>(),
                s["round_ms"]["p99"].get<double>(), s["round_ms"]["max"].get<double>(),
                s["goodput_kbps_per_receiver"].get<double>() / 1000.0,
                s["cpu_s_per_gb"].get<double>());
  out += line;
  std::snprintf(line, sizeof line,
                "k = %u (worst pair age %u, mean %.2f) at %.0f %% of the rate without k, "
                "sender-rounds below p %u, group table %u, joins for this epoch %u, "
                "per round at most %u\n",
                s["k"].get<unsigned>(), s["pair_age"]["worst"].get<unsigned>(),
                s["pair_age"]["mean"].get<double>(), 100 * s["k_rate_share"].get<double>(),
                s["senders_below_p"].get<unsigned>(), s["group_entries_max"].get<unsigned>(),
                s["joins"].get<unsigned>(), s["joins_per_round_max"].get<unsigned>());
  out += line;
  out += document["verified"].get<bool>()
             ? "verified: every merged byte matches its sender's digest\n"
             : "NOT verified\n";
  return out;
}

}  // namespace selmcast
