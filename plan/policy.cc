#include "plan/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "plan/policy_arguments.h"
#include "plan/policy_coherence.h"

namespace selmcast {
namespace {

constexpr std::array<std::string_view, kAxes> kAxisNames = {"share", "select", "route", "pace",
                                                            "mix",   "codec",  "order", "groups"};

/// A value of an axis; `form` is the value with its argument, e.g. "random:p".
struct Value {
  Axis axis;
  std::string_view form;
  std::string_view meaning;  ///< Empty: a value of a later version.
  bool is_default = false;

  std::string_view name() const noexcept { return form.substr(0, form.find_first_of(":[")); }
  bool later() const noexcept { return meaning.empty(); }
};

constexpr Value kValues[] = {
    {Axis::share, "even", "every worker gets the same share of the samples", true},
    {Axis::share, "rate", ""},
    {Axis::share, "cluster", ""},
    {Axis::share, "redundant", ""},
    {Axis::share, "search", ""},
    {Axis::select, "all", "everyone sends to everyone", true},
    {Axis::select, "selmcast:p[,k]",
     "at least p receivers each at the best common rate, every pair once in k rounds (as many as "
     "there are workers; 0: no bound)"},
    {Axis::select, "random:p", "exactly p receivers each, uniformly at random"},
    {Axis::select, "neighbours", ""},
    {Axis::select, "groups", ""},
    {Axis::select, "delegates", ""},
    {Axis::route, "star", "one multicast per sender where the transport has it", true},
    {Axis::route, "unicast", "one copy per receiver"},
    {Axis::route, "ps:servers",
     "so many of the ranks gather a share of the parameters each and hand the mean out"},
    {Axis::route, "ring", ""},
    {Axis::route, "hier", ""},
    {Axis::route, "forest", ""},
    {Axis::pace, "bsp", "a round ends when all its deliveries have ended", true},
    {Axis::pace, "ssp:s[,eta]",
     "rounds in every worker's own time; none begins a step more than s beyond the slowest; with "
     "eta receivers are selected as each multicast starts, and taken out while more than eta is "
     "left"},
    {Axis::pace, "async",
     "rounds in every worker's own time; nobody waits for anybody before the end"},
    {Axis::pace, "overlap[:K]",
     "a round is always under way; a worker steps on meanwhile, at most K = 20 steps"},
    {Axis::pace, "periodic:H", "a round after every H steps"},
    {Axis::pace, "stages[:s]",
     "the share s that matters most behind a barrier, the rest during the next step; s adapts"},
    {Axis::mix, "average", "gossip mean: own and received parameters weigh the same", true},
    {Axis::mix, "sgd", "mean of all workers' gradients (needs select=all)"},
    {Axis::mix, "age[:gamma]",
     "gossip with age credit: a pair earns gamma/n per round (gamma = 0.9) and spends it when one "
     "hears the other; unequal in-degrees bias it less"},
    {Axis::mix, "compensate[:gamma]",
     "mean of all workers' steps; own steps not merged yet count gamma = 1.5 (0: not at all)"},
    {Axis::mix, "lgp", "the worker goes on from its own guess until the mean replaces it"},
    {Axis::mix, "replace", ""},
    {Axis::mix, "stale[:S]",
     "the mean of all merged S = 1 steps late, own parameters weighing 2S (DASO; pace=periodic)"},
    {Axis::codec, "identity", "float32 as it is", true},
    {Axis::codec, "cast:type",
     "bf16 or fp16: half of the bytes; values are rounded on the wire only"},
    {Axis::codec, "split", "blocks by importance, parameter times change (of pace=stages)"},
    {Axis::codec, "slim:alpha,beta[,q]",
     "a share alpha travels: the beta that matter most, chosen every q = 20 rounds, and others in "
     "turn; changes that do not travel yet are kept until they do"},
    {Axis::order, "fifo", "in the order of the parameters", true},
    {Axis::order, "class", "what matters most first (of pace=stages)"},
    {Axis::order, "priority",
     "layers are handed over one by one, and those that are needed first go first (P3)"},
    {Axis::groups, "rows", "one group per row of the ring plan; joined once per epoch", true},
    {Axis::groups, "sender",
     "groups of one sender each (default of select=random); all of a cycle joined once per epoch"},
};

struct Name {
  std::string_view name, expansion;
};
constexpr Name kNames[] = {
    {"bsp", "select=all pace=bsp mix=sgd"},
    {"selmcast", "select=selmcast:2 pace=bsp mix=average groups=rows"},
    {"selmcast-ssp", "select=selmcast:2 pace=ssp:4,0.75 mix=average groups=sender"},
    {"osp", "select=all pace=overlap mix=compensate:0"},
    {"losp", "select=all pace=overlap mix=compensate:1.5"},
    {"p3", "select=all pace=bsp mix=sgd order=priority"},
    {"osp2", "select=all pace=stages mix=lgp codec=split order=class"},
    {"slim", "select=all pace=bsp mix=compensate:1 codec=slim:0.3,0.15"},
    {"orpheus", "select=random:2 pace=bsp mix=average groups=sender"},
    {"gossip", "select=random:1 pace=bsp mix=average groups=sender"},
    {kDefaultPolicy, "select=all pace=bsp mix=average"},
};

/// What may follow `axis=` in this version, e.g. "all, selmcast:p[,k], random:p".
std::string allowed(Axis axis) {
  std::string out;
  for (const auto& value : kValues) {
    if (value.axis != axis || value.later()) continue;
    if (!out.empty()) out += ", ";
    out += value.form;
  }
  return out;
}

std::string names() {
  std::string out;
  for (const auto& name : kNames) (out += out.empty() ? "" : ", ") += name.name;
  return out;
}

std::vector<std::string_view> split(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\v\f";
  std::vector<std::string_view> out;
  for (auto from = text.find_first_not_of(kSpace); from != std::string_view::npos;
       from = text.find_first_not_of(kSpace, from)) {
    const auto to = std::min(text.find_first_of(kSpace, from), text.size());
    out.push_back(text.substr(from, to - from));
    from = to;
  }
  return out;
}

Result<void> add_word(std::string_view word, Words& words) {
  const auto equals = word.find('=');
  const auto axis_name = word.substr(0, equals);
  const auto axis = std::find(kAxisNames.begin(), kAxisNames.end(), axis_name);
  if (axis == kAxisNames.end()) {
    return bad_input("policy: unknown axis in " + quoted(word) +
                     "; axes are share, select, route, pace, mix, codec, order, groups");
  }
  auto& slot = words[static_cast<std::size_t>(axis - kAxisNames.begin())];
  if (slot) {
    return bad_input("policy: " + std::string(axis_name) + " is given twice (" + quoted(*slot) +
                     " and " + quoted(word) + "); keep one");
  }
  slot = word.substr(equals + 1);
  return {};
}

Error unknown_bare_word(std::string_view word) {
  for (const auto& value : kValues) {
    if (value.name() == word) {
      return bad_input("policy: " + quoted(word) + " is a value without its axis; write " +
                       std::string(kAxisNames[static_cast<std::size_t>(value.axis)]) + "=" +
                       std::string(value.form));
    }
  }
  return bad_input("policy: unknown name " + quoted(word) + "; names are " + names() +
                   ", everything else is axis=value");
}

/// One word per axis, and whether a name's expansion holds that of select.
struct Collected {
  Words words;
  bool select_of_name = false;
};

/// Collects one word per axis: a name's words first, those written out over them.
Result<Collected> collect(std::string_view text) {
  Words given, named;
  std::optional<std::string_view> name;
  for (const auto word : split(text)) {
    if (word.find('=') != std::string_view::npos) {
      if (auto added = add_word(word, given); !added) return added.error();
      continue;
    }
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Name& n) { return n.name == word; });
    if (found == std::end(kNames)) return unknown_bare_word(word);
    if (name) {
      return bad_input("policy: two names, " + quoted(*name) + " and " + quoted(word) +
                       "; keep one");
    }
    name = word;
    for (const auto part : split(found->expansion)) {
      if (auto added = add_word(part, named); !added) return added.error();
    }
  }
  Collected out{given, !given[static_cast<std::size_t>(Axis::select)]};
  for (std::size_t a = 0; a < kAxes; ++a) {
    if (!given[a]) out.words[a] = named[a];
  }
  return out;
}

