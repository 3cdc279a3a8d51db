// Failures of a round in a user's words.
#pragma once

#include "sync/rounds/windows.h"

namespace selmcast {

/// Ends the job: a sender's frames all arrived, but not as it sent them.
inline void fail_mismatch(const RoundContext& context, std::uint32_t round, Rank bad) {
  context.mail.fail(
      failed("rank " + std::to_string(context.config.self) + ": round " + std::to_string(round) +
             ": the data merged from rank " + std::to_string(bad) +
             " does not match that rank's digest; memory or a " + "network device corrupts data"));
  context.app.wake_all();
}

}  // namespace selmcast
