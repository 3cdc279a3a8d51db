#include "plan/axes/policy.h"

#include <algorithm>
#include <optional>

#include "plan/axes/rules.h"

namespace selmcast {
namespace {

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

/// Names joined by commas.
template <class Range, class NameOf>
std::string listed(const Range& range, const NameOf& name_of) {
  std::string out;
  for (const auto& each : range) (out += out.empty() ? "" : ", ") += name_of(each);
  return out;
}

std::vector<std::string_view> axis_names() {
  std::vector<std::string_view> out;
  for_each_axis([&](auto member) { out.push_back(axis_of(member).name); });
  return out;
}

/// The words of a string by axis, each at most once.
class Words {
 public:
  Words() : axes_(axis_names()), words_(axes_.size()) {}

  /// Adds `axis=value`.
  Result<void> add(std::string_view word) {
    const auto equals = word.find('=');
    const auto axis = std::find(axes_.begin(), axes_.end(), word.substr(0, equals));
    if (axis == axes_.end()) {
      return bad_input("policy: unknown axis in " + quoted(word) + "; axes are " +
                       listed(axes_, [](std::string_view name) { return std::string(name); }));
    }
    auto& slot = words_[static_cast<std::size_t>(axis - axes_.begin())];
    if (slot) {
      return bad_input("policy: " + std::string(*axis) + " is given twice (" + quoted(*slot) +
                       " and " + quoted(word) + "); keep one");
    }
    slot = word.substr(equals + 1);
    return {};
  }
  std::optional<std::string_view> of(std::string_view axis) const {
    const auto place = std::find(axes_.begin(), axes_.end(), axis) - axes_.begin();
    return words_[static_cast<std::size_t>(place)];
  }

 private:
  std::vector<std::string_view> axes_;
  std::vector<std::optional<std::string_view>> words_;
};

Error unknown_bare_word(std::string_view word) {
  std::optional<Error> out;
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    for (const auto& row : axis.rows) {
      if (out || row.name() != word) continue;
      out = bad_input("policy: " + quoted(word) + " is a value without its axis; write " +
                      std::string(axis.name) + "=" + std::string(row.form));
    }
  });
  if (out) return *out;
  return bad_input("policy: unknown name " + quoted(word) + "; names are " +
                   listed(kNames, [](const Name& name) { return std::string(name.name); }) +
                   ", everything else is axis=value");
}

/// What was written, and what the bare name beside it stands for.
struct Collected {
  Words given, named;
};

Result<Collected> collect(std::string_view text) {
  Collected out;
  std::optional<std::string_view> name;
  for (const auto word : split_words(text)) {
    if (word.find('=') != std::string_view::npos) {
      if (auto added = out.given.add(word); !added) return added.error();
      continue;
    }
    const auto* found = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Name& each) { return each.name == word; });
    if (found == std::end(kNames)) return unknown_bare_word(word);
    if (name) {
      return bad_input("policy: two names, " + quoted(*name) + " and " + quoted(word) +
                       "; keep one");
    }
    name = word;
    for (const auto part : split_words(found->expansion)) {
      if (auto added = out.named.add(part); !added) return added.error();
    }
  }
  return out;
}

}  // namespace

Traits Policy::traits() const {
  Traits out;
  for_each_axis([&](auto member) { out = out | traits_of(axis_of(member), this->*member); });
  return out;
}

std::uint32_t Policy::resolved_k(std::uint32_t n) const {
  const Traits all = traits();
  if (!all.is.has(Trait::partial)) return 1;
  if (select.k) return *select.k;
  return all.is.has(Trait::ring_plan) ? n : 0;
}

void Policy::lower_receivers(std::uint32_t others) {
  select.p = std::min(select.p, others);
  if (others > 0) return;
  select = Select{};
  if (pace.eta) pace = Pace{};
}

bool Policy::same_values(const Policy& other) const {
  bool same = true;
  for_each_axis([&](auto member) { same = same && this->*member == other.*member; });
  return same;
}

Result<Policy> parse_policy(std::string_view text) {
  const auto words = collect(text);
  if (!words) return words.error();
  Policy policy;
  std::optional<Error> error;
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    const auto given = words->given.of(axis.name);
    const auto word = given ? given : words->named.of(axis.name);
    if (error || !word) return;
    auto value = parse_word(axis, *word);
    if (value) {
      policy.*member = *value;
    } else {
      error = value.error();
    }
  });
  if (error) return *error;
  policy.p_of_name = !words->given.of(Select::axis().name).has_value();
  const auto groups = Groups::axis().name;
  if (!words->given.of(groups) && !words->named.of(groups) &&
      policy.has(Trait::wants_sender_groups)) {
    policy.groups.kind = GroupKind::sender;
  }
  if (auto coherent = check_rules(policy); !coherent) return coherent.error();
  policy.notices = notices_of(policy);
  return policy;
}

Result<Policy> parse_policy(std::string_view text, std::uint32_t workers) {
  auto policy = parse_policy(text);
  if (!policy) return policy;
  if (auto fits = fit_policy(*policy, workers); !fits) return fits.error();
  return policy;
}

Result<void> fit_policy(Policy& policy, std::uint32_t workers) {
  const std::uint32_t wanted = policy.select.p;
  if (!policy.p_of_name || wanted < workers || workers == 0) return check_policy(policy, workers);
  const std::uint32_t others = workers - 1;
  policy.lower_receivers(others);
  policy.notices = notices_of(policy);
  // Everybody hears everybody, so nobody is heard more often than others.
  std::erase(policy.notices, kBiasedMean);
  policy.notices.push_back("the name's p = " + std::to_string(wanted) +
                           " receivers is lowered to " + std::to_string(others) +
                           ", the others that a job of " + std::to_string(workers) + " has");
  return check_policy(policy, workers);
}

Result<void> check_policy(const Policy& policy, std::uint32_t workers) {
  if (workers == 0 || workers > kMaxWorkers) {
    return bad_input("workers: " + std::to_string(workers) + ", allowed are 1 to " +
                     std::to_string(kMaxWorkers));
  }
  const Traits traits = policy.traits();
  if (traits.is.has(Trait::online) && workers > kOnlineWorkersMax) {
    return bad_input("policy: pace=ssp:s,eta selects among at most " +
                     std::to_string(kOnlineWorkersMax) + " workers, but the job has " +
                     std::to_string(workers) + "; drop eta");
  }
  if (policy.route.servers > workers) {
    return bad_input("policy: route=ps:" + std::to_string(policy.route.servers) +
                     ", but a job of " + std::to_string(workers) +
                     " workers has no more servers than that; lower it");
  }
  if (!traits.is.has(Trait::partial) || policy.select.p < workers) return {};
  return bad_input("policy: p = " + std::to_string(policy.select.p) + " receivers, but a job of " +
                   std::to_string(workers) + " workers has " + std::to_string(workers - 1) +
                   " others; " + (workers == 1 ? "use select=all" : "lower p"));
}

std::string to_string(const Policy& policy) {
  std::string out;
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    if (!out.empty()) out += ' ';
    out += std::string(axis.name) + "=" + print_word(axis, policy.*member);
  });
  return out;
}

std::vector<PolicyWord> policy_words() {
  std::vector<PolicyWord> out;
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    for (const auto& row : axis.rows) {
      if (row.later()) continue;
      out.push_back({std::string(axis.name), std::string(row.form), std::string(row.meaning),
                     row.is_default});
    }
  });
  return out;
}

std::vector<std::pair<std::string, std::string>> policy_names() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& name : kNames) out.emplace_back(name.name, name.expansion);
  return out;
}

}  // namespace selmcast
