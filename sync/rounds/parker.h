// Sleeping until a counter moves, with a deadline: the futex behind push() and wait().
#pragma once

#include <atomic>
#include <cstdint>

#include "base/units.h"

namespace selmcast {

/// Sleeps while `word` holds `seen`, at most `at_most`; may return early. The caller re-reads
/// `word` (acquire) afterwards.
void park(const std::atomic<std::uint32_t>& word, std::uint32_t seen, Duration at_most) noexcept;
/// Wakes every thread parked on `word`; call it after the store (release) that park() looks for.
void unpark(const std::atomic<std::uint32_t>& word) noexcept;

}  // namespace selmcast
