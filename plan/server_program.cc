#include "plan/server_program.h"

#include <algorithm>
#include <numeric>

#include "plan/compile.h"

namespace selmcast {
namespace {

constexpr std::uint16_t kGather = 0, kHandOut = 1;

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
  out.rate = {view.rx_kbps[out.servers.front()], 1};
  for (std::uint32_t m = 0; m < n; ++m) {
    const std::size_t serves =
        std::binary_search(out.servers.begin(), out.servers.end(), m) ? 1 : 0;
    const auto others = out.servers.size() - serves;
    bound(out.rate, view.tx_kbps[m], others + serves);
    bound(out.rate, view.rx_kbps[m], others + serves * (n - 1));
  }
  return out;
}

Result<Program> server_program(const View& view, std::uint32_t servers, std::uint32_t self) {
  const auto plan = plan_servers(view, servers);
  if (!plan) return plan.error();
  const auto shards = static_cast<std::uint32_t>(plan->servers.size());
  std::vector<Rank> others = view.members;
  others.erase(others.begin() + self);
  Program out;
  out.epoch = view.epoch;
  out.members = view.members;
  out.phases = 2;
  out.period_k = 1;
  out.rate = out.rate_without_k = plan->rate;
  out.add_round(plan->rate);
  const auto base = first_group(view);
  for (std::uint32_t s = 0; s < shards; ++s) {
    const auto member = plan->servers[s];
    const Rank server = view.members[member];
    const Shard part{s, shards};
    out.needed.push_back(server);
    if (member == self) {
      for (const Rank from : others) out.receive({.phase = kGather, .part = part}, from);
      out.send({.source = Leg::Source::mean,
                .phase = kHandOut,
                .fed_by = kGather,
                .expects = static_cast<std::uint16_t>(others.size()),
                .part = part,
                .group = base + s},
               others);
      out.send_groups = {base + s};
    } else {
      out.send_each({.phase = kGather, .part = part}, {&server, 1});
      out.receive(
          {.combine = Leg::Combine::replace, .relayed = true, .phase = kHandOut, .part = part},
          server);
      out.receive_groups.push_back(base + s);
    }
  }
  // Every member but a server alone is in a group per server.
  out.group_entries_max = view.members.size() > shards ? shards : shards - 1;
  return out;
}

}  // namespace selmcast
