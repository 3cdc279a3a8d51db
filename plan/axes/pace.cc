#include "plan/axes/pace.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kOverlapSteps = 20;  // As published for OSP.

Result<Pace> parse_ssp(const Word& word) {
  const auto parts = word.parts();
  const auto found = word.argument().value_or("ssp");
  Pace out{.kind = PaceKind::ssp};
  if (parts.size() > 1) {
    out.eta = parts.size() == 2 ? decimal_within(parts[1], 0.0, 1.0) : std::nullopt;
    if (!out.eta) {
      return bad_input("policy: pace=ssp:s,eta needs a share eta from 0 to 1, found " +
                       quoted(found) + "; write for example pace=ssp:4,0.75");
    }
  }
  const auto slack = parts.empty() ? std::nullopt : number_within(parts.front(), 0, kMaxSteps);
  if (!slack) {
    return bad_input("policy: pace=ssp needs a number of steps s, 0 to " +
                     std::to_string(kMaxSteps) + ", found " + quoted(found) +
                     "; write for example pace=ssp:2");
  }
  out.slack = *slack;
  return out;
}

std::string print_ssp(const Pace& value) {
  return ":" + std::to_string(value.slack) + (value.eta ? "," + shortest(*value.eta) : "");
}

Result<std::uint32_t> steps_of(const Word& word) {
  const auto steps = number_within(word.argument().value_or(""), 1, kMaxSteps);
  if (steps) return *steps;
  const std::string value = "pace=" + std::string(word.name());
  return bad_input("policy: " + value + " needs a number of steps, 1 to " +
                   std::to_string(kMaxSteps) + ", found " + quoted(word.text) +
                   "; write for example " + value + ":8");
}

Result<Pace> parse_overlap(const Word& word) {
  Pace out{.kind = PaceKind::overlap, .most_steps = kOverlapSteps};
  if (!word.argument()) return out;
  const auto steps = steps_of(word);
  if (!steps) return steps.error();
  out.most_steps = *steps;
  return out;
}

std::string print_overlap(const Pace& value) {
  return ":" + std::to_string(value.most_steps);
}

Result<Pace> parse_periodic(const Word& word) {
  const auto steps = steps_of(word);
  if (!steps) return steps.error();
  return Pace{.kind = PaceKind::periodic, .period = *steps};
}

std::string print_periodic(const Pace& value) {
  return ":" + std::to_string(value.period);
}

Result<Pace> parse_stages(const Word& word) {
  Pace out{.kind = PaceKind::stages};
  if (!word.argument()) return out;
  out.first_share = decimal_within(*word.argument(), 0.0, 1.0);
  if (out.first_share) return out;
  return bad_input("policy: pace=stages:s needs a share s from 0 to 1, found " + quoted(word.text) +
                   "; write for example pace=stages:0.25");
}

std::string print_stages(const Pace& value) {
  return value.first_share ? ":" + shortest(*value.first_share) : "";
}

constexpr Row<Pace> kPaces[] = {
    {.form = "bsp",
     .meaning = "a round ends when all its deliveries have ended",
     .kind = PaceKind::bsp,
     .is_default = true,
     .examples = "bsp",
     .traits = {.is = {Trait::lock_step}}},
    {.form = "ssp:s[,eta]",
     .meaning = "rounds in every worker's own time; none begins a step more than s beyond the "
                "slowest; with eta receivers are selected as each multicast starts, and taken out "
                "while more than eta is left",
     .kind = PaceKind::ssp,
     .examples = "ssp:2 ssp:4,0.75",
     .parse = parse_ssp,
     .print = print_ssp,
     .traits = {.is = {Trait::free_running, Trait::bounded, Trait::wants_sender_groups},
                .copies = 1},
     .more =
         [](const Pace& value) {
           return Traits{.is = {value.eta ? Trait::online : Trait::unequal_steps}};
         }},
    {.form = "async",
     .meaning = "rounds in every worker's own time; nobody waits for anybody before the end",
     .kind = PaceKind::async,
     .examples = "async",
     .traits = {.is = {Trait::free_running, Trait::wants_sender_groups, Trait::unequal_steps,
                       Trait::uneven_steps, Trait::uneven_rounds},
                .copies = 1}},
    {.form = "overlap[:K]",
     .meaning = "a round is always under way; a worker steps on meanwhile, at most K = 20 steps",
     .kind = PaceKind::overlap,
     .examples = "overlap overlap:7",
     .parse = parse_overlap,
     .print = print_overlap,
     .traits = {.is = {Trait::overlapping, Trait::uneven_steps}}},
    {.form = "busy",
     .meaning = "nobody ever waits: every worker steps on, and what all have done since the last "
                "round is exchanged when the slowest has done a step (WBSP)",
     .kind = PaceKind::busy,
     .examples = "busy",
     .parse = [](const Word&) -> Result<Pace> {
       return Pace{.kind = PaceKind::busy, .most_steps = ~std::uint32_t{0}};
     },
     .traits = {.is = {Trait::overlapping, Trait::uneven_steps}}},
    {.form = "periodic:H",
     .meaning = "a round after every H steps",
     .kind = PaceKind::periodic,
     .examples = "periodic:8",
     .parse = parse_periodic,
     .print = print_periodic,
     .traits = {.is = {Trait::spaced}}},
    {.form = "stages[:s]",
     .meaning = "the share s that matters most behind a barrier, the rest during the next step; s "
                "adapts",
     .kind = PaceKind::stages,
     .examples = "stages stages:0.25",
     .parse = parse_stages,
     .print = print_stages,
     .traits = {.is = {Trait::two_stages}}},
};

}  // namespace

AxisTable<Pace> Pace::axis() noexcept {
  return {"pace", kPaces};
}

}  // namespace selmcast
