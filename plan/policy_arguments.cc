// Arguments of policy words (declared in policy_arguments.h).
#include "plan/policy_arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

namespace selmcast {
namespace {
constexpr std::uint32_t kStepsMax = 1'000'000;
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 48;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kShown ? "...'" : "'");
}

namespace {

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> decimal(std::string_view text) {
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

/// What follows the colon, if one does.
std::optional<std::string_view> argument_of(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  return text.substr(colon + 1);
}

}  // namespace

Result<void> set_select(std::string_view text, Policy& policy) {
  const auto base = text.substr(0, text.find(':'));
  if (base == "all") return {};
  policy.select = base == "random" ? SelectKind::random : SelectKind::selmcast;
  const bool has_argument = text.size() > base.size();
  const auto argument = has_argument ? text.substr(base.size() + 1) : std::string_view{};
  const auto comma = argument.find(',');
  const auto p = number(argument.substr(0, comma));
  if (!p || *p == 0 || *p > kMaxWorkers) {
    return bad_input("policy: select=" + std::string(base) +
                     ":p needs a number of receivers p of 1 or more, found " + quoted(text) +
                     "; write for example select=" + std::string(base) + ":2");
  }
  policy.p = *p;
  if (comma == std::string_view::npos) return {};
  const auto k = number(argument.substr(comma + 1));
  if (policy.select == SelectKind::random) {
    return bad_input("policy: select=random:p has no bound k, found " + quoted(text) +
                     "; drop it or use select=selmcast:p,k");
  }
  if (!k) {
    return bad_input(
        "policy: k in select=selmcast:p,k must be a number of rounds (0 = no bound), found " +
        quoted(text));
  }
  policy.k = *k;
  policy.k_given = true;
  return {};
}

Result<void> set_route(std::string_view text, Policy& policy) {
  if (text == "star") return {};
  if (text == "unicast") {
    policy.route = RouteKind::unicast;
    return {};
  }
  policy.route = RouteKind::servers;
  const auto argument = argument_of(text);
  const auto servers = argument ? number(*argument) : std::nullopt;
  if (!servers || *servers == 0 || *servers > kMaxWorkers) {
    return bad_input("policy: route=ps needs a number of servers, 1 to " +
                     std::to_string(kMaxWorkers) + ", found " + quoted(text) +
                     "; write for example route=ps:1");
  }
  policy.servers = *servers;
  return {};
}

namespace {

Result<void> set_free_pace(std::string_view name, std::optional<std::string_view> argument,
                           Policy& policy) {
  constexpr std::uint32_t kSlackMax = 1'000'000;
  policy.pace = name == "ssp" ? PaceKind::ssp : PaceKind::async;
  if (policy.pace == PaceKind::async) return {};
  const auto comma = argument ? argument->find(',') : std::string_view::npos;
  const auto slack = argument ? number(argument->substr(0, comma)) : std::nullopt;
  if (comma != std::string_view::npos) {
    policy.eta = decimal(argument->substr(comma + 1));
    if (!policy.eta || *policy.eta < 0.0 || *policy.eta > 1.0) {
      return bad_input("policy: pace=ssp:s,eta needs a share eta from 0 to 1, found " +
                       quoted(*argument) + "; write for example pace=ssp:4,0.75");
    }
  }
  if (!slack || *slack > kSlackMax) {
    return bad_input("policy: pace=ssp needs a number of steps s, 0 to " +
                     std::to_string(kSlackMax) + ", found " +
                     quoted(argument ? *argument : std::string_view("ssp")) +
                     "; write for example pace=ssp:2");
  }
  policy.pace_steps = *slack;
  return {};
}

}  // namespace

Result<void> set_pace(std::string_view text, Policy& policy) {
  const auto argument = argument_of(text);
  const auto name = text.substr(0, text.find(':'));
  if (name == "bsp") return {};
  if (name == "stages") {
    policy.pace = PaceKind::stages;
    if (!argument) return {};
    policy.stage_share = decimal(*argument);
    if (policy.stage_share && *policy.stage_share >= 0.0 && *policy.stage_share <= 1.0) return {};
    return bad_input("policy: pace=stages:s needs a share s from 0 to 1, found " + quoted(text) +
                     "; write for example pace=stages:0.25");
  }
  if (name == "async" || name == "ssp") return set_free_pace(name, argument, policy);
  policy.pace = name == "overlap" ? PaceKind::overlap : PaceKind::periodic;
  policy.pace_steps = 20;
  if (!argument && policy.pace == PaceKind::overlap) return {};
  const auto steps = argument ? number(*argument) : std::nullopt;
  if (!steps || *steps == 0 || *steps > kStepsMax) {
    return bad_input("policy: pace=" + std::string(name) + " needs a number of steps, 1 to " +
                     std::to_string(kStepsMax) + ", found " + quoted(text) +
                     "; write for example pace=" + std::string(name) + ":8");
  }
  policy.pace_steps = *steps;
  return {};
}

namespace {

struct Range {
  double least, most;
  std::string_view text;
};

Result<void> set_gamma(std::string_view text, const Range& range, double& gamma) {
  const auto argument = argument_of(text);
  if (!argument) return {};
  const auto value = decimal(*argument);
  if (!value || *value < range.least || *value > range.most) {
    return bad_input("policy: gamma in mix=" + std::string(text.substr(0, text.find(':'))) +
                     ":gamma must be a number from " + std::string(range.text) + ", found " +
                     quoted(text));
  }
  gamma = *value;
  return {};
}

Result<void> set_late_steps(std::string_view text, std::uint32_t& steps) {
  steps = 1;
  const auto argument = argument_of(text);
  if (!argument) return {};
  const auto value = number(*argument);
  if (!value || *value == 0 || *value > kStepsMax) {
    return bad_input("policy: mix=stale:S needs a number of steps, 1 to " +
                     std::to_string(kStepsMax) + ", found " + quoted(text) +
                     "; write for example mix=stale:1");
  }
  steps = *value;
  return {};
}

}  // namespace

Result<void> set_mix(std::string_view text, Policy& policy) {
  const auto name = text.substr(0, text.find(':'));
  if (name == "average") return {};
  if (name == "sgd") {
    policy.mix = MixKind::sgd;
    return {};
  }
  if (name == "stale") {
    policy.mix = MixKind::stale;
    return set_late_steps(text, policy.late_steps);
  }
  if (name == "lgp") {
    policy.mix = MixKind::lgp;
    return {};
  }
  policy.mix = name == "age" ? MixKind::age : MixKind::compensate;
  policy.gamma = policy.mix == MixKind::age ? 0.9 : 1.5;
  if (policy.mix == MixKind::age) return set_gamma(text, {0.001, 1.0, "0.001 to 1"}, policy.gamma);
  return set_gamma(text, {0.0, 100.0, "0 to 100"}, policy.gamma);
}

Result<void> set_codec(std::string_view text, Policy& policy) {
  if (text == "identity" || text == "split") return {};
  const auto argument = argument_of(text).value_or(std::string_view{});
  if (text.substr(0, text.find(':')) == "cast") {
    if (argument != "bf16" && argument != "fp16") {
      return bad_input("policy: codec=cast needs a type, bf16 or fp16, found " + quoted(text));
    }
    policy.element = argument == "bf16" ? WireElement::bf16 : WireElement::f16;
    return {};
  }
  SlimShares shares;
  std::vector<std::string_view> parts;
  for (std::size_t from = 0; from <= argument.size();) {
    const auto comma = std::min(argument.find(',', from), argument.size());
    parts.push_back(argument.substr(from, comma - from));
    from = comma + 1;
  }
  const auto given = parts.size();
  parts.resize(std::max<std::size_t>(given, 3));
  const auto alpha = decimal(parts[0]);
  const auto beta = decimal(parts[1]);
  const auto every = given < 3 ? std::optional(shares.every) : number(parts[2]);
  if (given > 3 || !alpha || !beta || !every || *every == 0 || !(*beta >= 0.0 && *beta <= *alpha) ||
      !(*alpha > 0.0 && *alpha <= 1.0)) {
    return bad_input(
        "policy: codec=slim:alpha,beta[,q] needs 0 <= beta <= alpha <= 1, alpha above 0 and q of 1 "
        "or more, found " +
        quoted(text) + "; write for example codec=slim:0.3,0.15");
  }
  policy.slim = SlimShares{*alpha, *beta, *every};
  return {};
}

}  // namespace selmcast
