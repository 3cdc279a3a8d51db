#include "sync/select/racks.h"

#include <algorithm>
#include <optional>
#include <string>

#include "sync/select/explicit.h"
#include "sync/select/feasible.h"
#include "sync/select/pair_flow.h"
#include "sync/select/rate.h"

namespace selmcast {
namespace {

using Lists = std::vector<std::vector<Rank>>;

constexpr int kTries = 24;                      // Rounds of prices for one rate.
constexpr std::uint64_t kMostPrice = 1 << 24U;  // Sums of prices of a selection fit 64 bits.

/// One problem with what its rates share.
struct Setting {
  const SelectionProblem& problem;
  const Racks& racks;
  std::uint32_t n;
  Lists forced, forbidden;
  std::vector<std::uint32_t> demand;
};

/// Prices of one transfer on each rack's links.
struct Prices {
  std::vector<std::uint64_t> up, down;
};

Result<void> check(const SelectionProblem& problem, const Racks& racks) {
  if (auto valid = check_problem(problem); !valid) return valid;
  const auto n = problem.p.size();
  if (problem.k > 0) return bad_input("k is not supported with racks; drop it");
  if (racks.rack_of.size() != n) {
    return bad_input("rack_of has " + std::to_string(racks.rack_of.size()) + " entries for " +
                     std::to_string(n) + " ranks");
  }
  if (racks.down_kbps.size() != racks.up_kbps.size()) {
    return bad_input("down_kbps has " + std::to_string(racks.down_kbps.size()) + " entries for " +
                     std::to_string(racks.up_kbps.size()) + " racks");
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (racks.rack_of[i] < racks.up_kbps.size()) continue;
    return bad_input("rack_of[" + std::to_string(i) + "] is " + std::to_string(racks.rack_of[i]) +
                     "; there are " + std::to_string(racks.up_kbps.size()) + " racks");
  }
  for (std::size_t r = 0; r < racks.up_kbps.size(); ++r) {
    if (std::max(racks.up_kbps[r], racks.down_kbps[r]) < kRateLimit) continue;
    return bad_input("up_kbps or down_kbps of rack " + std::to_string(r) +
                     " is 2^53 kbit/s or more");
  }
  return check_solvable(problem);
}

/// Receivers of one sender per rack.
std::vector<std::uint32_t> per_rack(const Racks& racks, const std::vector<Rank>& receivers) {
  std::vector<std::uint32_t> out(racks.up_kbps.size());
  for (const auto j : receivers) ++out[racks.rack_of[j]];
  return out;
}

bool fits(const Racks& racks, const RackLoad& load, const RateFraction& y) {
  for (std::size_t r = 0; r < load.up.size(); ++r) {
    if (load.up[r] > 0 && compare(racks.up_kbps[r], load.up[r], y) < 0) return false;
    if (load.down[r] > 0 && compare(racks.down_kbps[r], load.down[r], y) < 0) return false;
  }
  return true;
}

/// Links that carry too much become dearer, the more the worse.
void raise_prices(const Racks& racks, const RackLoad& load, const RateFraction& y, Prices& prices) {
  const auto raise = [&y](Kbps rate, std::uint64_t used, std::uint64_t& price) {
    if (used == 0 || compare(rate, used, y) >= 0) return;
    const auto carried = slots_at(rate, y, 0xFFFFFFFEU);
    price = std::min(kMostPrice, price + price * (used - carried) / used + 8);
  };
  for (std::size_t r = 0; r < load.up.size(); ++r) {
    raise(racks.up_kbps[r], load.up[r], prices.up[r]);
    raise(racks.down_kbps[r], load.down[r], prices.down[r]);
  }
}

/// What a pair between racks costs. With multicast the first receiver in a rack pays for all, so
/// the price is spread over those that the sender had there the last time.
std::vector<std::vector<std::uint64_t>> costs(const Setting& in, const Prices& prices,
                                              const Lists& last) {
  const bool multicast = in.problem.fanout == Fanout::multicast;
  std::vector<std::vector<std::uint64_t>> out(in.n, std::vector<std::uint64_t>(in.n));
  for (Rank i = 0; i < in.n; ++i) {
    const auto home = in.racks.rack_of[i];
    const auto before = per_rack(in.racks, last[i]);
    const auto outside = static_cast<std::uint32_t>(last[i].size()) - before[home];
    for (Rank j = 0; j < in.n; ++j) {
      const auto rack = in.racks.rack_of[j];
      if (rack == home) continue;
      out[i][j] = multicast
                      ? prices.up[home] / (outside + 1) + prices.down[rack] / (before[rack] + 1) + 1
                      : prices.up[home] + prices.down[rack];
    }
  }
  return out;
}

/// The cheapest pairs with exactly the demanded degrees, or nothing when members cannot have them.
std::optional<Lists> cheapest(const Setting& in, const RateFraction& y,
                              const std::vector<std::vector<std::uint64_t>>& cost) {
  auto slots = slots_at(in.problem.rx_kbps, y, in.n - 1);
  for (Rank i = 0; i < in.n; ++i) {
    for (const auto j : in.forced[i]) {
      if (slots[j] == 0) return std::nullopt;
    }
  }
  std::vector<std::uint32_t> load(in.n);
  for (const auto& list : in.forced) {
    for (const auto j : list) {
      if (++load[j] > slots[j]) return std::nullopt;
    }
  }
  // prefer_oldest() looks for the largest sum, so ages are what a pair is cheaper than the dearest.
  std::uint64_t dearest = 0;
  for (const auto& row : cost)
    dearest = std::max(dearest, *std::max_element(row.begin(), row.end()));
  std::vector<std::vector<std::uint32_t>> cheap(in.n, std::vector<std::uint32_t>(in.n));
  for (Rank i = 0; i < in.n; ++i) {
    for (Rank j = 0; j < in.n; ++j) cheap[i][j] = static_cast<std::uint32_t>(dearest - cost[i][j]);
  }
  PairFlow flow(std::move(slots), in.forced, in.forbidden);
  if (!flow.fill(in.demand, cheap)) return std::nullopt;
  flow.prefer_oldest(cheap);
  return flow.receivers();
}

/// Pairs at rate y within all limits, if the prices lead to some.
std::optional<Lists> pairs_at(const Setting& in, const RateFraction& y) {
  Prices prices{std::vector<std::uint64_t>(in.racks.up_kbps.size(), 64),
                std::vector<std::uint64_t>(in.racks.up_kbps.size(), 64)};
  Lists last(in.n);
  for (int turn = 0; turn < kTries; ++turn) {
    auto pairs = cheapest(in, y, costs(in, prices, last));
    if (!pairs) return std::nullopt;
    const auto load = rack_load(in.racks, in.problem.fanout, *pairs);
    if (fits(in.racks, load, y)) return pairs;
    raise_prices(in.racks, load, y, prices);
    last = std::move(*pairs);
  }
  return std::nullopt;
}

/// Adds pairs, oldest first, while the rate stays within all limits.
void add_pairs(const Setting& in, const RateFraction& y, Lists& pairs) {
  const auto& problem = in.problem;
  struct Open {
    std::uint32_t age;
    Rank sender, receiver;
  };
  std::vector<Open> open;
  std::vector<std::uint32_t> heard(in.n);
  for (Rank i = 0; i < in.n; ++i) {
    for (const auto j : pairs[i]) ++heard[j];
    for (const auto j : open_receivers(problem, i, pairs[i], in.forbidden[i])) {
      open.push_back({problem.age.empty() ? 0 : problem.age[i][j], i, j});
    }
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Open& a, const Open& b) { return a.age > b.age; });
  auto load = rack_load(in.racks, problem.fanout, pairs);
  const bool unicast = problem.fanout == Fanout::unicast;
  for (const auto& [age, i, j] : open) {
    const auto copies = unicast ? pairs[i].size() + 1 : 1;
    if (compare(problem.tx_kbps[i], copies, y) < 0) continue;
    if (compare(problem.rx_kbps[j], heard[j] + 1, y) < 0) continue;
    const auto home = in.racks.rack_of[i], rack = in.racks.rack_of[j];
    const auto before = per_rack(in.racks, pairs[i]);
    const bool crosses = rack != home;
    const bool leaves = crosses && (unicast || before[home] == pairs[i].size());
    const bool enters = crosses && (unicast || before[rack] == 0);
    if (leaves && compare(in.racks.up_kbps[home], load.up[home] + 1, y) < 0) continue;
    if (enters && compare(in.racks.down_kbps[rack], load.down[rack] + 1, y) < 0) continue;
    load.up[home] += leaves ? 1 : 0;
    load.down[rack] += enters ? 1 : 0;
    ++heard[j];
    pairs[i].insert(std::lower_bound(pairs[i].begin(), pairs[i].end(), j), j);
  }
}

}  // namespace

