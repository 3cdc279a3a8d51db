#include "plan/select/published.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/random.h"
#include "plan/select/explicit.h"
#include "plan/select/feasible.h"
#include "plan/select/rate.h"

namespace selmcast {
namespace {

/// A receiver as one sender sees it. `time` is the load over the rate with one rounding, so it
/// decides wherever two differ: both operands are below 2^53 and rounding is monotone.
struct Candidate {
  double time = 0.0;
  std::uint32_t tie = 0;
  Rank receiver = 0;
};

/// Both algorithms on one problem. n^2 bits and, in the second, 4 n^2 bytes.
class Heuristic {
 public:
  Heuristic(const SelectionProblem& problem, const std::vector<std::uint64_t>& volume,
            SenderOrder order, Ties ties)
      : problem_(problem),
        volume_(volume),
        n_(static_cast<std::uint32_t>(problem.p.size())),
        random_(mix_seed(problem.seed)),
        random_ties_(ties == Ties::random),
        largest_first_(order == SenderOrder::largest_first),
        receivers_(by_sender(problem.forced, n_)),
        chosen_(std::size_t{n_} * n_),
        load_(n_) {
    for (Rank i = 0; i < n_; ++i) {
      for (const auto j : receivers_[i]) take(i, j);
    }
    // Never open, so never taken.
    for (const auto& [i, j] : problem.forbidden) chosen_[std::size_t{i} * n_ + j] = true;
  }

  void run() {
    for (const auto i : senders()) fill(i);
    time_ = time();
    for (const auto pair : open_pairs()) add_if_free(pair / n_, pair % n_);
    for (auto& receivers : receivers_) std::sort(receivers.begin(), receivers.end());
  }
  std::vector<std::vector<Rank>>& receivers() noexcept { return receivers_; }
  /// The slowest sender or receiver.
  TransferTime time() const {
    TransferTime out;
    for (Rank r = 0; r < n_; ++r) {
      for (const auto& side : {TransferTime{sent_by(r), problem_.tx_kbps[r]},
                               TransferTime{load_[r], problem_.rx_kbps[r]}}) {
        if (side.volume > 0 && out < side) out = side;
      }
    }
    return out;
  }

 private:
  void take(Rank i, Rank j) {
    chosen_[std::size_t{i} * n_ + j] = true;
    load_[j] += volume_[i];
  }
  bool open(Rank i, Rank j) const {
    return j != i && problem_.rx_kbps[j] > 0 && !chosen_[std::size_t{i} * n_ + j];
  }
  std::uint64_t sent_by(Rank i) const noexcept {
    const auto degree = receivers_[i].size();
    return volume_[i] *
           (problem_.fanout == Fanout::unicast ? degree : std::min<std::size_t>(degree, 1));
  }

  std::vector<Rank> senders() {
    std::vector<Rank> out(n_);
    std::iota(out.begin(), out.end(), 0U);
    if (random_ties_) shuffle(out, 0, out.size());
    std::stable_sort(out.begin(), out.end(), [this](Rank a, Rank b) {
      if (largest_first_ && volume_[a] != volume_[b]) return volume_[a] > volume_[b];
      return receivers_[a].size() > receivers_[b].size();
    });
    return out;
  }

  /// Basic selection: the receivers whose load per rate would be least.
  void fill(Rank i) {
    if (receivers_[i].size() >= problem_.p[i]) return;
    candidates_.clear();
    for (Rank j = 0; j < n_; ++j) {
      if (!open(i, j)) continue;
      candidates_.push_back(
          {static_cast<double>(load_[j] + volume_[i]) / static_cast<double>(problem_.rx_kbps[j]),
           random_ties_ ? static_cast<std::uint32_t>(random_() >> 32U) : 0, j});
    }
    const auto lighter = [this, i](const Candidate& a, const Candidate& b) {
      if (a.time != b.time) return a.time < b.time;
      const TransferTime left{load_[a.receiver] + volume_[i], problem_.rx_kbps[a.receiver]};
      const TransferTime right{load_[b.receiver] + volume_[i], problem_.rx_kbps[b.receiver]};
      if (left < right) return true;
      if (right < left) return false;
      return a.tie != b.tie ? a.tie < b.tie : a.receiver < b.receiver;
    };
    const auto missing = static_cast<std::ptrdiff_t>(problem_.p[i] - receivers_[i].size());
    std::nth_element(candidates_.begin(), candidates_.begin() + missing - 1, candidates_.end(),
                     lighter);
    for (auto at = candidates_.begin(); at != candidates_.begin() + missing; ++at) {
      take(i, at->receiver);
      receivers_[i].push_back(at->receiver);
    }
  }

  std::uint32_t age_of(std::uint32_t pair) const {
    return problem_.age.empty() ? 0 : problem_.age[pair / n_][pair % n_];
  }
  void shuffle(std::vector<std::uint32_t>& list, std::size_t begin, std::size_t end) {
    for (auto left = end - begin; left > 1; --left) {
      std::swap(list[begin + left - 1],
                list[begin + random_.below(static_cast<std::uint32_t>(left))]);
    }
  }

