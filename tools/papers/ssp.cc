#include "tools/papers/ssp.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "plan/select/published_ssp.h"
#include "tools/papers/fluid.h"

namespace selmcast {
namespace {

constexpr double kJitterMs = 100.0;
constexpr double kHair = 1e-6;  ///< Milliseconds and bits below this are rounding errors.

enum class Phase : std::uint8_t { held, computing, sending };

struct Sender {
  Phase phase = Phase::held;
  double ends = 0.0;  ///< Of computing.
  std::uint32_t done = 0;
  std::vector<Stream> streams;     ///< One, or one per receiver.
  std::vector<bool> chosen;        ///< Receivers of the multicast under way, delivered or not.
  std::vector<bool> dropped;       ///< Of the multicast under way.
  std::vector<std::uint32_t> age;  ///< Rounds since each receiver was reached.
  double deadline = 0.0;           ///< Absolute, as of the last selection.
};

class Simulation {
 public:
  explicit Simulation(const SspConfig& config)
      : c_(config),
        n_(static_cast<std::uint32_t>(config.tx_kbps.size())),
        random_(mix_seed(~config.seed)),
        senders_(n_) {
    SELMCAST_CHECK(c_.rx_kbps.size() == n_ && c_.p >= 1 && c_.p < n_, "sizes agree");
    SELMCAST_CHECK(c_.compute_scale.empty() || c_.compute_scale.size() == n_, "sizes agree");
    for (auto& sender : senders_) sender.age.assign(n_, 0);
    selection_.p.assign(n_, c_.p);
    selection_.fanout = c_.fanout;
    selection_.eta = c_.eta;
    draw_links();
    out_.rounds.resize(n_);
  }

  SspOutcome run() {
    while (now_ < c_.horizon_ms) {
      if (settle() || stream_ended_) share_links();
      stream_ended_ = false;
      const double next = std::min(next_event(), c_.horizon_ms);
      pass(next - now_);
      now_ = next;
      if (c_.jitter > 0.0 && now_ + kHair >= next_jitter_) {
        draw_links();
        share_links();
      }
    }
    return finish();
  }

 private:
  void draw_links() {
    next_jitter_ = now_ + kJitterMs;
    const auto draw = [this](Kbps fixed) {
      const double rate = static_cast<double>(fixed);
      if (c_.jitter == 0.0) return rate;
      const double fresh = c_.mean_kbps * (1.0 + c_.spread * (2.0 * random_.unit() - 1.0));
      return std::max(1.0, (1.0 - c_.jitter) * rate + c_.jitter * fresh);
    };
    cards_.tx.resize(n_);
    cards_.rx.resize(n_);
    selection_.tx_kbps.resize(n_);
    selection_.rx_kbps.resize(n_);
    for (Rank r = 0; r < n_; ++r) {
      cards_.tx[r] = draw(c_.tx_kbps[r]);
      cards_.rx[r] = draw(c_.rx_kbps[r]);
      selection_.tx_kbps[r] = static_cast<Kbps>(std::max(1.0, std::floor(cards_.tx[r])));
      selection_.rx_kbps[r] = static_cast<Kbps>(std::max(1.0, std::floor(cards_.rx[r])));
    }
    mean_rx_ = std::accumulate(cards_.rx.begin(), cards_.rx.end(), 0.0) / n_;
  }

  /// Everything that happens at this moment; true when rates must be shared out anew.
  bool settle() {
    bool changed = false, started = false, moved = true;
    while (moved) {
      moved = false;
      for (Rank i = 0; i < n_; ++i) {
        auto& sender = senders_[i];
        if (sender.phase == Phase::sending && delivered_all(sender)) {
          end_multicast(i);
          moved = changed = true;
        }
        if (sender.phase == Phase::computing && sender.ends <= now_ + kHair) {
          start_multicast(i);
          moved = changed = started = true;
        }
      }
      moved = release() || moved;
    }
    if (started && c_.selmcast) reselect();
    return changed;
  }

