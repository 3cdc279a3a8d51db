// What the sending loops do with their completion queue.
#pragma once

#include <array>
#include <cerrno>

#include "tools/perf/engines.h"

namespace selmcast::perf {

/// Polls up to `most` completions and gives each to take(), which says whether to go on. Returns
/// how many there were; negative: the queue failed, take() refused, or a completion is an error,
/// which is noted.
template <int most, class Take>
int reap(ibv_cq* cq, Fault& fault, Take take) noexcept {
  std::array<ibv_wc, most> completions;
  const int count = ibv_poll_cq(cq, most, completions.data());
  if (count < 0) fault.error = EIO;
  for (int i = 0; i < count; ++i) {
    const ibv_wc& completion = completions[static_cast<std::size_t>(i)];
    if (completion.status != IBV_WC_SUCCESS) {
      fault.status = completion.status;
      return -1;
    }
    if (!take(completion)) return -1;
  }
  return count;
}

}  // namespace selmcast::perf
