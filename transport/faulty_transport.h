// A decorator that makes any transport misbehave on its receiving side, seeded.
#pragma once

#include <memory>

#include "base/clock.h"
#include "transport/transport.h"

namespace selmcast {

/// Chances per received completion (a batch of frames that arrived back to back).
struct FaultPlan {
  std::uint64_t seed = 1;
  double drop = 0.0;
  double duplicate = 0.0;   ///< Delivered twice.
  double reorder = 0.0;     ///< Held back behind the next few completions.
  double corrupt = 0.0;     ///< One bit flips (in a private copy, not in the lender's buffer).
  double backpressure = 0.0;  ///< Chance that post_sends() takes nothing this time.
};

/// Takes ownership of `inner`. Everything else passes through.
std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const FaultPlan& plan);

}  // namespace selmcast
