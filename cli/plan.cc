#include "cli/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "cli/common.h"
#include "plan/select/rate.h"
#include "plan/select/ring_plan.h"
#include "plan/select/selection.h"

namespace selmcast {
namespace {

using Json = nlohmann::json;
using Out = nlohmann::ordered_json;

constexpr std::size_t kMaxRanks = 10'000;  // All pairs are listed: n^2 entries.
constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30U;
constexpr std::uint64_t kMax32 = std::numeric_limits<std::uint32_t>::max();

enum class Algorithm { exact, published, random };
enum class Layout { edges, rows };
constexpr const char* kLayouts[] = {"edges", "rows"};

struct PlanRequest {
  SelectionProblem problem;
  Algorithm algorithm = Algorithm::exact;
  Layout layout = Layout::edges;
  std::uint64_t round = 0;
};

/// Integers of a field, or where and why not.
class Reader {
 public:
  explicit Reader(const Json& document) : document_(document) {}

  const Json* find(const char* field) const {
    const auto at = document_.find(field);
    return at == document_.end() ? nullptr : &*at;
  }
  static Error wrong(const std::string& where, const Json& value, const std::string& allowed) {
    constexpr std::size_t kShown = 40;
    auto shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
    return bad_input("plan: " + where + " is " + shown + "; allowed: " + allowed);
  }
  static Result<std::uint64_t> integer(const std::string& where, const Json& value,
                                       std::uint64_t max) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() <= max) {
      return value.get<std::uint64_t>();
    }
    return wrong(where, value, "an integer from 0 to " + std::to_string(max));
  }
  /// n integers up to `max`; n = 0 takes any number of them.
  static Result<std::vector<std::uint64_t>> integers(const std::string& where, const Json& value,
                                                     std::size_t n, std::uint64_t max) {
    if (!value.is_array()) return wrong(where, value, "an array of integers");
    if (n > 0 && value.size() != n) {
      return bad_input("plan: " + where + " has " + std::to_string(value.size()) +
                       " entries; allowed: " + std::to_string(n) + ", one per rank");
    }
    std::vector<std::uint64_t> out;
    for (const auto& entry : value) {
      const auto number = integer(where + "[" + std::to_string(out.size()) + "]", entry, max);
      if (!number) return number.error();
      out.push_back(*number);
    }
    return out;
  }
  Result<std::uint64_t> optional_integer(const char* field, std::uint64_t otherwise,
                                         std::uint64_t max) const {
    const auto* value = find(field);
    return value == nullptr ? Result<std::uint64_t>(otherwise) : integer(field, *value, max);
  }
  /// The index of the field's word in `words`, 0 when the field is absent.
  Result<std::size_t> word(const char* field, const std::vector<std::string>& words) const {
    const auto* value = find(field);
    if (value == nullptr) return std::size_t{0};
    std::string allowed;
    for (std::size_t w = 0; w < words.size(); ++w) {
      if (value->is_string() && value->get_ref<const std::string&>() == words[w]) return w;
      allowed.append(w == 0 ? "" : ", ").append(words[w]);
    }
    return wrong(field, *value, allowed);
  }

 private:
  const Json& document_;
};

/// The document, an object with known fields only, each once.
Result<Json> parse_document(std::string_view text) {
  static const std::set<std::string> known = {
      "p",      "fanout",    "tx_kbps",   "rx_kbps", "tx_load_kbps", "rx_load_kbps", "age",
      "forced", "forbidden", "algorithm", "k",       "layout",       "seed",         "round"};
  std::set<std::string> seen;
  std::string twice;
  constexpr int kDeepest = 4;  // No field goes beyond an array in an array in the object.
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) {
      too_deep = true;
      return false;
    }
    if (depth == 1 && event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  try {
    auto document = Json::parse(text.begin(), text.end(), watch);
    if (too_deep) {
      return bad_input("plan: values are nested deeper than " + std::to_string(kDeepest) +
                       "; allowed: arrays in arrays");
    }
    if (!document.is_object()) {
      return Reader::wrong("the document", document, "an object with p, tx_kbps and rx_kbps");
    }
    for (const auto& [key, value] : document.items()) {
      if (known.count(key) > 0) continue;
      return Reader::wrong("unknown field " + Json(key).dump(), value,
                           "p, fanout, tx_kbps, rx_kbps, tx_load_kbps, rx_load_kbps, age, forced, "
                           "forbidden, algorithm, k, layout, seed, round");
    }
    if (!twice.empty()) return bad_input("plan: field \"" + twice + "\" is given twice; keep one");
    return document;
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();
    const auto text_at = what.find("] ");
    return bad_input("plan: not a JSON document: " +
                     std::string(what.substr(text_at == what.npos ? 0 : text_at + 2)));
  }
}

