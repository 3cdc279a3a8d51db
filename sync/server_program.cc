#include "sync/server_program.h"

#include <algorithm>
#include <numeric>

namespace selmcast {
namespace {

/// rate / copies, lowering `least`.
void bound(RateFraction& least, Kbps rate, std::size_t copies) {
  if (copies == 0) return;
  const auto share = reduced(rate, copies);
  if (share < least) least = share;
}

}  // namespace

Result<ServerPlan> plan_servers(const View& view, std::uint32_t count) {
  const auto n = view.members.size();
  for (std::size_t m = 0; m < n; ++m) {
    if (view.rx_kbps[m] > 0) continue;
    return bad_input("no plan: rank " + std::to_string(view.members[m]) +
                     " has no available receive rate, and with route=ps every rank must hear the "
                     "servers; use route=star with mix=average");
  }
  const auto slower = [&](std::uint32_t m) { return std::min(view.tx_kbps[m], view.rx_kbps[m]); };
  ServerPlan out;
  out.servers.resize(n);
  std::iota(out.servers.begin(), out.servers.end(), 0U);
  std::stable_sort(out.servers.begin(), out.servers.end(),
                   [&](auto a, auto b) { return slower(a) > slower(b); });
  out.servers.resize(std::min<std::size_t>(count, n));
  std::sort(out.servers.begin(), out.servers.end());
  out.gather = {view.rx_kbps[out.servers.front()], 1};
  out.hand_out = {view.tx_kbps[out.servers.front()], 1};
  for (const auto s : out.servers) {
    bound(out.gather, view.rx_kbps[s], n - 1);
    bound(out.hand_out, view.tx_kbps[s], 1);
  }
  for (std::uint32_t m = 0; m < n; ++m) {
    const bool serves = std::binary_search(out.servers.begin(), out.servers.end(), m);
    const auto others = out.servers.size() - (serves ? 1 : 0);
    bound(out.gather, view.tx_kbps[m], others);
    bound(out.hand_out, view.rx_kbps[m], others);
  }
  return out;
}

Result<Program> server_program(const View& view, const Policy& policy, std::uint32_t self) {
  const auto plan = plan_servers(view, policy.servers);
  if (!plan) return plan.error();
  const auto shards = static_cast<std::uint32_t>(plan->servers.size());
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.period_k = 1;
  out.rate = out.rate_without_k = plan->gather < plan->hand_out ? plan->gather : plan->hand_out;
  RoundPlan gather, hand_out;
  gather.rate = plan->gather;
  hand_out.rate = plan->hand_out;
  hand_out.replaces = true;
  const auto base = first_group(view);
  for (std::uint32_t s = 0; s < shards; ++s) {
    const auto server = plan->servers[s];
    const Shard shard{s, shards};
    out.servers.push_back(view.members[server]);
    if (server == self) {
      for (std::uint32_t m = 0; m < view.members.size(); ++m) {
        if (m == self) continue;
        gather.senders.push_back(view.members[m]);
        gather.sender_shards.push_back(shard);
      }
      hand_out.multicast = true;
      hand_out.group = base + s;
      hand_out.receivers = gather.senders;
      hand_out.shards = {shard};
      out.send_groups = {hand_out.group};
    } else {
      gather.receivers.push_back(view.members[server]);
      gather.shards.push_back(shard);
      hand_out.senders.push_back(view.members[server]);
      hand_out.sender_shards.push_back(shard);
      out.receive_groups.push_back(base + s);
    }
  }
  out.cycle = {std::move(gather), std::move(hand_out)};
  // Every member but a server alone is in a group per server.
  out.group_entries_max = view.members.size() > shards ? shards : shards - 1;
  return out;
}

}  // namespace selmcast
