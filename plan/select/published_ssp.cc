#include "plan/select/published_ssp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace selmcast {
namespace {

class SspHeuristic {
 public:
  SspHeuristic(const SspSelection& problem, std::vector<OpenMulticast>& open)
      : problem_(problem),
        open_(open),
        load_(problem.p.size()),
        longest_(open.size()),
        summed_(open.size()),
        kept_(open.size()) {
    for (const auto& multicast : open) {
      SELMCAST_CHECK(multicast.sender < problem.p.size(), "a sender is a rank");
    }
    for (std::size_t m = 0; m < open.size(); ++m) kept_[m].resize(open[m].targets.size());
  }

  void run() {
    keep_what_is_nearly_done();
    for (const auto m : by_blocked()) fill(m);
    set_deadlines();
    for (const auto& [m, at] : dropped_by_age()) add_if_free(m, at);
    for (std::size_t m = 0; m < open_.size(); ++m) cut(m);
  }

 private:
  struct Place {
    std::size_t multicast, at;
  };

  void keep(std::size_t m, std::size_t at) {
    const auto& target = open_[m].targets[at];
    kept_[m][at] = true;
    load_[target.receiver] += target.left;
    longest_[m] = std::max(longest_[m], target.left);
    summed_[m] += target.left;
  }
  std::uint64_t to_send(std::size_t m) const noexcept {
    return problem_.fanout == Fanout::unicast ? summed_[m] : longest_[m];
  }

  void keep_what_is_nearly_done() {
    const auto eta = static_cast<std::uint64_t>(std::lround(problem_.eta * 1024));
    for (std::size_t m = 0; m < open_.size(); ++m) {
      const auto& multicast = open_[m];
      for (std::size_t at = 0; at < multicast.targets.size(); ++at) {
        const auto& target = multicast.targets[at];
        SELMCAST_CHECK(target.receiver < load_.size(), "a receiver is a rank");
        if (target.forced || target.left == 0 || target.left * 1024 < eta * multicast.volume) {
          keep(m, at);
        }
      }
    }
  }

  std::vector<std::size_t> by_blocked() const {
    std::vector<std::size_t> order(open_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      return open_[b].blocked < open_[a].blocked;
    });
    return order;
  }

  /// What is missing to p, lightest receivers first.
  void fill(std::size_t m) {
    const auto& targets = open_[m].targets;
    const auto done = static_cast<std::size_t>(std::count(kept_[m].begin(), kept_[m].end(), true));
    const auto wanted = std::min<std::size_t>(problem_.p[open_[m].sender], targets.size());
    if (done >= wanted) return;
    struct Choice {
      TransferTime time;
      std::size_t at;
    };
    std::vector<Choice> choices;
    for (std::size_t at = 0; at < targets.size(); ++at) {
      if (kept_[m][at]) continue;
      const auto j = targets[at].receiver;
      choices.push_back({{targets[at].left + load_[j], problem_.rx_kbps[j]}, at});
    }
    const auto end = choices.begin() + static_cast<std::ptrdiff_t>(wanted - done);
    std::nth_element(choices.begin(), end - 1, choices.end(), [](const auto& a, const auto& b) {
      return a.time < b.time || (!(b.time < a.time) && a.at < b.at);
    });
    for (auto choice = choices.begin(); choice != end; ++choice) keep(m, choice->at);
  }

  void set_deadlines() {
    for (std::size_t m = 0; m < open_.size(); ++m) {
      auto& multicast = open_[m];
      const auto at_least = [&multicast](const TransferTime& time) {
        if (multicast.deadline < time) multicast.deadline = time;
      };
      multicast.deadline = multicast.blocked;
      at_least({to_send(m), problem_.tx_kbps[multicast.sender]});
      for (std::size_t at = 0; at < multicast.targets.size(); ++at) {
        const auto j = multicast.targets[at].receiver;
        if (kept_[m][at] && multicast.targets[at].left > 0) {
          at_least({load_[j], problem_.rx_kbps[j]});
        }
      }
    }
  }

  std::vector<Place> dropped_by_age() const {
    std::vector<Place> out;
    for (std::size_t m = 0; m < open_.size(); ++m) {
      for (std::size_t at = 0; at < kept_[m].size(); ++at) {
        if (!kept_[m][at]) out.push_back({m, at});
      }
    }
    std::stable_sort(out.begin(), out.end(),
                     [this](const Place& a, const Place& b) { return age_of(a) > age_of(b); });
    return out;
  }
  std::uint32_t age_of(const Place& place) const {
    return open_[place.multicast].targets[place.at].age;
  }

  void add_if_free(std::size_t m, std::size_t at) {
    const auto& multicast = open_[m];
    const auto& target = multicast.targets[at];
    const auto fits = [&multicast](std::uint64_t volume, Kbps rate) {
      return !(multicast.deadline < TransferTime{volume, rate});
    };
    const auto sent = problem_.fanout == Fanout::unicast ? summed_[m] + target.left
                                                         : std::max(longest_[m], target.left);
    if (!fits(sent, problem_.tx_kbps[multicast.sender])) return;
    if (!fits(load_[target.receiver] + target.left, problem_.rx_kbps[target.receiver])) return;
    keep(m, at);
  }

  void cut(std::size_t m) {
    auto& targets = open_[m].targets;
    std::size_t to = 0;
    for (std::size_t at = 0; at < targets.size(); ++at) {
      if (kept_[m][at]) targets[to++] = targets[at];
    }
    targets.resize(to);
  }

  const SspSelection& problem_;
  std::vector<OpenMulticast>& open_;
  std::vector<std::uint64_t> load_;              ///< Kept volume into each receiver.
  std::vector<std::uint64_t> longest_, summed_;  ///< Kept volume of each multicast.
  std::vector<std::vector<bool>> kept_;
};

}  // namespace

void select_published_ssp(const SspSelection& problem, std::vector<OpenMulticast>& open) {
  SspHeuristic(problem, open).run();
}

}  // namespace selmcast
