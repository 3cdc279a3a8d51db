// What the transport leaves to the devices' own pacing.
#include <cstring>

#include "transport/verbs/verbs_backend.h"

namespace selmcast::verbs {

bool VerbsTransport::limit_rate(Kbps total) noexcept {
  // Frames go round the rails by turns; each carries its share of what the plan gives the rank.
  const Kbps share = (total + rails_.size() - 1) / rails_.size();
  bool all = true;
  for (const auto& rail : rails_) all = rail->sends().limit_rate(share) && all;
  return all;
}

std::vector<std::string> VerbsTransport::notices() const {
  std::vector<std::string> out = missing_;
  for (const auto& rail : rails_) {
    const int refused = rail->sends().rate_refused();
    if (refused == 0) continue;
    out.push_back(
        "verbs: " + rail->port().text() +
        " says that it can pace packets but refused the planned rate (" + std::strerror(refused) +
        "): this rank paces by itself; other programs may hold all of the device's rates");
  }
  return out;
}

}  // namespace selmcast::verbs
