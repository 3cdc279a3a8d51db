#include "cli/sim_own.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/rank_result.h"
#include "cli/run_rank.h"
#include "plan/axes/policy.h"
#include "plan/compile.h"
#include "plan/schedule.h"
#include "plan/select/pair_age.h"
#include "plan/select/ring_plan.h"
#include "plan/select/selection.h"

namespace selmcast {
namespace {

using Document = nlohmann::ordered_json;

/// What the rounds of a plan have in common, and each of them.
struct FlowPlan {
  std::vector<double> rates_kbps;
  std::vector<std::uint64_t> receivers;
  std::uint32_t k = 0, below_p = 0;
  std::optional<PairAge> age;
};

/// The flows are those of a job's first view.
constexpr std::uint32_t kFirstEpoch = 1;

/// What repeats after `cycle` rounds, for `rounds` of them.
template <class T>
std::vector<T> repeated(const std::vector<T>& cycle, std::uint32_t rounds) {
  std::vector<T> out(rounds);
  for (std::uint32_t t = 0; t < rounds; ++t) out[t] = cycle[t % cycle.size()];
  return out;
}

/// A schedule as a rank would compile it, pair by pair.
FlowPlan listed_flows(const Schedule& schedule, std::uint32_t rounds) {
  FlowPlan out;
  std::vector<double> rates;
  std::vector<std::uint64_t> totals;
  for (std::size_t t = 0; t < schedule.cycle.size(); ++t) {
    std::uint64_t total = 0;
    for (const auto& list : schedule.cycle[t]) {
      total += list.size();
      out.below_p += list.size() < schedule.p ? 1 : 0;
    }
    totals.push_back(total);
    rates.push_back(value_of(schedule.rates[t]));
  }
  out.k = schedule.period;
  out.rates_kbps = repeated(rates, rounds);
  out.receivers = repeated(totals, rounds);
  out.age = pair_age_of(schedule.cycle);
  return out;
}

/// Row groups: the ring plan, listed only where there is room for all its pairs.
Result<FlowPlan> ring_flows(const Policy& policy, const LinkTable& links, std::uint32_t rounds) {
  const auto n = static_cast<std::uint32_t>(links.tx_kbps.size());
  const auto ring = RingPlan::make(policy.select.p, links.tx_kbps, links.rx_kbps,
                                   policy.resolved_k(n), fanout_of(policy));
  if (!ring) return ring.error();
  FlowPlan out;
  out.k = ring->period();
  const bool listed = ring->may_list();
  if (listed) out.age = ring->pair_age();
  std::vector<std::uint64_t> totals;
  const auto looked_at = listed ? ring->period() : std::min(rounds, ring->period());
  for (std::uint32_t t = 0; t < looked_at; ++t) {
    std::uint64_t total = 0;
    for (const auto& list : ring->edges_of(t)) {
      total += list.size();
      out.below_p += list.size() < policy.select.p ? 1 : 0;
    }
    totals.push_back(total);
  }
  out.rates_kbps.assign(rounds, value_of(ring->rate()));
  out.receivers = repeated(totals, rounds);
  return out;
}

Result<FlowPlan> random_flows(const Policy& policy, const LinkTable& links, std::uint32_t rounds,
                              std::uint64_t seed) {
  const auto n = static_cast<std::uint32_t>(links.tx_kbps.size());
  const bool listed = std::uint64_t{kRandomCycle} * n * policy.select.p <= kMostListedPairs;
  SelectionProblem problem;
  problem.p.assign(n, policy.select.p);
  problem.fanout = fanout_of(policy);
  problem.tx_kbps = links.tx_kbps;
  problem.rx_kbps = links.rx_kbps;
  FlowPlan out;
  std::vector<std::vector<std::vector<Rank>>> cycle;
  const auto drawn = listed ? kRandomCycle : std::min(rounds, kRandomCycle);
  for (std::uint32_t t = 0; t < drawn; ++t) {
    problem.seed = random_round_seed(seed, kFirstEpoch, t);
    auto selection = select_random(problem);
    if (!selection) return selection.error();
    out.rates_kbps.push_back(value_of(selection->rate));
    out.receivers.push_back(selection->total_receivers());
    if (listed) cycle.push_back(std::move(selection->receivers));
  }
  for (std::uint32_t t = drawn; t < rounds; ++t) {
    out.rates_kbps.push_back(out.rates_kbps[t % drawn]);
    out.receivers.push_back(out.receivers[t % drawn]);
  }
  out.rates_kbps.resize(rounds);
  out.receivers.resize(rounds);
  if (listed) out.age = pair_age_of(cycle);
  return out;
}

Result<FlowPlan> flows_of(const Policy& policy, const LinkTable& links, const RunOptions& options) {
  const auto n = static_cast<std::uint32_t>(links.tx_kbps.size());
  if (policy.select.kind == SelectKind::random) {
    return random_flows(policy, links, options.rounds, options.seed);
  }
  View view;
  view.epoch = kFirstEpoch;
  view.seed = options.seed;
  view.members.resize(n);
  std::iota(view.members.begin(), view.members.end(), 0U);
  view.tx_kbps = links.tx_kbps;
  view.rx_kbps = links.rx_kbps;
  if (policy.follows_rows()) return ring_flows(policy, links, options.rounds);
  const auto receivers = policy.has(Trait::partial) ? policy.select.p : n - 1;
  const auto cycle = std::max(1U, policy.resolved_k(n));
  if (std::uint64_t{n} * receivers * cycle > kMostListedPairs) {
    return bad_input("too many pairs to list for " + to_string(policy) +
                     "; use groups=rows, or fewer ranks");
  }
  // The compiler's own checks and messages first.
  if (auto compiled = compile(view, policy, 0); !compiled) return compiled.error();
  const auto schedule = make_schedule(view, policy);
  if (!schedule) return schedule.error();
  return listed_flows(*schedule, options.rounds);
}

Document document_of(const Policy& policy, const FlowPlan& plan, std::uint32_t n,
                     std::uint64_t elements) {
  const auto [slow, fast] = std::minmax_element(plan.rates_kbps.begin(), plan.rates_kbps.end());
  const auto rounds = static_cast<double>(plan.rates_kbps.size());
  double ms = 0.0, receivers = 0.0;
  const auto bits = 8.0 * static_cast<double>(elements * bytes_of(policy.codec.element));
  const auto ms_at = [bits](double kbps) { return bits / kbps; };
  for (const double rate : plan.rates_kbps) ms += ms_at(rate);
  for (const auto total : plan.receivers) receivers += static_cast<double>(total);
  Document out = {
      {"level", "flow"},
      {"workers", n},
      {"policy", to_string(policy)},
      {"params_bytes", elements * sizeof(float)},
      {"rounds", plan.rates_kbps.size()},
      {"round_ms", {{"min", ms_at(*fast)}, {"mean", ms / rounds}, {"max", ms_at(*slow)}}},
      {"rate_kbps", {{"min", *slow}, {"max", *fast}}},
      {"receivers_per_round", receivers / rounds},
      {"receivers_per_sender", receivers / rounds / n},
      {"k", plan.k},
      {"senders_below_p", plan.below_p}};
  if (plan.age) {
    out["pair_age"] = {
        {"worst", plan.age->worst}, {"mean", plan.age->mean}, {"never_served", plan.age->unserved}};
  }
  return out;
}

/// The links of --links, which must be there.
Result<LinkTable> own_links(const RunOptions& options, std::uint32_t most) {
  auto links = load_links(options, 0);
  if (!links) return std::move(links).error();
  if (!*links) return bad_input("sim: --policy needs --links FILE with the rates of the ranks");
  const auto n = (*links)->tx_kbps.size();
  if (n < 2 || n > most) {
    return bad_input(options.links_file + ": tx_kbps has " + std::to_string(n) +
                     " entries; allowed here: 2 to " + std::to_string(most));
  }
  return std::move(**links);
}

}  // namespace

namespace {

Result<Document> flows_document(const RunOptions& options, const LinkTable& links) {
  const Policy& policy = options.policy;
  if (auto ok = check_simulated(policy); !ok) return ok.error();
  if (policy.has(Trait::online)) {
    return bad_input(
        "--policy: sim shows a plan made in advance, and pace=ssp:s,eta selects as rounds begin; "
        "use `selmcast run --transport sim`, or sim --experiment ssp for the papers' figures");
  }
  const auto elements = parameter_count(options);
  if (!elements) return elements.error();
  constexpr std::uint32_t kRoundsMax = 1'000'000;
  if (options.rounds == 0 || options.rounds > kRoundsMax) {
    return bad_input("--rounds: " + std::to_string(options.rounds) + " is not within 1.." +
                     std::to_string(kRoundsMax) + " at flow level");
  }
  const auto plan = flows_of(policy, links, options);
  if (!plan) return bad_input(options.links_file + ": " + plan.error().message);
  return document_of(policy, *plan, static_cast<std::uint32_t>(links.tx_kbps.size()), *elements);
}

}  // namespace

Result<Document> simulate_flows(RunOptions options) {
  const auto links = own_links(options, kSimFlowMax);
  if (!links) return links.error();
  const auto n = static_cast<std::uint32_t>(links->tx_kbps.size());
  if (auto ok = read_policy(options, n); !ok) return ok.error();
  return flows_document(options, *links);
}

Result<Document> simulate_engine(RunOptions options) {
  const auto links = own_links(options, kSimEngineMax);
  if (!links) return links.error();
  const auto n = static_cast<std::uint32_t>(links->tx_kbps.size());
  if (auto ok = read_policy(options, n); !ok) return ok.error();
  if (auto ok = check_run_options(options, n, n); !ok) return ok.error();
  auto flow = flows_document(options, *links);
  if (!flow) return flow;
  const auto results = run_simulated(options, n);
  if (!results) return results.error();
  Document out = job_document(n, *results, {});
  out["level"] = "engine";
  out["flow"] = std::move(*flow);
  return out;
}

std::string own_text(const Document& document) {
  const bool engine = document.at("level") == "engine";
  const Document& flow = engine ? document.at("flow") : document;
  std::string out;
  const auto line = [&out](const char* format, auto... values) {
    char text[256];
    std::snprintf(text, sizeof text, format, values...);
    out += text;
  };
  const auto number = [&flow](const char* group, const char* key) {
    return flow.at(group).at(key).get<double>();
  };
  out += "policy       " + flow.at("policy").get<std::string>() + "\n";
  line("workers      %u, %llu bytes each, %u rounds\n", flow.at("workers").get<unsigned>(),
       flow.at("params_bytes").get<unsigned long long>(), flow.at("rounds").get<unsigned>());
  line("rate         %.0f to %.0f kbit/s\n", number("rate_kbps", "min"),
       number("rate_kbps", "max"));
  line("round        %.3f ms (%.3f to %.3f) at that rate\n", number("round_ms", "mean"),
       number("round_ms", "min"), number("round_ms", "max"));
  if (engine) {
    const auto& ms = document.at("summary").at("round_ms");
    line("engine       %.3f ms median (%.3f to %.3f) in virtual time, verified: %s\n",
         ms.at("median").get<double>(), ms.at("min").get<double>(), ms.at("max").get<double>(),
         document.at("verified").get<bool>() ? "yes" : "no");
  }
  line("receivers    %.2f per sender, %u sender-rounds below p\n",
       flow.at("receivers_per_sender").get<double>(), flow.at("senders_below_p").get<unsigned>());
  if (flow.at("k").get<unsigned>() > 0) {
    line("k            every pair once in %u rounds\n", flow.at("k").get<unsigned>());
  }
  if (flow.contains("pair_age")) {
    line("pair age     worst %u, mean %.2f rounds; %u pairs are never served\n",
         flow.at("pair_age").at("worst").get<unsigned>(), number("pair_age", "mean"),
         flow.at("pair_age").at("never_served").get<unsigned>());
  }
  return out;
}

}  // namespace selmcast
