#include "sync/free/clocks.h"

#include <algorithm>

namespace selmcast {

namespace {
// A lost CLOCK frame costs the first of these; asking somebody who computes for long costs little.
constexpr Duration kAskFirst = std::chrono::milliseconds(2);
constexpr Duration kAskMax = std::chrono::milliseconds(50);
}  // namespace

Clocks::Clocks(Rank self, std::uint32_t world, Duration timeout)
    : self_(self), timeout_(timeout), peers_(world) {}

bool Clocks::learn(Rank rank, const ClockNews& news, TimePoint now) noexcept {
  Peer& peer = peers_[rank];
  bool changed = false;
  // A round belongs to one epoch, and a rank's rounds only grow, so the two move together.
  if (news.epoch > peer.news.epoch || news.round > peer.news.round) {
    peer.news.epoch = std::max(peer.news.epoch, news.epoch);
    peer.news.round = std::max(peer.news.round, news.round);
    changed = true;
  }
  if (news.steps > peer.news.steps) {
    peer.news.steps = news.steps;
    changed = true;
  }
  if (news.stopped && !peer.news.stopped) peer.news.stopped = changed = true;
  if (news.finished && !peer.news.finished) peer.news.finished = changed = true;
  if (changed) peer.moved = now;
  return changed;
}

bool Clocks::all_ended(std::uint32_t rounds) const noexcept {
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    const auto& news = peers_[rank].news;
    if (others(rank) && !news.stopped && news.round < rounds) return false;
  }
  return true;
}

bool Clocks::all_stopped() const noexcept {
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    if (others(rank) && !peers_[rank].news.stopped) return false;
  }
  return true;
}

bool Clocks::all_finished() const noexcept {
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    if (others(rank) && !peers_[rank].news.finished) return false;
  }
  return true;
}

bool Clocks::all_in(std::uint32_t epoch) const noexcept {
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    if (others(rank) && peers_[rank].news.epoch < epoch) return false;
  }
  return true;
}

void Clocks::wait_for(const Waits& waits, TimePoint now) noexcept {
  next_timer_ = kNever;
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    const ClockNews& news = peer.news;
    const bool behind = !news.stopped && (waits.stopped || news.round < waits.rounds);
    const bool held =
        others(rank) && (behind || (waits.finished && !news.finished) || news.epoch < waits.epoch);
    if (held && !peer.waited_for) {
      peer.heard = peer.moved = now;
      peer.interval = kAskFirst;
      peer.ask_at = now + kAskFirst;
    }
    peer.waited_for = held;
    if (!held) continue;
    next_timer_ = std::min(next_timer_, peer.ask_at);
    if (!peer.suspected) {
      next_timer_ = std::min({next_timer_, peer.heard + timeout_, peer.moved + 3 * timeout_});
    }
  }
}

std::optional<Rank> Clocks::to_ask(TimePoint now) noexcept {
  if (now < next_timer_) return std::nullopt;
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.waited_for || peer.ask_at > now) continue;
    peer.ask_at = now + peer.interval;
    peer.interval = std::min(2 * peer.interval, kAskMax);
    return rank;
  }
  return std::nullopt;
}

std::optional<Rank> Clocks::suspect(TimePoint now) noexcept {
  if (now < next_timer_) return std::nullopt;
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    if (!peer.waited_for || peer.suspected || !peer.alive) continue;
    if (peer.heard + timeout_ > now && peer.moved + 3 * timeout_ > now) continue;
    peer.suspected = true;
    return rank;
  }
  return std::nullopt;
}

}  // namespace selmcast
