// Shared by the solvers that list every pair.
#pragma once

#include <optional>
#include <vector>

#include "sync/select/selection.h"

namespace selmcast {

/// The forced receivers of each sender, ascending and without repeats.
std::vector<std::vector<Rank>> forced_receivers(const SelectionProblem& problem);

/// The best common rate of the listed receivers: the least tx/copies and rx/in-degree. Sets rate
/// and bottleneck of `selection`; nullopt when it is zero or nobody sends.
std::optional<RateFraction> rate_of(const SelectionProblem& problem, Selection& selection);

}  // namespace selmcast
