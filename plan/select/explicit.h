// Shared by the solvers that list every pair.
#pragma once

#include <optional>
#include <vector>

#include "plan/select/selection.h"

namespace selmcast {

/// The receivers that (sender, receiver) pairs name for each of n senders, ascending and without
/// repeats.
std::vector<std::vector<Rank>> by_sender(const std::vector<std::pair<Rank, Rank>>& pairs,
                                         std::size_t n);

/// The receivers that a sender may still take, ascending: those with rate, without the sender
/// itself, without `chosen` and `forbidden` (both ascending).
std::vector<Rank> open_receivers(const SelectionProblem& problem, Rank sender,
                                 const std::vector<Rank>& chosen,
                                 const std::vector<Rank>& forbidden);

/// The best common rate of the listed receivers: the least tx/copies and rx/in-degree. Sets rate
/// and bottleneck of `selection`; nullopt when it is zero or nobody sends.
std::optional<RateFraction> rate_of(const SelectionProblem& problem, Selection& selection);

}  // namespace selmcast
