#include "plan/axes/codec.h"

namespace selmcast {
namespace {

Result<Codec> parse_cast(const Word& word) {
  const auto type = word.argument();
  if (type == "bf16") return Codec{CodecKind::cast, WireElement::bf16};
  if (type == "fp16") return Codec{CodecKind::cast, WireElement::f16};
  return bad_input("policy: codec=cast needs a type, bf16 or fp16, found " + quoted(word.text) +
                   "; write for example codec=cast:bf16");
}

std::string print_cast(const Codec& value) {
  return value.element == WireElement::bf16 ? ":bf16" : ":fp16";
}

Result<Codec> parse_slim(const Word& word) {
  SlimShares shares;
  auto parts = word.parts();
  static constexpr double kNone = -1.0;
  const auto share = [&parts](std::size_t at) {
    return at < parts.size() ? decimal(parts[at]).value_or(kNone) : kNone;
  };
  shares.alpha = share(0);
  shares.beta = share(1);
  if (parts.size() > 2) shares.every = number(parts[2]).value_or(0);
  if (parts.size() > 3 || shares.every == 0 || !(shares.alpha > 0.0 && shares.alpha <= 1.0) ||
      !(shares.beta >= 0.0 && shares.beta <= shares.alpha)) {
    return bad_input(
        "policy: codec=slim:alpha,beta[,q] needs 0 <= beta <= alpha <= 1, alpha "
        "above 0 and q of 1 or more, found " +
        quoted(word.text) + "; write for example codec=slim:0.3,0.15");
  }
  return Codec{.kind = CodecKind::slim, .slim = shares};
}

std::string print_slim(const Codec& value) {
  const SlimShares& shares = *value.slim;
  return ":" + shortest(shares.alpha) + "," + shortest(shares.beta) + "," +
         std::to_string(shares.every);
}

Traits slim_traits(const Codec& value) {
  Traits out;
  if (value.slim->beta == value.slim->alpha) out.is = {Trait::no_explorer};
  return out;
}

constexpr Row<Codec> kCodecs[] = {
    {.form = "identity",
     .meaning = "float32 as it is",
     .kind = CodecKind::identity,
     .is_default = true,
     .examples = "identity",
     .traits = {.is = {Trait::exact}}},
    {.form = "cast:type",
     .meaning = "bf16 or fp16: half of the bytes, rounded on the wire only",
     .kind = CodecKind::cast,
     .examples = "cast:bf16 cast:fp16",
     .parse = parse_cast,
     .print = print_cast,
     .traits = {.is = {Trait::rounding}}},
    {.form = "split",
     .meaning = "blocks by importance, parameter times change (of pace=stages)",
     .kind = CodecKind::split,
     .examples = "split",
     .traits = {.is = {Trait::by_importance}}},
    {.form = "slim:alpha,beta[,q]",
     .meaning = "a share alpha travels: the beta that matter most, chosen every q = 20 rounds, and "
                "others in turn",
     .kind = CodecKind::slim,
     .examples = "slim:0.3,0.15 slim:0.3,0.15,5 slim:0.3,0.3",
     .parse = parse_slim,
     .print = print_slim,
     .traits = {.is = {Trait::selective}},
     .more = slim_traits},
};

}  // namespace

AxisTable<Codec> Codec::axis() noexcept {
  return {"codec", kCodecs};
}

}  // namespace selmcast
