#include "sync/select/chunks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "sync/select/feasible.h"
#include "sync/select/rate.h"

namespace selmcast {
namespace {

constexpr std::uint64_t kMostChunks = std::uint64_t{1} << 16U;

/// Flow of chunks from senders to receivers: at most chunks[i] from i to each j != i.
class ChunkFlow {
 public:
  ChunkFlow(const std::vector<std::uint32_t>& chunks, std::vector<std::uint32_t> slots)
      : n_(chunks.size()), chunks_(chunks), free_(std::move(slots)), flow_(n_ * n_) {}

  /// Sends `amount` from sender i; false when not all of it finds slots. Direct deliveries first,
  /// to the receivers with the most slots left; then augmenting paths, each as wide as it is.
  bool send(std::size_t i, std::uint64_t amount) {
    std::vector<std::size_t> order(n_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](std::size_t a, std::size_t b) { return free_[a] > free_[b]; });
    for (const auto j : order) {
      const auto width = std::min({amount, room(i, j), std::uint64_t{free_[j]}});
      move(i, j, static_cast<std::int64_t>(width));
      free_[j] -= static_cast<std::uint32_t>(width);
      amount -= width;
    }
    while (amount > 0) {
      const auto width = augment(i, amount);
      if (width == 0) return false;
      amount -= width;
    }
    return true;
  }
  std::uint32_t at(std::size_t i, std::size_t j) const { return flow_[i * n_ + j]; }

 private:
  std::uint64_t room(std::size_t i, std::size_t j) const {
    return i == j ? 0 : chunks_[i] - flow_[i * n_ + j];
  }
  void move(std::size_t i, std::size_t j, std::int64_t amount) {
    auto& f = flow_[i * n_ + j];
    f = static_cast<std::uint32_t>(f + amount);
  }
  /// A shortest path from sender i to a free slot; returns how much it carried.
  std::uint64_t augment(std::size_t source, std::uint64_t amount) {
    std::vector<std::size_t> sender_of(n_, n_), receiver_of(n_, n_), queue{source};
    std::vector<bool> seen(n_);
    seen[source] = true;
    for (std::size_t q = 0; q < queue.size(); ++q) {
      const auto i = queue[q];
      for (std::size_t j = 0; j < n_; ++j) {
        if (sender_of[j] < n_ || room(i, j) == 0) continue;
        sender_of[j] = i;
        if (free_[j] > 0) return carry(j, amount, sender_of, receiver_of);
        for (std::size_t other = 0; other < n_; ++other) {
          if (seen[other] || at(other, j) == 0) continue;
          seen[other] = true;
          receiver_of[other] = j;
          queue.push_back(other);
        }
      }
    }
    return 0;
  }
  std::uint64_t carry(std::size_t end, std::uint64_t amount,
                      const std::vector<std::size_t>& sender_of,
                      const std::vector<std::size_t>& receiver_of) {
    auto width = std::min<std::uint64_t>(amount, free_[end]);
    const auto walk = [&](const auto& step) {
      for (auto j = end; j < n_;) {
        const auto i = sender_of[j], before = receiver_of[i];
        step(i, j, before);
        j = before;
      }
    };
    walk([&](std::size_t i, std::size_t j, std::size_t before) {
      width = std::min(width, room(i, j));
      if (before < n_) width = std::min<std::uint64_t>(width, at(i, before));
    });
    const auto signed_width = static_cast<std::int64_t>(width);
    walk([&](std::size_t i, std::size_t j, std::size_t before) {
      move(i, j, signed_width);
      if (before < n_) move(i, before, -signed_width);
    });
    free_[end] -= static_cast<std::uint32_t>(width);
    return width;
  }

  std::size_t n_;
  std::vector<std::uint32_t> chunks_, free_, flow_;
};

Result<void> check(const ChunkProblem& problem) {
  SelectionProblem as_selection;
  as_selection.p = problem.p;
  as_selection.fanout = problem.fanout;
  as_selection.tx_kbps = problem.tx_kbps;
  as_selection.rx_kbps = problem.rx_kbps;
  if (auto valid = check_problem(as_selection); !valid) return valid;
  if (problem.bytes.size() != problem.p.size()) {
    return bad_input("bytes has " + std::to_string(problem.bytes.size()) + " entries for " +
                     std::to_string(problem.p.size()) + " ranks");
  }
  if (problem.chunk_bytes == 0) return bad_input("chunk_bytes is 0; a chunk has at least a byte");
  for (std::size_t i = 0; i < problem.bytes.size(); ++i) {
    const auto size = problem.bytes[i];
    if (size > 0 && (size - 1) / problem.chunk_bytes < kMostChunks) continue;
    return bad_input("bytes[" + std::to_string(i) + "] is " + std::to_string(size) +
                     "; with chunks of " + std::to_string(problem.chunk_bytes) +
                     " bytes it must make 1 to " + std::to_string(kMostChunks) + " chunks");
  }
  return check_solvable(as_selection);
}

/// The least t, in bytes per kbit/s, with sum_j min(t rx_j, limit_j) >= wanted; the limits of
/// receivers with rate suffice.
double least_time(const std::vector<Kbps>& rx, const std::vector<double>& limits, double wanted) {
  std::vector<std::size_t> order;
  double rates = 0.0;
  for (std::size_t j = 0; j < rx.size(); ++j) {
    if (rx[j] == 0 || limits[j] <= 0) continue;
    order.push_back(j);
    rates += static_cast<double>(rx[j]);
  }
  const auto full_at = [&](std::size_t j) { return limits[j] / static_cast<double>(rx[j]); };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return full_at(a) < full_at(b); });
  // Receivers get full one after the other; those that are not yet share what is left.
  for (const auto j : order) {
    if (wanted <= rates * full_at(j)) return wanted / rates;
    wanted -= limits[j];
    rates -= static_cast<double>(rx[j]);
  }
  return order.empty() ? 0.0 : full_at(order.back());
}

