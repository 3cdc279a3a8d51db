#include "cli/rank_result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace selmcast {

using nlohmann::ordered_json;

namespace {

/// How a job's value is made of its ranks' values.
enum class Over : std::uint8_t { nothing, any, most, least, sum, each };

/// To be read or to be written.
template <class T, class Of>
concept Either = std::is_same_v<std::remove_const_t<T>, Of>;

/// Every field of a round's report: what reads or writes reports goes through them here.
template <Either<RoundReport> Report, class Field>
void for_fields(Report& r, Field field) {
  field("round", r.round, Over::any);
  field("epoch", r.epoch, Over::any);
  field("ms", r.ms, Over::most);
  field("rate_kbps", r.rate_kbps, Over::least);
  field("receivers", r.receivers, Over::each);
  field("given_up", r.given_up, Over::each);
  field("tx_first_bytes", r.tx_first_bytes, Over::each);
  field("tx_repair_bytes", r.tx_repair_bytes, Over::each);
  field("tx_patch_bytes", r.tx_patch_bytes, Over::each);
  field("tx_bytes", r.tx_bytes, Over::each);
  field("foreign_frames", r.foreign_frames, Over::each);
  field("transition_frames", r.transition_frames, Over::each);
  field("rx_payload_bytes", r.rx_payload_bytes, Over::each);
  field("repaired_frames", r.repaired_frames, Over::sum);
  field("read_frames", r.read_frames, Over::sum);
  field("membership_changes", r.membership_changes, Over::sum);
  field("verified", r.verified, Over::nothing);
}

/// The same of the plan, by their places in the summary.
template <Either<PlanReport> Plan, class Field>
void for_fields(Plan& p, Field field) {
  field("members", p.members);
  field("k", p.k);
  field("pair_age/worst", p.pair_age_worst);
  field("pair_age/mean", p.pair_age_mean);
  field("senders_below_p", p.senders_below_p);
  field("group_entries_max", p.group_entries_max);
  field("k_rate_share", p.k_rate_share);
  field("joins", p.joins);
  field("member_joins_max", p.member_joins_max);
  field("joins_per_round_max", p.joins_per_round_max);
  field("epochs", p.epoch);
}

ordered_json::json_pointer place(const char* name) {
  return ordered_json::json_pointer(std::string("/") + name);
}

template <class Report>
ordered_json to_json(const Report& report) {
  ordered_json out;
  for_fields(report,
             [&](const char* name, const auto& value, auto...) { out[place(name)] = value; });
  return out;
}

template <class Report>
Report from_json(const ordered_json& document) {
  Report out;
  for_fields(
      out, [&](const char* name, auto& value, auto...) { document.at(place(name)).get_to(value); });
  return out;
}

/// Nearest-rank quantile of sorted values.
double quantile(const std::vector<double>& sorted, double q) {
  const auto index = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1];
}

/// Puts a rank's value of a field into the job's; `out` is what other ranks have said, or null.
template <class Value>
void merge(ordered_json& out, const Value& value, Over over, Rank rank, std::uint32_t workers) {
  if (over == Over::nothing) return;
  if (over == Over::each) {
    if (out.is_null()) out = std::vector<Value>(workers);
    out[rank] = value;
    return;
  }
  if constexpr (std::is_arithmetic_v<Value>) {
    const auto so_far = out.is_null() ? Value{} : out.get<Value>();
    const bool takes = over == Over::any || (over == Over::most && so_far < value) ||
                       (over == Over::least && (so_far == Value{} || value < so_far));
    out = over == Over::sum ? static_cast<Value>(so_far + value) : takes ? value : so_far;
  }
}

ordered_json round_document(std::uint32_t workers, std::size_t index,
                            const std::map<Rank, RankResult>& results) {
  ordered_json out;
  std::uint64_t total = 0;
  for (const auto& [rank, result] : results) {
    if (index >= result.rounds.size()) continue;
    const RoundReport& report = result.rounds[index];
    total += report.receivers.size();
    for_fields(report, [&, of = rank](const char* name, const auto& value, Over over) {
      if (over != Over::nothing) merge(out[name], value, over, of, workers);
    });
  }
  out["round"] = index;
  out["receivers_total"] = total;
  return out;
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
  ordered_json out = {
      {"round_ms",
       {{"min", sorted.empty() ? 0.0 : sorted.front()},
        {"median", sorted.empty() ? 0.0 : quantile(sorted, 0.5)},
        {"p99", sorted.empty() ? 0.0 : quantile(sorted, 0.99)},
        {"max", sorted.empty() ? 0.0 : sorted.back()}}},
      {"goodput_kbps_per_receiver",
       seconds > 0 ? static_cast<Kbps>(static_cast<double>(payload) * 8 / 1000 / seconds / ranks)
                   : 0},
      {"cpu_s_per_gb", payload > 0 ? cpu / (static_cast<double>(payload) / 1e9) : 0.0}};
  const PlanReport plan = results.empty() ? PlanReport{} : results.begin()->second.plan;
  out.update(to_json(plan));
  return out;
}

}  // namespace

Bytes serialize(const RankResult& result) {
  ordered_json rounds = ordered_json::array();
  for (const auto& r : result.rounds) rounds.push_back(to_json(r));
  const ordered_json document = {{"transport", result.transport},
                                 {"policy", result.policy},
                                 {"params_bytes", result.params_bytes},
                                 {"cpu_s", result.cpu_s},
                                 {"rounds", rounds},
                                 {"plan", to_json(result.plan)},
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
    for (const auto& r : j.at("rounds")) out.rounds.push_back(from_json<RoundReport>(r));
    out.plan = from_json<PlanReport>(j.at("plan"));
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

std::string why_unverified(const ordered_json& document) {
  for (const auto& round : document["rounds"]) {
    if (round["receivers_total"].get<std::uint64_t>() > 0) continue;
    return "round " + std::to_string(round["round"].get<std::uint64_t>()) +
           ": no rank's parameters reached another one in full within the timeout, at a planned "
           "rate of " +
           std::to_string(round["rate_kbps"].get<Kbps>()) +
           " kbit/s; check the links (selmcast probe, --links) or raise --timeout";
  }
  return "the merged parameters could not be verified: they differ from what their senders' "
         "digests say";
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