  bool release() {
    std::uint32_t least = senders_.front().done;
    for (const auto& sender : senders_) least = std::min(least, sender.done);
    bool released = false;
    for (Rank i = 0; i < n_; ++i) {
      auto& sender = senders_[i];
      if (sender.phase != Phase::held || sender.done - least > c_.ssp) continue;
      const double scale = c_.compute_scale.empty() ? 1.0 : c_.compute_scale[i];
      sender.phase = Phase::computing;
      sender.ends = now_ + scale * c_.compute_ms * compute_time(c_.model, c_.seed, i, sender.done);
      out_.most_ahead = std::max(out_.most_ahead, sender.done - least);
      released = true;
    }
    return released;
  }

  static bool delivered_all(const Sender& sender) {
    return std::all_of(sender.streams.begin(), sender.streams.end(),
                       [](const Stream& stream) { return stream.left <= 0.0; });
  }

  bool overdue(const Sender& sender, Rank j) const noexcept {
    return c_.k > 0 && sender.age[j] >= c_.k;
  }

  void start_multicast(Rank i) {
    auto& sender = senders_[i];
    sender.phase = Phase::sending;
    sender.chosen.assign(n_, c_.selmcast);
    sender.chosen[i] = false;
    sender.dropped.assign(n_, false);
    sender.deadline = now_;
    if (!c_.selmcast) choose_at_random(i);
    set_streams(i, std::vector<double>(n_, c_.volume_bits));
  }

  void choose_at_random(Rank i) {
    auto& sender = senders_[i];
    std::vector<Rank> rest;
    std::uint32_t taken = 0;
    for (Rank j = 0; j < n_; ++j) {
      if (j == i) continue;
      if (overdue(sender, j)) {
        sender.chosen[j] = true;
        ++taken;
      } else {
        rest.push_back(j);
      }
    }
    for (; taken < c_.p; ++taken) {
      const auto pick = random_.below(static_cast<std::uint32_t>(rest.size()));
      sender.chosen[rest[pick]] = true;
      rest[pick] = rest.back();
      rest.pop_back();
    }
  }

  /// Receivers that replicas of one stream reach at rates of their own.
  bool replicated() const noexcept {
    return c_.selmcast && c_.own_rates && c_.fanout == Fanout::multicast;
  }
  bool apart() const noexcept { return c_.fanout == Fanout::unicast || replicated(); }

  /// Streams to the chosen receivers, of whom each lacks left[j] bits.
  void set_streams(Rank i, const std::vector<double>& left) {
    auto& sender = senders_[i];
    sender.streams.clear();
    Stream all{i, {}, 0.0, 0.0, 0.0};
    for (Rank j = 0; j < n_; ++j) {
      if (!sender.chosen[j]) continue;
      if (apart()) {
        sender.streams.push_back({i, {j}, left[j], 0.0, 0.0});
      } else {
        all.receivers.push_back(j);
        all.left = left[j];
      }
    }
    if (!apart()) sender.streams.push_back(std::move(all));
  }

  std::vector<double> left_of(const Sender& sender) const {
    std::vector<double> left(n_);
    for (const auto& stream : sender.streams) {
      for (const auto j : stream.receivers) left[j] = std::max(stream.left, 0.0);
    }
    return left;
  }

  void end_multicast(Rank i) {
    auto& sender = senders_[i];
    for (Rank j = 0; j < n_; ++j) {
      if (j == i) continue;
      ++sender.age[j];
      if (!sender.chosen[j]) continue;
      out_.worst_gap = std::max(out_.worst_gap, sender.age[j]);
      sender.age[j] = 0;
      ++receivers_;
    }
    ++out_.multicasts;
    ++sender.done;
    sender.phase = Phase::held;
    sender.streams.clear();
  }

  /// How long the bound would still hold up `i` if its multicast had ended.
  TransferTime blocked(Rank i) const {
    const auto done = senders_[i].done + 1;
    double ms = 0.0;
    for (const auto& other : senders_) {
      if (c_.ssp == SspConfig::kNoBound || done <= other.done + c_.ssp) continue;
      const double rest = other.phase == Phase::sending
                              ? other.deadline - now_
                              : other.ends - now_ + c_.p * c_.volume_bits / mean_rx_;
      ms = std::max(ms, rest);
    }
    return {static_cast<std::uint64_t>(std::llround(std::max(ms, 0.0) * 1000.0)), 1000};
  }

