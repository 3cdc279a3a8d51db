// The selecting rank of pace=ssp:s,eta against TSC 2024 Algorithm 2 written out pair by pair, with
// senders that keep their own books and messages that are lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/random.h"
#include "plan/online/controller.h"

namespace selmcast {
namespace {

using std::chrono::microseconds;

constexpr std::uint64_t kCopyBits = 1'000'000;
constexpr Kbps kCardKbps = 100'000;

/// a / b, compared exactly; what is used here keeps products below 2^63.
struct Ratio {
  std::uint64_t a = 0, b = 1;
  bool operator<=(const Ratio& other) const { return a * other.b <= other.a * b; }
  bool operator<(const Ratio& other) const { return a * other.b < other.a * b; }
};

/// What a sender knows of its round, which is all that the algorithm is about.
struct Sending {
  bool open = false;
  std::uint32_t round = 0;
  std::uint64_t number = 0;            ///< Of the plan it follows.
  std::map<Rank, std::uint64_t> left;  ///< Its receivers.
  std::set<Rank> forced;
};

struct Cluster {
  std::uint32_t n = 0, p = 0, k = 0;
  std::uint64_t eta_in_quarters = 0;
  std::vector<Kbps> rx;
  std::vector<Sending> senders;
  std::vector<std::vector<std::uint32_t>> age;  ///< Rounds of the sender.

  std::uint64_t load(const std::vector<std::set<Rank>>& y, Rank j) const {
    std::uint64_t sum = 0;
    for (Rank i = 0; i < n; ++i) sum += y[i].contains(j) ? senders[i].left.at(j) : 0;
    return sum;
  }
  std::uint64_t longest(Rank i, const std::set<Rank>& to) const {
    std::uint64_t most = 0;
    for (const Rank j : to) most = std::max(most, senders[i].left.at(j));
    return most;
  }

  /// Lines 3 to 6: due by k, delivered, or less than eta left.
  std::vector<std::set<Rank>> kept() const {
    std::vector<std::set<Rank>> y(n);
    for (Rank i = 0; i < n; ++i) {
      for (const auto& [j, left] : senders[i].left) {
        const bool little = 4 * left < eta_in_quarters * kCopyBits;
        if (senders[i].forced.contains(j) || little || left == 0) y[i].insert(j);
      }
    }
    return y;
  }

  /// Up to p receivers, the lightest first, for the senders that are held up longest first.
  void fill(std::vector<std::set<Rank>>& y, const std::vector<Ratio>& blocked) const {
    std::vector<Rank> order;
    for (Rank i = 0; i < n; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](Rank a, Rank b) { return blocked[b] < blocked[a]; });
    for (const Rank i : order) {
      while (y[i].size() < p && y[i].size() < senders[i].left.size()) {
        std::optional<Rank> best;
        Ratio least;
        for (const auto& [j, left] : senders[i].left) {
          if (y[i].contains(j)) continue;
          const Ratio time{left + load(y, j), rx[j]};
          if (best && least <= time) continue;
          best = j;
          least = time;
        }
        y[i].insert(*best);
      }
    }
  }

  std::vector<std::set<Rank>> algorithm_2(const std::vector<Ratio>& blocked) const {
    auto y = kept();
    fill(y, blocked);
    std::vector<Ratio> deadline(n);
    for (Rank i = 0; i < n; ++i) {
      deadline[i] = blocked[i];
      const Ratio sent{longest(i, y[i]), kCardKbps};
      if (deadline[i] < sent) deadline[i] = sent;
      for (const Rank j : y[i]) {
        const Ratio heard{load(y, j), rx[j]};
        if (senders[i].left.at(j) > 0 && deadline[i] < heard) deadline[i] = heard;
      }
    }
    struct Pair {
      Rank i, j;
    };
    std::vector<Pair> dropped;
    for (Rank i = 0; i < n; ++i) {
      for (const auto& [j, left] : senders[i].left) {
        if (!y[i].contains(j)) dropped.push_back({i, j});
      }
    }
    std::stable_sort(dropped.begin(), dropped.end(),
                     [&](const Pair& a, const Pair& b) { return age[a.i][a.j] > age[b.i][b.j]; });
    for (const auto& [i, j] : dropped) {
      y[i].insert(j);
      const bool sends = Ratio{longest(i, y[i]), kCardKbps} <= deadline[i];
      const bool hears = Ratio{load(y, j), rx[j]} <= deadline[i];
      if (!sends || !hears) y[i].erase(j);
    }
    return y;
  }
};

class Play {
 public:
  explicit Play(std::uint64_t seed) : rng_(mix_seed(seed)), seed_(seed) {
    w_.n = static_cast<std::uint32_t>(3 + rng_.below(7));
    w_.p = static_cast<std::uint32_t>(1 + rng_.below(w_.n - 1));
    w_.k = static_cast<std::uint32_t>(rng_.below(5));
    w_.eta_in_quarters = rng_.below(5);
    w_.senders.resize(w_.n);
    w_.age.assign(w_.n, std::vector<std::uint32_t>(w_.n, 0));
    for (Rank r = 0; r < w_.n; ++r) w_.rx.push_back(kCardKbps / (1 + rng_.below(10)));
    slack_ = static_cast<std::uint32_t>(rng_.below(3));
    loss_ = rng_.below(2) == 0 ? 0.0 : 0.3;
  }

