// Program: what one rank does in each round of an epoch, compiled from a view and a policy. One
// flat form for every system: an array of legs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/shard.h"
#include "plan/select/selection.h"
#include "plan/view.h"

namespace selmcast {

inline constexpr std::uint32_t kNoGroup = ~std::uint32_t{0};

/// One transfer as this rank sees it. It moves one part of every layer of the registered
/// parameters.
///
/// Legs of one phase and layer share a stream, and in a round a rank is the sender of at most one
/// receive leg of a phase. A tree has one phase for the way up and one for the way down; a star has
/// the first only.
struct Leg {
  enum class Kind : std::uint8_t { send, receive };
  /// What a send leg sends of its part.
  enum class Source : std::uint8_t {
    snapshot,  ///< The own parameters as the round began.
    sum,       ///< The own values and what phase `fed_by` added to them, frame by frame, unscaled.
    mean,      ///< The same over the number of ranks in it; also what this rank ends with.
    arrived,   ///< What phase `fed_by` received, as soon as it is there (cut-through).
  };
  /// What a receive leg does with what arrives; the same for all of one phase and round.
  enum class Combine : std::uint8_t {
    add,      ///< Contributes to the mix.
    replace,  ///< Takes the place of the own parameters.
    forward,  ///< Is kept for a leg with source `arrived` only.
  };

  Kind kind = Kind::send;
  Source source = Source::snapshot;
  Combine combine = Combine::add;
  bool patch = false;    ///< A unicast copy beside the group that carries the rest.
  bool relayed = false;  ///< Of a receive leg: what comes depends on other ranks, too.
  std::uint16_t phase = 0;
  std::uint16_t fed_by = 0;  ///< Sources other than snapshot: the phase.
  /// Sources sum and mean: contributions that make a frame ready. Later ones are left out, so fewer
  /// than there are receive legs are a quorum.
  std::uint16_t expects = 0;
  Shard part = {};
  std::uint32_t group = kNoGroup;  ///< Of all peers; kNoGroup: by unicast, and there is one peer.
  std::uint32_t first_peer = 0;  ///< Receivers, or the one sender, ascending: Program::peers_of().
  std::uint32_t peer_count = 0;
};

/// One round: consecutive legs, and the common wire rate of each of them.
struct Round {
  std::uint32_t first_leg = 0;
  std::uint32_t leg_count = 0;
  RateFraction rate;
  bool below_p = false;  ///< This rank reaches fewer than p receivers.
};

/// What it takes to select receivers while rounds run (plan/online/); rates by member.
struct OnlineProgram {
  std::uint32_t p = 1, k = 0;
  double eta = 0.75;
  std::uint32_t first_group = 0;  ///< Of member 0; one per member.
  std::vector<Kbps> tx_kbps, rx_kbps;
};

/// Immutable once made. All ranks in it are job ranks, never the rank itself.
struct Program {
  std::uint32_t epoch = 0;
  std::vector<Rank> members;
  std::vector<Rank> needed;   ///< Without one of these no round begins: a new view is on its way.
  std::vector<Round> rounds;  ///< Round r of the job is rounds[slot_of(r)].
  std::vector<Leg> legs;
  std::vector<Rank> peers;
  std::uint16_t phases = 1;
  std::vector<std::uint32_t> send_groups;     ///< Every group this rank ever sends to, ascending.
  std::vector<std::uint32_t> receive_groups;  ///< To join before the first round, ascending.
  RateFraction rate;                          ///< The least of the rounds' rates.
  RateFraction rate_without_k;                ///< What it would be without the policy's k.
  std::uint32_t period_k = 0;             ///< Rounds until every pair was served; 0 = not bounded.
  std::uint32_t group_entries_max = 0;    ///< Most groups that any member is in at a time.
  std::uint32_t joins_per_round_max = 0;  ///< Of any member, from one round to the next.
  /// Present: the one round names all that may be receivers and senders, and groups of others are
  /// joined for single rounds.
  std::optional<OnlineProgram> online;

  std::size_t slot_of(std::uint32_t round) const noexcept { return round % rounds.size(); }
  std::span<const Leg> legs_of(std::size_t slot) const noexcept {
    return std::span(legs).subspan(rounds[slot].first_leg, rounds[slot].leg_count);
  }
  std::span<const Rank> peers_of(const Leg& leg) const noexcept {
    return std::span(peers).subspan(leg.first_peer, leg.peer_count);
  }

  // Making one. Legs belong to the round that was added last.
  Round& add_round(const RateFraction& round_rate);
  /// Nothing where there are no receivers.
  void send(Leg leg, std::span<const Rank> to);
  /// One unicast leg per receiver.
  void send_each(Leg leg, std::span<const Rank> to);
  void receive(Leg leg, Rank from);
};

/// Whom a round reaches, by patches and without; and whom it hears. Ascending, each rank once.
std::vector<Rank> receivers_of(const Program& program, std::size_t slot);
std::vector<Rank> patches_of(const Program& program, std::size_t slot);
std::vector<Rank> senders_of(const Program& program, std::size_t slot);

}  // namespace selmcast