/// Rates less the load already on them.
Result<std::vector<Kbps>> read_rates(const Reader& in, const char* field, const char* load_field,
                                     std::size_t n) {
  const auto* value = in.find(field);
  if (value == nullptr) {
    return bad_input(std::string("plan: field ") + field + " is missing; give one rate per rank");
  }
  auto rates = Reader::integers(field, *value, n, kRateLimit - 1);
  if (!rates) return rates;
  if (const auto* load = in.find(load_field); load != nullptr) {
    const auto loads = Reader::integers(load_field, *load, rates->size(), kRateLimit - 1);
    if (!loads) return loads.error();
    for (std::size_t r = 0; r < rates->size(); ++r) {
      (*rates)[r] -= std::min((*rates)[r], (*loads)[r]);
    }
  }
  return rates;
}

Result<std::vector<std::uint32_t>> read_p(const Reader& in, std::size_t n) {
  const auto* value = in.find("p");
  if (value == nullptr) {
    return bad_input("plan: field p is missing; give the least number of receivers");
  }
  if (!value->is_array()) {
    const auto p = Reader::integer("p", *value, kMax32);
    if (!p) return p.error();
    return std::vector<std::uint32_t>(n, static_cast<std::uint32_t>(*p));
  }
  const auto list = Reader::integers("p", *value, n, kMax32);
  if (!list) return list.error();
  std::vector<std::uint32_t> out;
  for (const auto p : *list) out.push_back(static_cast<std::uint32_t>(p));
  return out;
}

Result<void> read_pair_list(const Reader& in, const char* field,
                            std::vector<std::pair<Rank, Rank>>& out) {
  const auto* pairs = in.find(field);
  if (pairs == nullptr) return {};
  if (!pairs->is_array()) return Reader::wrong(field, *pairs, "an array of pairs");
  for (const auto& entry : *pairs) {
    const auto where = field + ("[" + std::to_string(out.size()) + "]");
    const auto pair = Reader::integers(where, entry, 0, kMax32);
    if (!pair) return pair.error();
    if (pair->size() != 2) return Reader::wrong(where, entry, "a pair [sender, receiver]");
    out.emplace_back(static_cast<Rank>((*pair)[0]), static_cast<Rank>((*pair)[1]));
  }
  return {};
}

Result<void> read_pairs(const Reader& in, SelectionProblem& problem) {
  const auto n = problem.p.size();
  if (const auto* age = in.find("age"); age != nullptr) {
    if (!age->is_array() || age->size() != n) {
      return Reader::wrong("age", *age, std::to_string(n) + " arrays, one per sender");
    }
    for (const auto& row : *age) {
      const auto where = "age[" + std::to_string(problem.age.size()) + "]";
      const auto ages = Reader::integers(where, row, n, kMax32);
      if (!ages) return ages.error();
      auto& out = problem.age.emplace_back();
      for (const auto a : *ages) out.push_back(static_cast<std::uint32_t>(a));
    }
  }
  if (auto forced = read_pair_list(in, "forced", problem.forced); !forced) return forced;
  return read_pair_list(in, "forbidden", problem.forbidden);
}

Result<void> read_choices(const Reader& in, PlanRequest& request) {
  const auto fanout = in.word("fanout", {"multicast", "unicast"});
  if (!fanout) return fanout.error();
  request.problem.fanout = *fanout == 0 ? Fanout::multicast : Fanout::unicast;
  const auto algorithm = in.word("algorithm", {"exact", "published", "random"});
  if (!algorithm) return algorithm.error();
  request.algorithm = static_cast<Algorithm>(*algorithm);
  const auto layout = in.word("layout", {std::begin(kLayouts), std::end(kLayouts)});
  if (!layout) return layout.error();
  request.layout = static_cast<Layout>(*layout);
  const auto k = in.optional_integer("k", 0, kMax32);
  if (!k) return k.error();
  request.problem.k = static_cast<std::uint32_t>(*k);
  const auto seed = in.optional_integer("seed", 1, std::numeric_limits<std::uint64_t>::max());
  if (!seed) return seed.error();
  request.problem.seed = *seed;
  const auto round = in.optional_integer("round", 0, kRateLimit - 1);
  if (!round) return round.error();
  request.round = *round;
  return {};
}