  void run() {
    OnlineController c(w_.n, kCopyBits);
    c.configure(1, {w_.p, w_.k, slack_, static_cast<double>(w_.eta_in_quarters) / 4});
    for (Rank r = 0; r < w_.n; ++r) c.set_rates(r, kCardKbps, w_.rx[r]);
    for (int step = 0; step < 150 && !testing::Test::HasFatalFailure(); ++step) {
      const TimePoint now(microseconds(1500 * step));
      for (Rank r = 0; r < w_.n; ++r) act(c, r, now);
      decide(c, now);
      for (Rank r = 0; r < w_.n; ++r) tell(c, r, now);
    }
    EXPECT_GT(ends_, 20U) << "seed " << seed_;
  }

 private:
  void act(OnlineController& c, Rank r, TimePoint now) {
    auto& mine = w_.senders[r];
    if (!mine.open) {
      if (rng_.below(3) == 0) request(c, r, now);
      return;
    }
    if (mine.number == 0 || rng_.below(2) == 0) return;  // Has no plan, or is slow.
    bool done = true;
    for (auto& [to, left] : mine.left) {
      left -= std::min(left, kCopyBits / (1 + rng_.below(8)));
      done = done && left == 0;
    }
    if (done) return end(c, r);
    std::vector<OnlineController::Target> targets;
    for (const auto& [to, left] : mine.left) targets.push_back({to, 0, left});
    // The books below are compared, so reports are not lost here.
    c.report(now, r, 1, mine.round, targets, mine.number, false);
  }

  void request(OnlineController& c, Rank r, TimePoint now) {
    auto& mine = w_.senders[r];
    mine.open = true;
    mine.number = 0;
    std::vector<OnlineController::Target> targets;
    for (Rank to = 0; to < w_.n; ++to) {
      if (to == r) continue;
      targets.push_back({to, w_.age[r][to], kCopyBits});
      mine.left[to] = kCopyBits;
      if (w_.k > 0 && w_.age[r][to] >= w_.k) mine.forced.insert(to);
    }
    c.request(now, r, 1, mine.round, targets);
    started_ = true;
  }

  void end(OnlineController& c, Rank r) {
    auto& mine = w_.senders[r];
    EXPECT_GE(mine.left.size(), w_.p) << "seed " << seed_;
    for (Rank to = 0; to < w_.n; ++to) {
      if (to == r) continue;
      w_.age[r][to] = mine.left.contains(to) ? 0 : w_.age[r][to] + 1;
      EXPECT_TRUE(w_.k == 0 || w_.age[r][to] <= w_.k) << "seed " << seed_;
    }
    c.ended(r, ++mine.round, false);
    mine.open = false;
    mine.left.clear();
    mine.forced.clear();
    ++ends_;
  }

  /// The decision is the algorithm's, from what senders know. Those that missed a plan still send
  /// to more than it says; then only the controller knows what it chose among.
  void decide(OnlineController& c, TimePoint now) {
    bool agreed = true;
    std::vector<Ratio> blocked(w_.n);
    for (Rank r = 0; r < w_.n; ++r) {
      if (!w_.senders[r].open) continue;
      agreed = agreed && (w_.senders[r].number == c.of(r).number || c.of(r).started);
      const auto ms = c.blocked(r, now).value();
      blocked[r] = {static_cast<std::uint64_t>(std::llround(ms * 1000)), 1000};
    }
    const auto want = w_.algorithm_2(blocked);
    const bool starts = std::exchange(started_, false);
    c.decide(now);
    if (!starts || !agreed) return;
    ++compared_;
    for (Rank r = 0; r < w_.n; ++r) {
      if (!w_.senders[r].open) continue;
      std::set<Rank> got;
      for (const auto& target : c.of(r).targets) got.insert(target.receiver);
      ASSERT_EQ(got, want[r]) << "sender " << r << ", seed " << seed_;
    }
  }

  void tell(OnlineController& c, Rank r, TimePoint now) {
    auto& mine = w_.senders[r];
    if (mine.open && mine.number == 0 && !c.of(r).news) {
      c.request(now, r, 1, mine.round, {});  // Asks again; its plan was lost.
    }
    if (!c.to_tell(r)) return;
    const bool changed = c.of(r).changed;
    const auto number = c.issue(r);
    if (changed) {
      ASSERT_GT(number, last_number_) << "seed " << seed_;
    }
    last_number_ = std::max(last_number_, number);
    if (rng_.chance(loss_)) return;
    ASSERT_GE(number, mine.number);
    mine.number = number;
    std::set<Rank> plan;
    for (const auto& target : c.of(r).targets) {
      ASSERT_TRUE(mine.left.contains(target.receiver)) << "came back; seed " << seed_;
      plan.insert(target.receiver);
    }
    std::erase_if(mine.left, [&](const auto& one) { return !plan.contains(one.first); });
    ASSERT_GE(c.of(r).rate, 1U);
    ASSERT_LE(c.of(r).rate, kCardKbps);
  }

  SplitMix64 rng_;
  std::uint64_t seed_;
  Cluster w_;
  std::uint32_t slack_ = 0;
  double loss_ = 0.0;
  bool started_ = false;
  std::uint64_t last_number_ = 0;

 public:
  std::uint32_t ends_ = 0, compared_ = 0;
};

TEST(OnlineReplay, DecidesAsAlgorithm2AndServesEveryPairInTime) {
  std::uint32_t compared = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Play play(seed);
    play.run();
    compared += play.compared_;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(compared, 2000U);
}

}  // namespace
}  // namespace selmcast