/// The table entry of `axis=text`, or why there is none.
Result<const Value*> find_value(Axis axis, std::string_view text) {
  const auto axis_name = std::string(kAxisNames[static_cast<std::size_t>(axis)]);
  const auto colon = text.find(':');
  const auto base = text.substr(0, colon);
  for (const auto& value : kValues) {
    if (value.axis != axis || value.name() != base) continue;
    if (value.later()) {
      return bad_input("policy: " + axis_name + "=" + std::string(base) +
                       " belongs to a later version; this one has " + axis_name + "=" +
                       allowed(axis));
    }
    if (colon != std::string_view::npos && value.form.find(':') == std::string_view::npos) {
      return bad_input("policy: " + axis_name + "=" + std::string(base) +
                       " takes no argument, but has " + quoted(text.substr(colon)));
    }
    return &value;
  }
  return bad_input("policy: unknown value " + quoted(text) + " of " + axis_name + "; allowed are " +
                   allowed(axis));
}

/// The shortest text that reads back as the same value.
std::string shortest(double value) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

std::string route_text(const Policy& policy) {
  if (policy.route == RouteKind::servers) return "ps:" + std::to_string(policy.servers);
  return policy.route == RouteKind::unicast ? "unicast" : "star";
}

std::string pace_text(const Policy& policy) {
  if (policy.pace == PaceKind::bsp) return "bsp";
  if (policy.pace == PaceKind::stages) {
    return policy.stage_share ? "stages:" + shortest(*policy.stage_share) : "stages";
  }
  if (policy.pace == PaceKind::async) return "async";
  if (policy.pace == PaceKind::ssp) {
    return "ssp:" + std::to_string(policy.pace_steps) +
           (policy.eta ? "," + shortest(*policy.eta) : "");
  }
  return (policy.pace == PaceKind::overlap ? "overlap:" : "periodic:") +
         std::to_string(policy.pace_steps);
}