  /// Pairs i*n+j that are not chosen, oldest first: a counting sort where ages are small.
  std::vector<std::uint32_t> open_pairs() {
    std::vector<std::uint32_t> out;
    std::uint32_t oldest = 0;
    for (Rank i = 0; i < n_; ++i) {
      for (Rank j = 0; j < n_; ++j) {
        if (!open(i, j)) continue;
        out.push_back(i * n_ + j);
        oldest = std::max(oldest, age_of(out.back()));
      }
    }
    if (random_ties_) shuffle(out, 0, out.size());
    if (oldest == 0) return out;
    if (oldest > out.size()) {
      std::stable_sort(out.begin(), out.end(),
                       [this](auto a, auto b) { return age_of(a) > age_of(b); });
      return out;
    }
    std::vector<std::uint32_t> start(oldest + 2), sorted(out.size());
    for (const auto pair : out) ++start[oldest - age_of(pair) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    for (const auto pair : out) sorted[start[oldest - age_of(pair)]++] = pair;
    return sorted;
  }

  /// Pareto improvement: the pair is added when the time stays. The candidate itself counts, which
  /// ICC's Algorithm 2, line 8, forgets and TSC's line 24 says.
  void add_if_free(Rank i, Rank j) {
    const auto fits = [this](std::uint64_t volume, Kbps rate) {
      return !(time_ < TransferTime{volume, rate});
    };
    const bool unicast = problem_.fanout == Fanout::unicast;
    if (!fits(load_[j] + volume_[i], problem_.rx_kbps[j])) return;
    if (unicast && !fits(sent_by(i) + volume_[i], problem_.tx_kbps[i])) return;
    take(i, j);
    receivers_[i].push_back(j);
  }

  const SelectionProblem& problem_;
  const std::vector<std::uint64_t>& volume_;
  std::uint32_t n_;
  SplitMix64 random_;
  bool random_ties_, largest_first_;
  std::vector<std::vector<Rank>> receivers_;
  std::vector<bool> chosen_;
  std::vector<std::uint64_t> load_;  ///< Volume into each receiver.
  std::vector<Candidate> candidates_;
  TransferTime time_;
};

Result<void> check_volumes(const SelectionProblem& problem,
                           const std::vector<std::uint64_t>& volume) {
  const auto n = problem.p.size();
  if (volume.size() != n) {
    return bad_input("volume has " + std::to_string(volume.size()) + " entries for " +
                     std::to_string(n) + " ranks");
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (volume[i] == 0 || volume[i] >= kRateLimit / n) {
      return bad_input("volume[" + std::to_string(i) + "] is " + std::to_string(volume[i]) +
                       "; allowed: 1 to 2^53 / n");
    }
    sum += volume[i];
  }
  if (sum >= kRateLimit / n) return bad_input("volume: n times the sum must stay below 2^53");
  sum = 0;
  for (const auto rate : problem.rx_kbps) sum += rate;
  if (sum >= kRateLimit) return bad_input("rx_kbps: the sum must stay below 2^53");
  return {};
}

TransferTime lower_bound_of(const SelectionProblem& problem,
                            const std::vector<std::uint64_t>& volume) {
  const auto n = static_cast<Rank>(volume.size());
  std::vector<Rank> fastest(n);
  std::iota(fastest.begin(), fastest.end(), 0U);
  std::stable_sort(fastest.begin(), fastest.end(),
                   [&](Rank a, Rank b) { return problem.rx_kbps[a] > problem.rx_kbps[b]; });
  std::vector<Rank> place(n);
  for (Rank at = 0; at < n; ++at) place[fastest[at]] = at;
  TransferTime total{0, 0}, out;
  for (Rank i = 0; i < n; ++i) {
    total.volume += problem.p[i] * volume[i];
    total.rate += problem.rx_kbps[i];
    const auto copies = problem.fanout == Fanout::unicast ? problem.p[i] : 1;
    const auto slowest = fastest[place[i] < problem.p[i] ? problem.p[i] : problem.p[i] - 1];
    for (const auto& bound : {TransferTime{copies * volume[i], problem.tx_kbps[i]},
                              TransferTime{volume[i], problem.rx_kbps[slowest]}}) {
      if (out < bound) out = bound;
    }
  }
  return out < total ? total : out;
}

}  // namespace

bool operator<(const TransferTime& a, const TransferTime& b) noexcept {
  return multiply(a.volume, b.rate) < multiply(b.volume, a.rate);
}

std::uint64_t VolumeSelection::total_receivers() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& list : receivers) sum += list.size();
  return sum;
}

Result<Selection> select_published(const SelectionProblem& problem) {
  return select_published(problem, Ties::by_index);
}

Result<Selection> select_published(const SelectionProblem& problem, Ties ties) {
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();
  const std::vector<std::uint64_t> volume(problem.p.size(), 1);
  Heuristic heuristic(problem, volume, SenderOrder::forced_first, ties);
  heuristic.run();
  Selection out;
  out.receivers = std::move(heuristic.receivers());
  SELMCAST_CHECK(rate_of(problem, out).has_value(), "receivers without rate were left out");
  return out;
}

Result<VolumeSelection> select_published_volumes(const SelectionProblem& problem,
                                                 const std::vector<std::uint64_t>& volume,
                                                 SenderOrder order, Ties ties) {
  if (auto valid = check_problem(problem); !valid) return valid.error();
  if (auto solvable = check_solvable(problem); !solvable) return solvable.error();
  if (auto valid = check_volumes(problem, volume); !valid) return valid.error();
  Heuristic heuristic(problem, volume, order, ties);
  heuristic.run();
  VolumeSelection out;
  out.time = heuristic.time();
  out.lower_bound = lower_bound_of(problem, volume);
  out.receivers = std::move(heuristic.receivers());
  return out;
}

std::vector<std::pair<Rank, Rank>> overdue_pairs(const std::vector<std::vector<std::uint32_t>>& age,
                                                 const std::vector<Kbps>& rx_kbps,
                                                 std::uint32_t k) {
  std::vector<std::pair<Rank, Rank>> out;
  for (Rank i = 0; i < age.size() && k > 0; ++i) {
    for (Rank j = 0; j < age.size(); ++j) {
      if (i != j && age[i][j] >= k && rx_kbps[j] > 0) out.emplace_back(i, j);
    }
  }
  return out;
}

}  // namespace selmcast