/// Fields that the chosen algorithm or layout would silently ignore.
Result<void> check_combination(const Reader& in, const PlanRequest& request) {
  const auto& problem = request.problem;
  if (problem.k > 0 && request.algorithm != Algorithm::exact) {
    return bad_input("plan: k needs algorithm \"exact\"; drop k or change the algorithm");
  }
  if (request.layout == Layout::edges) {
    if (in.find("round") == nullptr) return {};
    return bad_input("plan: round needs layout \"rows\"; drop round or change the layout");
  }
  const auto layout =
      std::string("plan: layout \"") + kLayouts[static_cast<std::size_t>(request.layout)] + "\" ";
  if (request.algorithm != Algorithm::exact) {
    return bad_input(layout + "needs algorithm \"exact\"; use layout \"edges\"");
  }
  if (!problem.forced.empty() || !problem.forbidden.empty() || !problem.age.empty()) {
    return bad_input(
        layout + "has a fixed schedule; drop age, forced and forbidden or use layout \"edges\"");
  }
  if (std::adjacent_find(problem.p.begin(), problem.p.end(), std::not_equal_to<>()) !=
      problem.p.end()) {
    return bad_input(layout + "needs the same p for all; use layout \"edges\"");
  }
  return {};
}

Result<PlanRequest> read_request(std::string_view text) {
  const auto document = parse_document(text);
  if (!document) return document.error();
  const Reader in(*document);
  PlanRequest request;
  auto& problem = request.problem;
  auto tx = read_rates(in, "tx_kbps", "tx_load_kbps", 0);
  if (!tx) return tx.error();
  problem.tx_kbps = std::move(*tx);
  const auto n = problem.tx_kbps.size();
  if (n < 2 || n > kMaxRanks) {
    return bad_input("plan: tx_kbps has " + std::to_string(n) + " entries; allowed: 2 to " +
                     std::to_string(kMaxRanks) + " ranks");
  }
  auto rx = read_rates(in, "rx_kbps", "rx_load_kbps", n);
  if (!rx) return rx.error();
  problem.rx_kbps = std::move(*rx);
  auto p = read_p(in, n);
  if (!p) return p.error();
  problem.p = std::move(*p);
  if (auto read = read_pairs(in, problem); !read) return read.error();
  if (auto read = read_choices(in, request); !read) return read.error();
  if (auto sound = check_combination(in, request); !sound) return sound.error();
  return request;
}

struct PlanAnswer {
  Selection selection;
  std::uint32_t k_bound = 0, below_p = 0;
  std::optional<RingPlan> ring;  ///< Of layout "rows".
};

/// Rounds in which the slowest receiver could hear everyone at this rate; 0 = never.
std::uint32_t bound_of(const SelectionProblem& problem, const RateFraction& rate) {
  const auto others = static_cast<std::uint32_t>(problem.p.size()) - 1;
  auto least = others;
  for (const auto d : problem.rx_kbps) {
    if (d > 0) least = std::min(least, slots_at(d, rate, others));
  }
  return least == 0 ? 0 : (others + least - 1) / least;
}

/// One round of a ring plan.
void take_round(const RingPlan& ring, const PlanRequest& request, PlanAnswer& out) {
  out.selection.rate = ring.rate();
  out.selection.bottleneck = ring.bottleneck();
  out.selection.receivers = ring.edges_of(request.round);
  out.k_bound = ring.period();
  for (const auto& receivers : out.selection.receivers) {
    out.below_p += receivers.size() < request.problem.p[0] ? 1 : 0;
  }
}

Result<PlanAnswer> solve(const PlanRequest& request) {
  const auto& problem = request.problem;
  PlanAnswer out;
  if (request.layout == Layout::rows) {
    auto plan =
        RingPlan::make(problem.p[0], problem.tx_kbps, problem.rx_kbps, problem.k, problem.fanout);
    if (!plan) return plan.error();
    take_round(*plan, request, out);
    out.ring = std::move(*plan);
    return out;
  }
  auto selection = request.algorithm == Algorithm::exact       ? select_exact(problem)
                   : request.algorithm == Algorithm::published ? select_published(problem)
                                                               : select_random(problem);
  if (!selection) return selection.error();
  out.selection = std::move(*selection);
  out.k_bound = bound_of(problem, out.selection.rate);
  return out;
}

Out fraction_json(const RateFraction& rate) {
  return {{"num", rate.num}, {"den", rate.den}, {"value", value_of(rate)}};
}

