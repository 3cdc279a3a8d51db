// What a value of a policy axis is like: the questions that the rules between the axes and the rest
// of the library ask, so that neither asks for a value by its name.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace selmcast {

enum class Trait : std::uint8_t {
  // select
  partial,    ///< Not everyone hears everyone.
  ring_plan,  ///< A plan with a period: it takes a bound k, may be decided online.
  unbounded,  ///< Some pairs may never meet, by the user's own word.
  // route
  multicast,  ///< One copy for all receivers where the transport has it.
  unicast,    ///< One copy for each receiver; no group is joined.
  servers,    ///< Some ranks gather the updates of all and hand the mean out.
  // pace
  lock_step,        ///< A round per step, which all ranks begin and end together.
  free_running,     ///< Every rank begins rounds in its own time.
  bounded,          ///< ... but none a step more than `slack` beyond the slowest.
  online,           ///< Receivers are selected as rounds begin.
  unequal_steps,    ///< Made for steps that take unequally long: without steps there is nothing to
                    ///< it.
  uneven_steps,     ///< Ranks may do different numbers of steps.
  uneven_rounds,    ///< Ranks may have different numbers of rounds.
  overlapping,      ///< A round is under way while the worker steps on.
  spaced,           ///< Several steps a round.
  two_stages,       ///< This and the next three only work together.
  own_guess,        ///< mix
  by_importance,    ///< codec
  important_first,  ///< order
  // mix
  needs_all,     ///< Made for the mean of all; Row::because says why.
  any_round,     ///< May mix what was sent in different rounds.
  biased,        ///< Ranks that are heard more often weigh more.
  deaf_allowed,  ///< A rank may hear nobody.
  own_merge,     ///< What a round does with what it receives; the others are done around averages.
  gradients,     ///< What travels are gradients of one step, not parameters.
  compensating,  ///< Keeps what is not merged yet, be it late, rounded off or not sent.
  late,          ///< Merges a round `late_steps` steps after its departure.
  whole_pairs,   ///< Counts whom each rank hears (also of codecs).
  on_steps,      ///< About what an application does between rounds.
  // codec
  exact,        ///< float32 as it is.
  rounding,     ///< What travels is rounded.
  selective,    ///< Not everything travels in a round.
  no_explorer,  ///< What does not travel may never do.
  // order
  layered,  ///< Layers are handed over one by one.
  // groups
  row_groups,     ///< One group per row of the ring plan.
  sender_groups,  ///< One group per sender and round of a cycle, joined for the whole cycle.
  // several axes
  wants_sender_groups,  ///< Goes with sender_groups only, which is then the default of groups.
};

/// A set of traits.
class TraitSet {
 public:
  constexpr TraitSet() = default;
  constexpr TraitSet(std::initializer_list<Trait> traits) {
    for (const Trait trait : traits) bits_ |= std::uint64_t{1} << static_cast<unsigned>(trait);
  }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr bool has(Trait trait) const noexcept { return has_all(TraitSet{trait}); }
  constexpr bool has_all(TraitSet others) const noexcept {
    return (bits_ & others.bits_) == others.bits_;
  }
  constexpr bool has_any(TraitSet others) const noexcept { return (bits_ & others.bits_) != 0; }
  friend constexpr TraitSet operator|(TraitSet a, TraitSet b) noexcept {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  std::uint64_t bits_ = 0;
};

/// What a value is like and what it takes; those of a whole policy are the axes' together.
struct Traits {
  TraitSet is{};
  std::uint32_t copies = 0;  ///< Of the model, kept by a rank beside the parameters.

  friend constexpr Traits operator|(const Traits& a, const Traits& b) noexcept {
    return {a.is | b.is, a.copies + b.copies};
  }
};

}  // namespace selmcast
