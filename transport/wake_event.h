// The descriptor that ends a wait of a transport that sleeps in the kernel.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace selmcast {

/// An eventfd(2). `blocking`: reads of it wait, which is what io_uring wants.
Result<UniqueFd> make_wake_event(bool blocking);

/// Makes it readable. Thread-safe, async-signal-safe.
void ring_wake_event(const UniqueFd& event) noexcept;

}  // namespace selmcast