/// What a schedule of rows means over its whole period.
Out schedule_json(const RingPlan& ring) {
  const auto slots = ring.slots();
  const auto joins = std::accumulate(slots.begin(), slots.end(), std::uint64_t{0});
  Out out = {{"k", ring.period()},
             {"group_entries_max", *std::max_element(slots.begin(), slots.end())},
             {"joins_per_epoch", joins},
             {"rate_without_k_kbps", fraction_json(ring.rate_without_bound())}};
  // Walks all pairs, so not where they would fill the memory.
  if (!ring.may_list()) return out;
  const auto age = ring.pair_age();
  out["pair_age"] = {{"worst", age.worst}, {"mean", age.mean}};
  out["pairs_never_served"] = age.unserved;
  out["senders_below_p"] = ring.senders_below_p();
  return out;
}

std::string write_answer(const PlanRequest& request, const PlanAnswer& answer, double elapsed_us) {
  constexpr const char* kAlgorithms[] = {"exact", "published", "random"};
  const auto& selection = answer.selection;
  Out out;
  out["schema"] = 1;
  out["algorithm"] = kAlgorithms[static_cast<std::size_t>(request.algorithm)];
  out["layout"] = kLayouts[static_cast<std::size_t>(request.layout)];
  out["rate_kbps"] = fraction_json(selection.rate);
  out["receivers"] = selection.receivers;
  out["total_receivers"] = selection.total_receivers();
  out["out_degree_min"] = selection.out_degree_min();
  out["bottleneck"] = {{"kind", selection.bottleneck.is_sender ? "sender" : "receiver"},
                       {"rank", selection.bottleneck.rank},
                       {"slots", selection.bottleneck.slots}};
  out["k_bound"] = answer.k_bound;
  out["senders_below_p"] = answer.below_p;
  if (answer.ring) out["schedule"] = schedule_json(*answer.ring);
  out["elapsed_us"] = std::round(elapsed_us * 10) / 10;
  return out.dump();
}

/// The whole of a file, or of standard input for "-".
Result<std::string> read_input(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) {
      return bad_input("plan: cannot open " + path + ": " + std::generic_category().message(errno) +
                       "; give a readable JSON file");
    }
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text;
  char block[1U << 16U];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxInputBytes) return bad_input("plan: the input is larger than 1 GiB");
  }
  if (in.bad()) return bad_input("plan: cannot read " + path + "; give a readable JSON file");
  return text;
}

int run_plan(const std::string& path) {
  const auto text = read_input(path);
  if (!text) return print_error(text.error());
  const auto answer = plan_json(*text);
  if (!answer) return print_error(answer.error());
  std::cout << *answer << std::endl;
  if (std::cout) return 0;
  return print_error(failed("plan: cannot write the answer to standard output"));
}

}  // namespace

Result<std::string> plan_json(std::string_view text) {
  const auto request = read_request(text);
  if (!request) return request.error();
  const auto start = std::chrono::steady_clock::now();
  const auto answer = solve(*request);
  const std::chrono::duration<double, std::micro> elapsed =
      std::chrono::steady_clock::now() - start;
  if (!answer) return bad_input("plan: " + answer.error().message);
  return write_answer(*request, *answer, elapsed.count());
}

void add_plan_command(CLI::App& app, int& exit_status) {
  auto* command = app.add_subcommand(
      "plan", "Solve one selection problem: who sends to whom, and at which common rate");
  auto path = std::make_shared<std::string>("-");
  command->add_option("file", *path, "JSON file with the problem; standard input when absent")
      ->type_name("FILE");
  command->footer(
      "The problem (only p, tx_kbps and rx_kbps are required):\n"
      "  p              fewest receivers of each sender: one integer, or one for each rank\n"
      "  tx_kbps, rx_kbps            rate of each rank, kbit/s; tx_load_kbps, rx_load_kbps are\n"
      "                 subtracted from them\n"
      "  fanout         multicast (a sender sends once) or unicast (once to each receiver)\n"
      "  algorithm      exact, published (the papers' heuristic) or random (with seed)\n"
      "  age            age[i][j] = rounds since i reached j\n"
      "  forced, forbidden           [[sender, receiver], ..]: pairs that must or must not be "
      "used\n"
      "  k              every receiver can hear everyone within k rounds; 0 means no such bound\n"
      "  layout, round  edges, or rows: round t of the ring plan (senders_below_p is that "
      "round's;\n"
      "                 schedule says what k costs, how long pairs wait, and what is joined)\n"
      "Example:\n"
      "  echo '{\"p\":1,\"tx_kbps\":[900,900,900],\"rx_kbps\":[400,300,200]}' | selmcast plan");
  command->callback([path, &exit_status] { exit_status = run_plan(*path); });
}

}  // namespace selmcast
