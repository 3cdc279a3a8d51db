#include "plan/axes/rules.h"

#include <array>
#include <utility>

namespace selmcast {
namespace {

constexpr TraitSet kStaged{Trait::two_stages, Trait::own_guess, Trait::by_importance,
                           Trait::important_first};
constexpr std::string_view kLayersOnly =
    "policy: order=priority exchanges the gradients of single layers as they come; use mix=sgd "
    "pace=bsp and route=star or unicast with it (the name p3), or order=fifo";

/// The first of the values that only work together which is not there.
std::string missing_stage(const Policy& policy) {
  constexpr std::pair<Trait, const char*> kParts[] = {{Trait::two_stages, "pace=stages"},
                                                      {Trait::own_guess, "mix=lgp"},
                                                      {Trait::by_importance, "codec=split"},
                                                      {Trait::important_first, "order=class"}};
  for (const auto& [trait, word] : kParts) {
    if (!policy.has(trait)) return word;
  }
  return {};
}

constexpr Rule kRules[] = {
    {.any = kStaged,
     .needs = kStaged,
     .message =
         "policy: pace=stages, mix=lgp, codec=split and order=class only work together, and {} is "
         "missing; write the name osp2 without other words of these axes, or none of the four",
     .detail = missing_stage},
    {.all = {Trait::needs_all},
     .forbids = {Trait::partial},
     .message = "policy: {mix} needs select=all ({}); use mix=average or select=all",
     .detail =
         [](const Policy& policy) { return std::string(row_of(Mix::axis(), policy.mix).because); }},
    {.all = {Trait::free_running},
     .needs = {Trait::any_round},
     .message = "policy: {pace} merges whatever has arrived, of different rounds; use mix=average"},
    {.all = {Trait::free_running},
     .needs = {Trait::exact},
     .message = "policy: {pace} merges float32 as it is; use codec=identity"},
    {.all = {Trait::free_running},
     .needs = {Trait::sender_groups},
     .message =
         "policy: {pace} needs groups of one sender each that are joined for the whole cycle, as "
         "senders are in different rounds; use groups=sender"},
    {.all = {Trait::free_running},
     .forbids = {Trait::servers},
     .message =
         "policy: {pace} has rounds of one sender each, and servers gather from all ranks at "
         "once; use route=star"},
    {.all = {Trait::online},
     .needs = {Trait::ring_plan, Trait::multicast},
     .message = "policy: {pace} with eta selects the receivers of multicasts online; use "
                "select=selmcast:p and route=star with it, or drop eta"},
    {.all = {Trait::late},
     .needs = {Trait::spaced},
     .holds = [](const Policy& policy) { return policy.mix.late_steps <= policy.pace.period; },
     .message = "policy: {mix}:{} merges a round before the next one departs; use pace=periodic:H "
                "with H of {} or more",
     .detail = [](const Policy& policy) { return std::to_string(policy.mix.late_steps); }},
    {.all = {Trait::overlapping},
     .needs = {Trait::compensating},
     .message =
         "policy: {pace} merges results one round late, which only mix=compensate takes into "
         "account; use mix=compensate or pace=bsp"},
    {.all = {Trait::gradients},
     .forbids = {Trait::spaced},
     .message = "policy: {mix} merges the updates of every single step; use pace=bsp, or "
                "mix=average or mix=compensate with {pace}"},
    {.all = {Trait::rounding, Trait::compensating},
     .forbids = {Trait::servers},
     .message =
         "policy: servers (route=ps) round the mean that they hand out, and nobody keeps the "
         "rest, which {mix} with {codec} must not lose; use route=star or codec=identity"},
    {.all = {Trait::selective},
     .needs = {Trait::compensating},
     .message = "policy: {codec} needs mix=compensate, which keeps what does not travel yet; use "
                "mix=compensate or codec=identity"},
    {.all = {Trait::layered},
     .needs = {Trait::gradients, Trait::lock_step},
     .forbids = {Trait::servers},
     .message = kLayersOnly},
    {.all = {Trait::servers},
     .forbids = {Trait::partial},
     .message = "policy: {route} gathers from all ranks and hands out to all; use select=all, or "
                "route=star with a partial selection"},
    {.all = {Trait::servers},
     .forbids = {Trait::whole_pairs},
     .message =
         "policy: {route} mixes at the servers only, and mix=age and stale count whom each rank "
         "hears; use route=star"},
    {.all = {Trait::partial, Trait::row_groups},
     .needs = {Trait::ring_plan},
     .message = "policy: groups=rows needs the ring plan of select=selmcast or all; use "
                "groups=sender with {select}"},
};

struct Notice {
  TraitSet all;
  std::string_view text;
};
constexpr Notice kNotices[] = {
    {{Trait::partial, Trait::biased}, kBiasedMean},
    {{Trait::unbounded},
     "k = 0 sets no bound: a rank that is heard and hears nobody leads all others astray; drop k, "
     "which is then the number of workers, or give one"},
    {{Trait::no_explorer},
     "codec=slim with beta = alpha explores nothing: a coordinate that is not in the core may "
     "never "
     "travel; use beta below alpha"},
};

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

std::string filled_in(const Rule& rule, const Policy& policy) {
  std::string out(rule.message);
  if (rule.detail != nullptr) replace_all(out, "{}", rule.detail(policy));
  for_each_axis([&](auto member) {
    const auto axis = axis_of(member);
    const std::string name(axis.name);
    replace_all(out, "{" + name + "}",
                name + "=" + std::string(row_of(axis, policy.*member).name()));
  });
  return out;
}

}  // namespace

bool Rule::broken_by(const Policy& policy, TraitSet traits) const {
  if (!traits.has_all(all) || (!any.empty() && !traits.has_any(any))) return false;
  return !traits.has_all(needs) || traits.has_any(forbids) || (holds != nullptr && !holds(policy));
}

std::span<const Rule> rules() noexcept {
  return kRules;
}

Result<void> check_rules(const Policy& policy) {
  const TraitSet traits = policy.traits().is;
  for (const Rule& rule : kRules) {
    if (rule.broken_by(policy, traits)) return bad_input(filled_in(rule, policy));
  }
  return {};
}

std::vector<std::string> notices_of(const Policy& policy) {
  const TraitSet traits = policy.traits().is;
  std::vector<std::string> out;
  for (const auto& [all, text] : kNotices) {
    if (traits.has_all(all)) out.emplace_back(text);
  }
  return out;
}

Result<void> check_parameters(const Policy& policy, std::uint64_t bytes) {
  constexpr std::uint64_t kElementsMax = 0xFFFF'FFFE;
  const std::uint64_t elements = bytes / sizeof(float);
  if (!policy.has(Trait::compensating) || elements <= kElementsMax) return {};
  return bad_input("policy: mix=" + std::string(row_of(Mix::axis(), policy.mix).name()) +
                   " (osp, losp, slim) numbers at most " + std::to_string(kElementsMax) +
                   " elements, and the parameters have " + std::to_string(elements) +
                   "; use mix=average, or synchronise fewer at once");
}

Result<void> check_layers(const Policy& policy, std::size_t elements,
                          std::span<const std::size_t> sizes) {
  constexpr std::size_t kLayersMax = 4096;
  if (!policy.traits().is.has_all({Trait::gradients, Trait::lock_step}) ||
      policy.has(Trait::servers)) {
    return bad_input(
        "policy: layers are handed over one by one under mix=sgd pace=bsp with "
        "route=star or unicast only (the name p3), found " +
        to_string(policy));
  }
  std::size_t all = 0;
  for (const std::size_t size : sizes) {
    if (size == 0 || size > elements - all) {
      return bad_input("layers: " + std::to_string(sizes.size()) + " layers do not divide " +
                       std::to_string(elements) + " elements; each holds at least one");
    }
    all += size;
  }
  if (all != elements || sizes.size() > kLayersMax) {
    return bad_input("layers: " + std::to_string(sizes.size()) + " layers of " +
                     std::to_string(all) + " elements for " + std::to_string(elements) +
                     "; they must cover all, and be at most " + std::to_string(kLayersMax));
  }
  return {};
}

}  // namespace selmcast
