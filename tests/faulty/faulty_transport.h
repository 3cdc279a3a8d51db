// A decorator that makes any transport misbehave on its receiving side, seeded.
#pragma once

#include <memory>

#include "base/clock.h"
#include "transport/transport.h"

namespace selmcast {

/// Chances per received completion (a batch of frames that arrived back to back), each in [0, 1]
/// (CHECK).
struct FaultPlan {
  std::uint64_t seed = 1;
  double drop = 0.0;
  double duplicate = 0.0;  ///< Delivered twice.
  /// Held back behind the next few completions, or until a few polls in a row brought nothing new.
  double reorder = 0.0;
  double corrupt = 0.0;       ///< One bit flips (in a private copy, not in the lender's buffer).
  double backpressure = 0.0;  ///< Chance that post_sends() takes nothing this time.
};

/// Takes ownership of `inner`. Everything else passes through: counters are those of `inner`, send
/// and `lost` completions come unchanged. capabilities().loses_frames becomes true when the plan
/// drops, duplicates, reorders or corrupts. Room for private copies is bounded: with all of it
/// lent, a completion comes uncorrupted. Allocates at set-up only; adds no thread rule of its own.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const FaultPlan& plan);

}  // namespace selmcast
