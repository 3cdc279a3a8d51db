// Sleeping on a futex in shared memory, and waking a sleeper with a system call only when it
// sleeps.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/units.h"
#include "transport/shm/shm_layout.h"

namespace selmcast::shm {

/// FUTEX_WAIT on `word` while it is kAsleep, at most `at_most`.
void futex_sleep(std::atomic<std::uint32_t>& word, Duration at_most) noexcept;
/// FUTEX_WAKE of one waiter.
void futex_rouse(std::atomic<std::uint32_t>& word) noexcept;

/// Owner of the bell: sleeps unless `anything()` (evaluated with seq_cst loads after the
/// announcement) finds work. True if it was rung or had work. False when the time passed, or for a
/// stray wake-up: the system call of a ringer of an earlier sleep may come late.
template <class Anything>
bool sleep_on_bell(std::atomic<std::uint32_t>& bell, Duration at_most,
                   Anything&& anything) noexcept {
  // seq_cst: this store, then the loads in anything(); the other side stores its news, then loads
  // the bell in ring_bell(). In the total order one of the two stores comes before the other's
  // load.
  bell.store(kAsleep, std::memory_order_seq_cst);
  const bool found = anything();
  if (!found) futex_sleep(bell, at_most);
  // Relaxed: only rings between the announcement and here matter, and they are over.
  const bool rung = bell.exchange(kAwake, std::memory_order_relaxed) == kAwake;
  return found || rung;
}

/// Anyone, after a seq_cst store of the news. Async-signal-safe.
inline void ring_bell(std::atomic<std::uint32_t>& bell) noexcept {
  // seq_cst: pairs with the store in sleep_on_bell().
  if (bell.load(std::memory_order_seq_cst) != kAsleep) return;
  // Only one of several ringers makes the system call. A sleeper that has announced itself but is
  // not in the kernel yet finds kAwake there and does not sleep.
  if (bell.exchange(kAwake, std::memory_order_seq_cst) == kAsleep) futex_rouse(bell);
}

}  // namespace selmcast::shm