std::string mix_text(const Policy& policy) {
  if (policy.mix == MixKind::compensate) return "compensate:" + shortest(policy.gamma);
  if (policy.mix == MixKind::lgp) return "lgp";
  if (policy.mix == MixKind::age) return "age:" + shortest(policy.gamma);
  if (policy.mix == MixKind::stale) return "stale:" + std::to_string(policy.late_steps);
  return policy.mix == MixKind::sgd ? "sgd" : "average";
}

std::string codec_text(const Policy& policy) {
  if (policy.element != WireElement::f32) {
    return policy.element == WireElement::bf16 ? "cast:bf16" : "cast:fp16";
  }
  if (policy.pace == PaceKind::stages) return "split";
  if (!policy.slim) return "identity";
  return "slim:" + shortest(policy.slim->alpha) + "," + shortest(policy.slim->beta) + "," +
         std::to_string(policy.slim->every);
}

}  // namespace

std::uint32_t Policy::resolved_k(std::uint32_t n) const noexcept {
  if (select == SelectKind::all) return 1;
  if (k_given || select == SelectKind::random) return k;
  return n;
}

Result<Policy> parse_policy(std::string_view text) {
  auto collected = collect(text);
  if (!collected) return collected.error();
  const Words& words = collected->words;
  Policy policy;
  policy.p_of_name = collected->select_of_name;
  for (std::size_t a = 0; a < kAxes; ++a) {
    const auto& word = words[a];
    if (!word) continue;
    const auto axis = static_cast<Axis>(a);
    const auto value = find_value(axis, *word);
    if (!value) return value.error();
    if (axis == Axis::select) {
      if (auto set = set_select(*word, policy); !set) return set.error();
    } else if (axis == Axis::route) {
      if (auto set = set_route(*word, policy); !set) return set.error();
    } else if (axis == Axis::pace) {
      if (auto set = set_pace(*word, policy); !set) return set.error();
    } else if (axis == Axis::mix) {
      if (auto set = set_mix(*word, policy); !set) return set.error();
    } else if (axis == Axis::codec) {
      if (auto set = set_codec(*word, policy); !set) return set.error();
    } else if (axis == Axis::order) {
      policy.order = *word == "priority" ? OrderKind::priority : OrderKind::fifo;
    } else if (axis == Axis::groups) {
      policy.groups = *word == "sender" ? GroupKind::sender : GroupKind::rows;
    }
  }
  if (auto coherent = check_coherence(words, policy); !coherent) return coherent.error();
  return policy;
}

