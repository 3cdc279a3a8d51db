#include "sync/planned_rate.h"

#include <algorithm>
#include <cmath>

namespace selmcast {

Kbps planned_rate(const EpochState& epoch, Rank self) {
  const Program& program = epoch.program;
  if (program.online) {
    const auto at = std::find(program.members.begin(), program.members.end(), self);
    if (at == program.members.end()) return 0;
    return program.online->tx_kbps[static_cast<std::size_t>(at - program.members.begin())];
  }
  double most = 0.0;
  for (std::size_t slot = 0; slot < program.cycle.size(); ++slot) {
    const auto lanes = static_cast<double>(epoch.lanes[slot].size());
    most = std::max(most, lanes * value_of(program.cycle[slot].rate));
  }
  // Rounded up, so that no lane is held below its rate.
  return static_cast<Kbps>(std::ceil(most));
}

}  // namespace selmcast
