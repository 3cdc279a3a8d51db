// How long peers have been silent, and how long without progress, over all streams of a rank.
//
// Streams of one rank share its link, so a stream may wait for long while others go first. That is
// no sign against its peer: what counts is what the peer does on any of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace selmcast {

/// Of a rank's peers in one direction: those that it sends to, or those that it hears. All its
/// sessions of that direction share one.
///
/// A peer is waited for from the first wait_for() to the last release(). It is overdue when it is
/// silent for the timeout, or makes no progress on any stream for a few of them. So a stream that
/// is broken for ever while others move holds its round up until the others have ended, and for
/// that time more; a round is finite, so this is bounded.
///
/// One thread. Allocates in the constructor only.
class PeerDeadlines {
 public:
  /// Receivers make progress within two timeouts.
  static PeerDeadlines of_receivers(std::uint32_t world, Duration timeout) {
    return {world, timeout, 2};
  }
  /// Senders within three: longer than a sender waits for the one receiver that holds it up.
  static PeerDeadlines of_senders(std::uint32_t world, Duration timeout) {
    return {world, timeout, 3};
  }

  /// One more stream waits for the peer. Only the first one starts its deadlines anew.
  void wait_for(Rank rank, TimePoint now) noexcept {
    Peer& peer = peers_[rank];
    if (peer.waiting++ == 0) peer.heard = peer.progressed = now;
  }
  /// One stream fewer; as often as wait_for().
  void release(Rank rank) noexcept { --peers_[rank].waiting; }

  void note_alive(Rank rank, TimePoint now) noexcept { peers_[rank].heard = now; }
  /// The peer moved on, or it is not the peer that is waited for.
  void progressed(Rank rank, TimePoint now) noexcept { peers_[rank].progressed = now; }

  /// This rank did not look for a while (its process was stopped), so nothing that it missed counts
  /// against anybody.
  void start_anew(TimePoint now) noexcept {
    for (Peer& peer : peers_) peer.heard = peer.progressed = now;
  }

  /// When the peer, which is waited for, is overdue unless it is heard or moves before.
  TimePoint expires(Rank rank) const noexcept {
    const Peer& peer = peers_[rank];
    return std::min(peer.heard + timeout_, peer.progressed + stall_);
  }
  bool silent(Rank rank, TimePoint now) const noexcept {
    return peers_[rank].heard + timeout_ <= now;
  }

  /// The peer was overdue in this round, which is over for it on all streams, those to come as
  /// well.
  void give_up(Rank rank, std::uint32_t epoch, std::uint32_t round) noexcept {
    peers_[rank].given_up = {true, epoch, round};
  }
  bool given_up(Rank rank, std::uint32_t epoch, std::uint32_t round) const noexcept {
    return peers_[rank].given_up == Round{true, epoch, round};
  }

 private:
  struct Round {
    bool any = false;
    std::uint32_t epoch = 0, round = 0;
    bool operator==(const Round&) const = default;
  };
  struct Peer {
    TimePoint heard{}, progressed{};
    std::uint32_t waiting = 0;  ///< Streams.
    Round given_up;             ///< The last one.
  };

  PeerDeadlines(std::uint32_t world, Duration timeout, int stall_timeouts)
      : timeout_(timeout), stall_(stall_timeouts * timeout), peers_(world) {}

  Duration timeout_, stall_;
  std::vector<Peer> peers_;
};

}  // namespace selmcast