Result<Policy> parse_policy(std::string_view text, std::uint32_t workers) {
  auto policy = parse_policy(text);
  if (!policy) return policy;
  if (auto fits = fit_policy(*policy, workers); !fits) return fits.error();
  return policy;
}

Result<void> fit_policy(Policy& policy, std::uint32_t workers) {
  if (!policy.p_of_name || policy.p < workers || workers == 0) return check_policy(policy, workers);
  const std::uint32_t others = workers - 1;
  policy.notices.push_back("the name's p = " + std::to_string(policy.p) +
                           " receivers is lowered to " + std::to_string(others) +
                           ", the others that a job of " + std::to_string(workers) + " has");
  std::erase(policy.notices, kBiasedMean);
  policy.p = others;
  if (others == 0) {
    // Nobody to select from, to join or to be biased towards.
    policy.select = SelectKind::all;
    policy.eta.reset();
  }
  return check_policy(policy, workers);
}

Result<void> check_policy(const Policy& policy, std::uint32_t workers) {
  if (workers == 0 || workers > kMaxWorkers) {
    return bad_input("workers: " + std::to_string(workers) + ", allowed are 1 to " +
                     std::to_string(kMaxWorkers));
  }
  if (policy.eta && workers > kOnlineWorkersMax) {
    return bad_input("policy: pace=ssp:s,eta selects among at most " +
                     std::to_string(kOnlineWorkersMax) + " workers, but the job has " +
                     std::to_string(workers) + "; drop eta");
  }
  if (policy.servers > workers) {
    return bad_input("policy: route=ps:" + std::to_string(policy.servers) + ", but a job of " +
                     std::to_string(workers) + " workers has no more servers than that; lower it");
  }
  if (policy.select == SelectKind::all || policy.p < workers) return {};
  return bad_input("policy: p = " + std::to_string(policy.p) + " receivers, but a job of " +
                   std::to_string(workers) + " workers has " + std::to_string(workers - 1) +
                   " others; " + (workers == 1 ? "use select=all" : "lower p"));
}

std::string to_string(const Policy& policy) {
  std::string out = "share=even select=";
  if (policy.select == SelectKind::all) {
    out += "all";
  } else {
    out += policy.select == SelectKind::random ? "random:" : "selmcast:";
    out += std::to_string(policy.p);
    if (policy.k_given) (out += ',') += std::to_string(policy.k);
  }
  out += " route=" + route_text(policy);
  out += " pace=" + pace_text(policy) + " mix=" + mix_text(policy) +
         " codec=" + codec_text(policy) +
         (policy.pace == PaceKind::stages       ? " order=class"
          : policy.order == OrderKind::priority ? " order=priority"
                                                : " order=fifo");
  out += policy.groups == GroupKind::sender ? " groups=sender" : " groups=rows";
  return out;
}

std::vector<PolicyWord> policy_words() {
  std::vector<PolicyWord> out;
  for (const auto& value : kValues) {
    if (value.later()) continue;
    out.push_back({std::string(kAxisNames[static_cast<std::size_t>(value.axis)]),
                   std::string(value.form), std::string(value.meaning), value.is_default});
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> policy_names() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& name : kNames) out.emplace_back(name.name, name.expansion);
  return out;
}

}  // namespace selmcast
