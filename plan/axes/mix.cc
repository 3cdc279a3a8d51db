#include "plan/axes/mix.h"

namespace selmcast {
namespace {

struct GammaRange {
  MixKind kind;
  double usual, least, most;
  std::string_view text;
};

Result<Mix> parse_gamma(const Word& word, const GammaRange& range) {
  Mix out{.kind = range.kind, .gamma = range.usual};
  if (!word.argument()) return out;
  if (const auto gamma = decimal_within(*word.argument(), range.least, range.most)) {
    out.gamma = *gamma;
    return out;
  }
  const std::string value = "mix=" + std::string(word.name());
  return bad_input("policy: gamma in " + value + ":gamma must be a number from " +
                   std::string(range.text) + ", found " + quoted(word.text) +
                   "; write for example " + value + ":" + shortest(range.usual));
}

std::string print_gamma(const Mix& value) {
  return ":" + shortest(value.gamma);
}

Result<Mix> parse_stale(const Word& word) {
  if (!word.argument()) return Mix{.kind = MixKind::stale, .late_steps = 1};
  const auto steps = number_within(*word.argument(), 1, kMaxSteps);
  if (steps) return Mix{.kind = MixKind::stale, .late_steps = *steps};
  return bad_input("policy: mix=stale:S needs a number of steps, 1 to " +
                   std::to_string(kMaxSteps) + ", found " + quoted(word.text) +
                   "; write for example mix=stale:1");
}

constexpr Row<Mix> kMixes[] = {
    {.form = "average",
     .meaning = "gossip mean: own and received parameters weigh the same",
     .kind = MixKind::average,
     .is_default = true,
     .examples = "average",
     .traits = {.is = {Trait::any_round, Trait::biased, Trait::deaf_allowed}}},
    {.form = "sgd",
     .meaning = "mean of all workers' gradients (needs select=all)",
     .kind = MixKind::sgd,
     .examples = "sgd",
     .traits = {.is = {Trait::needs_all, Trait::own_merge, Trait::gradients}},
     .because = "with a partial selection the replicas drift apart"},
    {.form = "age[:gamma]",
     .meaning =
         "gossip with age credit: a pair earns gamma/n per round (gamma = 0.9) and spends it "
         "when one hears the other; unequal in-degrees bias it less",
     .kind = MixKind::age,
     .examples = "age age:0.5",
     .parse =
         [](const Word& word) {
           return parse_gamma(word, {MixKind::age, 0.9, 0.001, 1.0, "0.001 to 1"});
         },
     .print = print_gamma,
     .traits = {.is = {Trait::own_merge, Trait::whole_pairs, Trait::deaf_allowed}}},
    {.form = "compensate[:gamma]",
     .meaning = "mean of all workers' steps; own steps not merged yet count gamma = 1.5 (0: not at "
                "all)",
     .kind = MixKind::compensate,
     .examples = "compensate compensate:0",
     .parse =
         [](const Word& word) {
           return parse_gamma(word, {MixKind::compensate, 1.5, 0.0, 100.0, "0 to 100"});
         },
     .print = print_gamma,
     .traits = {.is = {Trait::needs_all, Trait::compensating, Trait::on_steps}, .copies = 3},
     .because =
         "its correction is made for one mean of all; with a partial selection workers drift "
         "apart"},
    {.form = "lgp",
     .meaning = "the worker goes on from its own guess until the mean replaces it",
     .kind = MixKind::lgp,
     .examples = "lgp",
     .traits = {.is = {Trait::needs_all, Trait::own_guess, Trait::on_steps}, .copies = 6},
     .because = "it replaces a guess by the mean of all ranks"},
    {.form = "replace"},
    {.form = "stale[:S]",
     .meaning = "the mean of all merged S = 1 steps late, own parameters weighing 2S (DASO; "
                "pace=periodic)",
     .kind = MixKind::stale,
     .examples = "stale stale:3",
     .parse = parse_stale,
     .print = [](const Mix& value) { return ":" + std::to_string(value.late_steps); },
     .traits = {.is = {Trait::needs_all, Trait::late, Trait::whole_pairs, Trait::on_steps},
                .copies = 1},
     .because = "it merges the mean of all"},
};

}  // namespace

AxisTable<Mix> Mix::axis() noexcept {
  return {"mix", kMixes};
}

}  // namespace selmcast
