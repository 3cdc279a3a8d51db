#include "plan/axes/select.h"

namespace selmcast {
namespace {

Result<std::uint32_t> receivers(const Word& word) {
  const auto parts = word.parts();
  const auto p = parts.empty() ? std::nullopt : number_within(parts.front(), 1, kMaxWorkers);
  if (p) return *p;
  const std::string value = "select=" + std::string(word.name());
  return bad_input("policy: " + value + ":p needs a number of receivers p of 1 or more, found " +
                   quoted(word.text) + "; write for example " + value + ":2");
}

Result<Select> parse_selmcast(const Word& word) {
  const auto p = receivers(word);
  if (!p) return p.error();
  Select out{SelectKind::selmcast, *p};
  const auto parts = word.parts();
  if (parts.size() == 1) return out;
  out.k = parts.size() == 2 ? number(parts[1]) : std::nullopt;
  if (out.k) return out;
  return bad_input(
      "policy: k in select=selmcast:p,k must be a number of rounds (0 = no bound), found " +
      quoted(word.text) + "; write for example select=selmcast:2,8");
}

Result<Select> parse_random(const Word& word) {
  const auto p = receivers(word);
  if (!p) return p.error();
  if (word.parts().size() == 1) return Select{SelectKind::random, *p};
  return bad_input("policy: select=random:p has no bound k, found " + quoted(word.text) +
                   "; drop it or use select=selmcast:p,k");
}

std::string print_receivers(const Select& value) {
  return ":" + std::to_string(value.p) + (value.k ? "," + std::to_string(*value.k) : "");
}

constexpr Row<Select> kSelects[] = {
    {.form = "all",
     .meaning = "everyone sends to everyone",
     .kind = SelectKind::all,
     .is_default = true,
     .examples = "all"},
    {.form = "selmcast:p[,k]",
     .meaning =
         "at least p receivers each at the best common rate, every pair once in k rounds (as "
         "many as there are workers; 0: no bound)",
     .kind = SelectKind::selmcast,
     .examples = "selmcast:2 selmcast:2,5 selmcast:2,0",
     .parse = parse_selmcast,
     .print = print_receivers,
     .traits = {.is = {Trait::partial, Trait::ring_plan}},
     .more =
         [](const Select& value) {
           return Traits{.is = value.k == 0U ? TraitSet{Trait::unbounded} : TraitSet{}};
         }},
    {.form = "random:p",
     .meaning = "exactly p receivers each, uniformly at random",
     .kind = SelectKind::random,
     .examples = "random:2",
     .parse = parse_random,
     .print = print_receivers,
     .traits = {.is = {Trait::partial, Trait::wants_sender_groups}}},
    {.form = "neighbours"},
    {.form = "groups"},
    {.form = "delegates"},
};

}  // namespace

AxisTable<Select> Select::axis() noexcept {
  return {"select", kSelects};
}

}  // namespace selmcast