double lower_bound(const ChunkProblem& problem) {
  const auto n = problem.p.size();
  std::vector<std::size_t> by_p(n);
  std::iota(by_p.begin(), by_p.end(), std::size_t{0});
  std::stable_sort(by_p.begin(), by_p.end(),
                   [&](std::size_t a, std::size_t b) { return problem.p[a] > problem.p[b]; });
  double bound = 0.0, wanted = 0.0;
  std::vector<double> together(n);
  for (const auto i : by_p) {
    const auto size = static_cast<double>(problem.bytes[i]);
    const auto copies = problem.fanout == Fanout::unicast ? problem.p[i] : 1.0;
    bound = std::max(bound, copies * size / static_cast<double>(problem.tx_kbps[i]));
    std::vector<double> alone(n, size);
    alone[i] = 0.0;
    bound = std::max(bound, least_time(problem.rx_kbps, alone, problem.p[i] * size));
    // Those that want the most receivers, all together.
    for (std::size_t j = 0; j < n; ++j) together[j] += alone[j];
    wanted += problem.p[i] * size;
    bound = std::max(bound, least_time(problem.rx_kbps, together, wanted));
  }
  return bound;
}

/// The flow of all deliveries at the rate, if it exists.
std::optional<ChunkFlow> flow_at(const ChunkProblem& problem,
                                 const std::vector<std::uint32_t>& chunks, std::uint32_t all,
                                 const RateFraction& y) {
  ChunkFlow flow(chunks, slots_at(problem.rx_kbps, y, all));
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!flow.send(i, std::uint64_t{problem.p[i]} * chunks[i])) return std::nullopt;
  }
  return flow;
}

}  // namespace

std::vector<Rank> ChunkPlan::receivers(Rank sender, std::uint32_t chunk) const {
  std::vector<Rank> out;
  std::uint64_t before = 0;
  for (Rank j = 0; j < deliveries[sender].size(); ++j) {
    const auto first = static_cast<std::uint32_t>(before % chunks[sender]);
    const auto turn = chunk >= first ? chunk - first : chunk + chunks[sender] - first;
    if (turn < deliveries[sender][j]) out.push_back(j);
    before += deliveries[sender][j];
  }
  return out;
}

Result<ChunkPlan> plan_chunks(const ChunkProblem& problem) {
  if (auto sound = check(problem); !sound) return sound.error();
  const auto n = problem.p.size();
  ChunkPlan out;
  auto upper = RateFraction{kRateLimit, 1};
  for (std::size_t i = 0; i < n; ++i) {
    const auto count = static_cast<std::uint32_t>((problem.bytes[i] - 1) / problem.chunk_bytes + 1);
    out.chunks.push_back(count);
    const auto copies = problem.fanout == Fanout::unicast ? problem.p[i] : 1U;
    upper = std::min(upper, reduced(problem.tx_kbps[i], std::uint64_t{count} * copies));
  }
  // No receiver takes a chunk twice.
  const auto all = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      std::accumulate(out.chunks.begin(), out.chunks.end(), std::uint64_t{0}),
      std::numeric_limits<std::uint32_t>::max() - 1));
  const auto rate = best_rate(problem.rx_kbps, all, upper, [&](const RateFraction& y) {
    return flow_at(problem, out.chunks, all, y).has_value();
  });
  SELMCAST_CHECK(rate.has_value(), "a solvable problem has a rate");
  const auto flow = flow_at(problem, out.chunks, all, *rate);
  out.rate = *rate;
  for (std::size_t i = 0; i < n; ++i) {
    auto& row = out.deliveries.emplace_back();
    for (std::size_t j = 0; j < n; ++j) row.push_back(flow->at(i, j));
  }
  constexpr double kSeconds = 8.0 / 1000.0;  // Of a byte at one kbit/s.
  out.seconds = static_cast<double>(problem.chunk_bytes) * kSeconds *
                static_cast<double>(rate->den) / static_cast<double>(rate->num);
  out.lower_bound_seconds = lower_bound(problem) * kSeconds;
  return out;
}

}  // namespace selmcast
