// One bulk-synchronous round on random links: what each way of selecting takes and reaches.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "plan/select/published.h"
#include "plan/select/selection.h"
#include "tools/papers/fluid.h"

namespace selmcast {

/// Links as the papers draw them: receive rates mean (1 + spread x), transmit rates mean * transmit
/// (1 + spread x), x uniform in [-1, 1), each rank and direction its own.
struct LinkLaw {
  double mean_kbps = 40e6;
  double spread = 0.25;   ///< lambda.
  double transmit = 1.0;  ///< mu.
};

/// The problem of n ranks with the same p. Equal seeds give equal x whatever the law.
SelectionProblem draw_problem(const LinkLaw& law, std::uint32_t n, std::uint32_t p, Fanout fanout,
                              std::uint64_t seed);

enum class Method : std::uint8_t {
  exact,      ///< The optimum, from rates and counts alone: no pair is listed.
  published,  ///< The papers' heuristic, ties at random.
  orpheus,    ///< p random receivers.
};

struct RoundOutcome {
  double per_kbps = 0.0;        ///< 1/y: the time of one bit at the common rate, in ms.
  std::uint64_t receivers = 0;  ///< Over all senders.
};

/// The round under the static bottleneck model, in which it lasts as long as the card with the
/// largest load per rate. Errors as the selections'. Needs the same p for all and no forced pair.
Result<RoundOutcome> run_round(const SelectionProblem& problem, Method method);

/// Highest rate and most receivers without listing pairs (DegreePlan): equal to select_exact()
/// where nothing is forced or forbidden.
Result<RoundOutcome> optimum_of(const SelectionProblem& problem);

/// The streams of a selection, `bits` each.
std::vector<Stream> streams_of(const std::vector<std::vector<Rank>>& receivers, Fanout fanout,
                               double bits);
Cards cards_of(const SelectionProblem& problem);

}  // namespace selmcast
