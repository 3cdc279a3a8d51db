#include "plan/policy_coherence.h"

#include <algorithm>

namespace selmcast {
namespace {

/// pace=stages and what it is made of.
Result<void> check_stages(const Words& words, const Policy& policy) {
  const auto is = [&](Axis axis, std::string_view value) {
    return words[static_cast<std::size_t>(axis)] == value;
  };
  const bool parts[] = {policy.pace == PaceKind::stages, policy.mix == MixKind::lgp,
                        is(Axis::codec, "split"), is(Axis::order, "class")};
  const auto given = std::count(std::begin(parts), std::end(parts), true);
  if (given != 0 && given != std::ssize(parts)) {
    constexpr std::string_view kTogether[] = {"pace=stages", "mix=lgp", "codec=split",
                                              "order=class"};
    const auto missing = std::find(std::begin(parts), std::end(parts), false) - std::begin(parts);
    return bad_input(
        "policy: pace=stages, mix=lgp, codec=split and order=class only work together, and " +
        std::string(kTogether[missing]) +
        " is missing; write the name osp2 without other words of these axes, or none of the four");
  }
  if (given != 0 && policy.select != SelectKind::all) {
    return bad_input(
        "policy: mix=lgp replaces a guess by the mean of all ranks, so it needs select=all; use "
        "mix=average with a partial selection");
  }
  return {};
}

Result<void> check_stale(const Policy& policy) {
  if (policy.mix != MixKind::stale) return {};
  if (policy.select != SelectKind::all) {
    return bad_input(
        "policy: mix=stale needs select=all (it merges the mean of all); use select=all or "
        "mix=average");
  }
  if (policy.pace != PaceKind::periodic || policy.late_steps > policy.pace_steps) {
    return bad_input("policy: mix=stale:" + std::to_string(policy.late_steps) +
                     " merges a round before the next one departs; use pace=periodic:H with H of " +
                     std::to_string(policy.late_steps) + " or more");
  }
  return {};
}

/// What the axes pace, mix and codec ask of one another.
Result<void> check_steps(const Policy& policy) {
  const bool compensates = policy.mix == MixKind::compensate;
  if (auto ok = check_stale(policy); !ok) return ok;
  if (compensates && policy.select != SelectKind::all) {
    return bad_input(
        "policy: mix=compensate needs select=all (its correction is made for one mean of all; with "
        "a partial selection workers drift apart); use mix=average or select=all");
  }
  if (policy.pace == PaceKind::overlap && !compensates) {
    return bad_input(
        "policy: pace=overlap merges results one round late, which only mix=compensate takes into "
        "account; use mix=compensate or pace=bsp");
  }
  if (policy.pace == PaceKind::periodic && policy.mix == MixKind::sgd) {
    return bad_input(
        "policy: mix=sgd merges the updates of every single step; use pace=bsp, or mix=average or "
        "mix=compensate with pace=periodic");
  }
  if (policy.element != WireElement::f32 && compensates && policy.route == RouteKind::servers) {
    return bad_input(
        "policy: servers (route=ps) round the mean that they hand out, and nobody keeps the rest, "
        "which mix=compensate with codec=cast must not lose; use route=star or codec=identity");
  }
  if (policy.slim && !compensates) {
    return bad_input(
        "policy: codec=slim needs mix=compensate, which keeps what does not travel yet");
  }
  return {};
}

/// What the paces ssp and async ask of the other axes.
Result<void> check_free(const Words& words, Policy& policy) {
  if (!policy.free()) return {};
  const std::string pace =
      policy.pace == PaceKind::ssp ? "policy: pace=ssp " : "policy: pace=async ";
  if (policy.mix != MixKind::average) {
    return bad_input(pace + "merges whatever has arrived, of different rounds; use mix=average");
  }
  if (policy.slim || policy.element != WireElement::f32) {
    return bad_input(pace + "merges float32 as it is; use codec=identity");
  }
  if (words[static_cast<std::size_t>(Axis::groups)] && policy.groups == GroupKind::rows) {
    return bad_input(pace +
                     "needs groups of one sender each, as senders are in different rounds; use "
                     "groups=sender");
  }
  if (policy.route == RouteKind::servers) {
    return bad_input(pace +
                     "has rounds of one sender each, and servers gather from all ranks at "
                     "once; use route=star");
  }
  if (policy.eta && (policy.select != SelectKind::selmcast || policy.route != RouteKind::star)) {
    return bad_input(pace +
                     "with eta selects the receivers of multicasts online; use "
                     "select=selmcast:p and route=star with it, or drop eta");
  }
  policy.groups = GroupKind::sender;
  return {};
}

Result<void> check_order(const Policy& policy) {
  if (policy.order != OrderKind::priority) return {};
  if (policy.pace == PaceKind::bsp && policy.mix == MixKind::sgd &&
      policy.route != RouteKind::servers) {
    return {};
  }
  return bad_input(
      "policy: order=priority exchanges the gradients of single layers as they come; use mix=sgd "
      "pace=bsp and route=star or unicast with it (the name p3), or order=fifo");
}

}  // namespace

Result<void> check_coherence(const Words& words, Policy& policy) {
  if (auto ok = check_stages(words, policy); !ok) return ok;
  if (auto ok = check_free(words, policy); !ok) return ok;
  if (auto ok = check_steps(policy); !ok) return ok;
  if (auto ok = check_order(policy); !ok) return ok;
  if (policy.route == RouteKind::servers && policy.select != SelectKind::all) {
    return bad_input(
        "policy: route=ps gathers from all ranks and hands out to all; use select=all, or "
        "route=star with a partial selection");
  }
  const bool by_pairs = policy.mix == MixKind::age || policy.mix == MixKind::stale;
  if (policy.route == RouteKind::servers && by_pairs) {
    return bad_input(
        "policy: route=ps mixes at the servers only, and mix=age and mix=stale count whom each "
        "rank hears; use route=star");
  }
  const bool partial = policy.select != SelectKind::all;
  if (partial && policy.mix == MixKind::sgd) {
    return bad_input(
        "policy: mix=sgd needs select=all (with a partial selection the replicas drift apart); "
        "use mix=average or select=all");
  }
  if (policy.select == SelectKind::random) {
    if (words[static_cast<std::size_t>(Axis::groups)] && policy.groups == GroupKind::rows) {
      return bad_input(
          "policy: groups=rows needs the ring plan of select=selmcast or all; use groups=sender "
          "with select=random");
    }
    policy.groups = GroupKind::sender;
  }
  if (partial && policy.mix == MixKind::average) policy.notices.emplace_back(kBiasedMean);
  if (policy.k_given && policy.k == 0) {
    policy.notices.emplace_back(
        "k = 0 sets no bound: a rank that is heard and hears nobody leads all others astray; drop "
        "k, which is then the number of workers, or give one");
  }
  if (policy.slim && policy.slim->beta == policy.slim->alpha) {
    policy.notices.emplace_back(
        "codec=slim with beta = alpha explores nothing: a coordinate that is not in the core may "
        "never travel; use beta below alpha");
  }
  return {};
}

Result<void> check_parameters(const Policy& policy, std::uint64_t bytes) {
  constexpr std::uint64_t kElementsMax = 0xFFFF'FFFE;
  const std::uint64_t elements = bytes / sizeof(float);
  if (policy.mix != MixKind::compensate || elements <= kElementsMax) return {};
  return bad_input("policy: mix=compensate (osp, losp, slim) numbers at most " +
                   std::to_string(kElementsMax) + " elements, and the parameters have " +
                   std::to_string(elements) + "; use mix=average, or synchronise fewer at once");
}

Result<void> check_layers(const Policy& policy, std::size_t elements,
                          std::span<const std::size_t> sizes) {
  constexpr std::size_t kLayersMax = 4096;
  if (policy.mix != MixKind::sgd || policy.pace != PaceKind::bsp ||
      policy.route == RouteKind::servers) {
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
