#include "probes/schedule.h"

#include <algorithm>
#include <map>

namespace selmcast {

bool ProbeStep::sends(Rank rank) const noexcept {
  return std::binary_search(senders.begin(), senders.end(), rank);
}
bool ProbeStep::receives(Rank rank) const noexcept {
  return std::binary_search(receivers.begin(), receivers.end(), rank);
}
bool ProbeStep::measures(Rank rank) const noexcept {
  return (measures_transmit && sends(rank)) || (measures_receive && receives(rank));
}

std::vector<ProbeStep> probe_schedule(std::span<const std::uint32_t> host_of_rank) {
  const auto world = static_cast<Rank>(host_of_rank.size());
  if (world < 2) return {};
  std::vector<Rank> everyone;
  std::map<std::uint32_t, std::vector<Rank>> hosts;
  for (Rank rank = 0; rank < world; ++rank) {
    everyone.push_back(rank);
    hosts[host_of_rank[rank]].push_back(rank);
  }
  if (hosts.size() == 1) return {{everyone, everyone, true, true, "all ranks of the one host"}};
  std::vector<ProbeStep> steps;
  for (const auto& [host, ranks] : hosts) {
    std::vector<Rank> others;
    std::set_difference(everyone.begin(), everyone.end(), ranks.begin(), ranks.end(),
                        std::back_inserter(others));
    const std::string name = "host " + std::to_string(host);
    if (hosts.size() == 2) {
      steps.push_back({ranks, others, true, true, "transmit of " + name});
    } else {
      steps.push_back({ranks, others, true, false, "transmit of " + name});
      steps.push_back({others, ranks, false, true, "receive of " + name});
    }
  }
  return steps;
}

}  // namespace selmcast