RackLoad rack_load(const Racks& racks, Fanout fanout, const Lists& receivers) {
  const auto count = racks.up_kbps.size();
  RackLoad out{std::vector<std::uint64_t>(count), std::vector<std::uint64_t>(count)};
  for (std::size_t i = 0; i < receivers.size(); ++i) {
    const auto home = racks.rack_of[i];
    const auto heard = per_rack(racks, receivers[i]);
    std::uint64_t copies = 0;
    for (std::size_t r = 0; r < count; ++r) {
      if (r == home || heard[r] == 0) continue;
      const auto entering = fanout == Fanout::unicast ? heard[r] : 1U;
      out.down[r] += entering;
      copies += entering;
    }
    out.up[home] += fanout == Fanout::unicast ? copies : std::min<std::uint64_t>(copies, 1);
  }
  return out;
}

Result<Selection> select_in_racks(const SelectionProblem& problem, const Racks& racks) {
  if (auto sound = check(problem, racks); !sound) return sound.error();
  const auto bound = select_exact(problem);
  if (!bound) return bound.error();
  const auto n = static_cast<std::uint32_t>(problem.p.size());
  Setting in{problem,  racks, n, by_sender(problem.forced, n), by_sender(problem.forbidden, n),
             problem.p};
  for (Rank i = 0; i < n; ++i) {
    in.demand[i] = std::max(in.demand[i], static_cast<std::uint32_t>(in.forced[i].size()));
  }
  std::vector<Kbps> rates = problem.rx_kbps;
  rates.insert(rates.end(), racks.up_kbps.begin(), racks.up_kbps.end());
  rates.insert(rates.end(), racks.down_kbps.begin(), racks.down_kbps.end());
  std::optional<Lists> best;
  const auto rate = best_rate(rates, n * (n - 1), bound->rate, [&](const RateFraction& y) {
    auto pairs = pairs_at(in, y);
    if (!pairs) return false;
    best = std::move(pairs);
    return true;
  });
  if (!rate) return bad_input("no selection was found within the limits of the racks");
  add_pairs(in, *rate, *best);
  Selection out;
  out.receivers = std::move(*best);
  SELMCAST_CHECK(rate_of(problem, out).has_value(), "receivers without rate were left out");
  // The racks may keep the rate below what the members alone could do.
  if (*rate < out.rate) out.bottleneck = {};
  out.rate = *rate;
  return out;
}

}  // namespace selmcast
