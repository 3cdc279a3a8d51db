#include "sync/rounds/epoch_state.h"

#include <algorithm>
#include <cmath>

#include "sync/rounds/round_memory.h"

namespace selmcast {
namespace {

using Ids = std::vector<std::pair<std::uint32_t, MembershipId>>;

Result<void> join(EpochState& epoch, Transport& transport, std::uint32_t group, JoinAs as,
                  Ids& ids) {
  auto membership = transport.join({group}, as);
  if (!membership) return std::move(membership).error();
  ids.emplace_back(group, membership->id());
  epoch.memberships.push_back({group, as, std::move(membership).value()});
  return {};
}

Result<Ids> join_groups(EpochState& epoch, Transport& transport) {
  const Program& program = epoch.program;
  Ids ids;
  // Of a rank whose receivers are selected online every other's group is joined as rounds begin.
  if (program.online) epoch.memberships.reserve(program.members.size() + 1);
  for (const std::uint32_t group : program.receive_groups) {
    if (auto ok = join(epoch, transport, group, JoinAs::receiver, ids); !ok) return ok.error();
  }
  for (const std::uint32_t group : program.send_groups) {
    const bool joined =
        std::any_of(ids.begin(), ids.end(), [&](auto& i) { return i.first == group; });
    if (joined) continue;
    if (auto ok = join(epoch, transport, group, JoinAs::send_only, ids); !ok) return ok.error();
  }
  return ids;
}

Destination destination_of(const Leg& leg, Rank peer, const Ids& ids, const FramePort& port) {
  if (leg.group == kNoGroup) return port.destination(peer);
  const auto id =
      std::find_if(ids.begin(), ids.end(), [&](auto& i) { return i.first == leg.group; });
  SELMCAST_CHECK(id != ids.end(), "the program sends to a group it does not list");
  return {Destination::Kind::group, id->second};
}

/// Whose part of a phase it is; the program has one receive leg of it.
Rank sender_of(const Program& program, std::size_t slot, const Leg& passed_on) {
  for (const Leg& leg : program.legs_of(slot)) {
    if (leg.kind == Leg::Kind::receive && leg.phase == passed_on.fed_by &&
        leg.part == passed_on.part) {
      return program.peers_of(leg).front();
    }
  }
  SELMCAST_CHECK(false, "what is passed on must be received");
  return 0;
}

void add_send(EpochState& epoch, std::size_t slot, const Leg& leg, const Ids& ids,
              const FramePort& port) {
  const Program& program = epoch.program;
  auto& ways = epoch.ways[slot * program.phases + leg.phase];
  const auto peers = program.peers_of(leg);
  LaneSpec lane{destination_of(leg, peers.front(), ids, port),
                {peers.begin(), peers.end()},
                leg.patch,
                leg.part};
  lane.waits = leg.source != Leg::Source::snapshot;
  if (leg.source == Leg::Source::sum) lane.data = RoundMemory::kSums;
  const auto same = [&leg](const EpochState::Waiting& other) {
    return other.leg.source == leg.source && other.leg.fed_by == leg.fed_by &&
           other.leg.part == leg.part;
  };
  const auto known = std::find_if(ways.waiting.begin(), ways.waiting.end(), same);
  const auto number = static_cast<std::uint32_t>(ways.lanes.size());
  if (lane.waits && known != ways.waiting.end()) {
    known->lanes.push_back(number);
    lane.data = ways.lanes[known->lanes.front()].data;
  } else if (lane.waits) {
    const auto& fed = epoch.ways[slot * program.phases + leg.fed_by];
    EpochState::Waiting waiting{{number}, leg};
    waiting.adding =
        static_cast<std::uint32_t>(std::count(fed.parts.begin(), fed.parts.end(), leg.part));
    if (leg.source == Leg::Source::arrived) {
      waiting.from = sender_of(program, slot, leg);
      if (fed.combine == Leg::Combine::forward) lane.data = RoundMemory::kRelayed;
    }
    ways.waiting.push_back(waiting);
  }
  ways.lanes.push_back(std::move(lane));
}

void make_ways(EpochState& epoch, const Ids& ids, const FramePort& port) {
  const Program& program = epoch.program;
  epoch.ways.resize(program.rounds.size() * program.phases);
  for (std::size_t slot = 0; slot < program.rounds.size(); ++slot) {
    for (const Leg& leg : program.legs_of(slot)) {
      if (leg.kind != Leg::Kind::receive) continue;
      auto& ways = epoch.ways[slot * program.phases + leg.phase];
      ways.senders.push_back(program.peers_of(leg).front());
      ways.parts.push_back(leg.part);
      ways.combine = leg.combine;
      ways.relays = ways.relays || leg.relayed;
    }
    for (const Leg& leg : program.legs_of(slot)) {
      if (leg.kind == Leg::Kind::send) add_send(epoch, slot, leg, ids, port);
    }
  }
}

/// What the rounds' legs ask of the memory beyond the parameters.
Result<void> extend_memory(const Program& program, const DriverConfig& config,
                           RoundMemory& memory) {
  for (const Leg& leg : program.legs) {
    if (leg.kind == Leg::Kind::receive) {
      if (leg.combine != Leg::Combine::forward) continue;
      if (auto ok = memory.keep_relayed(); !ok) return ok;
    } else if (leg.source == Leg::Source::sum) {
      if (auto ok = memory.send_sums(); !ok) return ok;
    }
  }
  SELMCAST_CHECK(!config.free || program.phases == 1, "free rounds have one phase");
  return {};
}

struct Most {
  std::size_t lanes = 1;
  std::size_t senders = 1;  ///< In one phase of one round.
  std::vector<Rank> ever;   ///< All senders of all rounds, ascending.
};

Most most_of(const EpochState& epoch) {
  Most out;
  for (const auto& ways : epoch.ways) {
    out.lanes = std::max(out.lanes, ways.lanes.size());
    out.senders = std::max(out.senders, ways.senders.size());
    out.ever.insert(out.ever.end(), ways.senders.begin(), ways.senders.end());
  }
  std::sort(out.ever.begin(), out.ever.end());
  out.ever.erase(std::unique(out.ever.begin(), out.ever.end()), out.ever.end());
  return out;
}

ReceiveSettings receive_settings(const EpochState& epoch, const FramePort& port,
                                 const DriverConfig& config, const Most& most) {
  const auto& caps = port.transport().capabilities();
  // Only a few layers are under way at a time, and their frames share the buffers.
  constexpr std::size_t kShareMax = 4;
  const std::uint64_t share = std::min(kShareMax, epoch.layers);
  ReceiveSettings out;
  out.timeout = config.timeout;
  out.window_bytes = caps.receive_window_bytes / share;
  out.sender_window_bytes = caps.sender_window_bytes / share;
  out.senders_max = static_cast<std::uint32_t>(most.senders);
  out.loss = config.loss;
  out.seed = config.seed + epoch.program.epoch;
  out.epoch = epoch.program.epoch;
  if (!config.free) return out;
  out.free_running = true;
  out.senders_max = static_cast<std::uint32_t>(std::max<std::size_t>(most.ever.size(), 1));
  // Senders of different rounds meet at a receiver, but seldom many more than the plan has.
  out.concurrent = static_cast<std::uint32_t>(std::min(most.ever.size(), 2 * most.senders));
  return out;
}

}  // namespace

bool EpochState::hears(std::uint32_t round, Rank rank) const noexcept {
  for (std::size_t phase = 0; phase < program.phases; ++phase) {
    const auto& heard = ways_of(round, phase).senders;
    if (std::find(heard.begin(), heard.end(), rank) != heard.end()) return true;
  }
  return false;
}

void EpochState::drop(Rank rank) noexcept {
  for (Stream& stream : streams) {
    stream.sender->drop(rank);
    stream.receiver->drop(rank);
  }
}

Result<void> prepare(EpochState& epoch, FramePort& port, const DriverConfig& config,
                     RoundMemory& memory) {
  const Program& program = epoch.program;
  auto ids = join_groups(epoch, port.transport());
  if (!ids) return std::move(ids).error();
  if (auto ok = extend_memory(program, config, memory); !ok) return ok;
  epoch.layers = memory.layers().size();
  make_ways(epoch, *ids, port);
  const Most most = most_of(epoch);
  const std::size_t streams = program.phases * epoch.layers;
  if (streams > port.streams()) {
    return bad_input("no plan: " + std::to_string(program.phases) + " phases of " +
                     std::to_string(epoch.layers) + " layers are more than " +
                     std::to_string(port.streams()) + " streams");
  }
  const auto& caps = port.transport().capabilities();
  epoch.receivers = PeerDeadlines::of_receivers(config.world, config.timeout);
  epoch.senders = PeerDeadlines::of_senders(config.world, config.timeout);
  for (std::size_t s = 0; s < streams; ++s) {
    const auto& shape = memory.layers()[epoch.layer_of(s)].whole;
    ReceiveSettings in = receive_settings(epoch, port, config, most);
    in.shape = shape;
    in.stream = static_cast<std::uint16_t>(s);
    SendSettings out{shape, caps.wire_overhead_bytes, config.timeout,
                     static_cast<std::uint32_t>(most.lanes)};
    out.stream = in.stream;
    // Layers take turns on the same ways.
    out.deadlines = &*epoch.receivers;
    in.deadlines = &*epoch.senders;
    out.pace = epoch.layers > 1 ? &memory.pace(epoch.phase_of(s), most.lanes) : nullptr;
    out.invites = program.online.has_value();
    epoch.streams.push_back(
        {std::make_unique<SendSession>(port, out), std::make_unique<ReceiveSession>(port, in)});
  }
  return {};
}

Kbps planned_rate(const EpochState& epoch, Rank self) {
  const Program& program = epoch.program;
  if (program.online) {
    const auto at = std::find(program.members.begin(), program.members.end(), self);
    if (at == program.members.end()) return 0;
    return program.online->tx_kbps[static_cast<std::size_t>(at - program.members.begin())];
  }
  double most = 0.0;
  for (std::size_t slot = 0; slot < program.rounds.size(); ++slot) {
    const auto legs = program.legs_of(slot);
    const auto lanes = static_cast<double>(std::count_if(
        legs.begin(), legs.end(), [](const Leg& leg) { return leg.kind == Leg::Kind::send; }));
    most = std::max(most, lanes * value_of(program.rounds[slot].rate));
  }
  // Rounded up, so that no lane is held below its rate.
  return static_cast<Kbps>(std::ceil(most));
}

}  // namespace selmcast
