// Failures of verbs in words that say what to do about them.
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "base/result.h"

namespace selmcast::verbs {

/// "; raise the locked-memory limit ..." for errors whose usual cause is known; empty otherwise.
std::string remedy_of_errno(int error);

/// "verbs: WHAT on WHERE failed: REASON; REMEDY", of kind unavailable where the machine lacks
/// something and failed otherwise.
Error set_up_error(const std::string& what, const std::string& where, int error);

/// What an error completion means, its usual cause, and what to do.
std::string explain_status(ibv_wc_status status);

}  // namespace selmcast::verbs