  void reselect() {
    std::vector<OpenMulticast> open;
    for (Rank i = 0; i < n_; ++i) {
      const auto& sender = senders_[i];
      if (sender.phase != Phase::sending) continue;
      OpenMulticast one;
      one.sender = i;
      one.volume = static_cast<std::uint64_t>(std::llround(c_.volume_bits));
      one.blocked = blocked(i);
      for (const auto& stream : sender.streams) {
        const auto left = static_cast<std::uint64_t>(std::ceil(std::max(stream.left, 0.0)));
        for (const auto j : stream.receivers) {
          one.targets.push_back({j, left, sender.age[j], overdue(sender, j)});
        }
      }
      open.push_back(std::move(one));
    }
    select_published_ssp(selection_, open);
    for (const auto& one : open) apply(one);
  }

  void apply(const OpenMulticast& one) {
    auto& sender = senders_[one.sender];
    const auto left = left_of(sender);
    const auto before = sender.chosen;
    std::fill(sender.chosen.begin(), sender.chosen.end(), false);
    for (const auto& target : one.targets) {
      sender.chosen[target.receiver] = true;
      out_.added_again += sender.dropped[target.receiver] ? 1 : 0;
    }
    for (Rank j = 0; j < n_; ++j) {
      if (before[j] && !sender.chosen[j]) sender.dropped[j] = true;
    }
    sender.deadline = now_ + one.deadline.value();
    set_streams(one.sender, left);
  }

  void share_links() {
    std::vector<Sender*> order;
    for (auto& sender : senders_) {
      if (sender.phase == Phase::sending) order.push_back(&sender);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Sender* a, const Sender* b) { return a->deadline < b->deadline; });
    std::vector<Stream*> streams;
    for (auto* sender : order) {
      for (auto& stream : sender->streams) {
        stream.deadline = sender->deadline - now_;
        if (stream.left > 0.0) streams.push_back(&stream);
      }
    }
    if (replicated()) {
      replicated_rates(cards_, streams);
    } else if (c_.selmcast) {
      deadline_rates(cards_, streams);
    } else {
      max_min_rates(cards_, streams);
    }
  }

  double next_event() const {
    double next = c_.jitter > 0.0 ? next_jitter_ : kInfinite;
    for (const auto& sender : senders_) {
      if (sender.phase == Phase::computing) next = std::min(next, sender.ends);
      for (const auto& stream : sender.streams) {
        if (stream.left > 0.0 && stream.rate > 0.0) {
          next = std::min(next, now_ + stream.left / stream.rate);
        }
      }
    }
    SELMCAST_CHECK(next < kInfinite, "somebody computes or sends");
    return std::max(next, now_);
  }

  void pass(double ms) {
    for (auto& sender : senders_) {
      if (sender.phase == Phase::computing) computed_ms_ += ms;
      for (auto& stream : sender.streams) {
        if (stream.left <= 0.0) continue;
        stream.left -= stream.rate * ms;
        // What takes less than a hair at this rate is a rounding error.
        if (stream.left <= std::max(1.0, stream.rate * kHair)) {
          stream.left = 0.0;
          stream_ended_ = true;
        }
      }
    }
  }

  SspOutcome finish() {
    for (Rank i = 0; i < n_; ++i) {
      out_.rounds[i] = senders_[i].done;
      for (Rank j = 0; j < n_; ++j) {
        if (j != i) out_.worst_gap = std::max(out_.worst_gap, senders_[i].age[j]);
      }
    }
    out_.utilisation = computed_ms_ / (c_.horizon_ms * n_);
    if (out_.multicasts > 0) {
      out_.receivers = static_cast<double>(receivers_) / static_cast<double>(out_.multicasts);
    }
    return std::move(out_);
  }

  const SspConfig& c_;
  std::uint32_t n_;
  SplitMix64 random_;
  std::vector<Sender> senders_;
  SspSelection selection_;
  Cards cards_;
  double mean_rx_ = 0.0;
  double now_ = 0.0, next_jitter_ = 0.0;
  double computed_ms_ = 0.0;
  std::uint64_t receivers_ = 0;
  bool stream_ended_ = false;
  SspOutcome out_;
};

}  // namespace

SspOutcome simulate_ssp(const SspConfig& config) {
  return Simulation(config).run();
}

}  // namespace selmcast
