#include "plan/program.h"

#include <algorithm>

namespace selmcast {
namespace {

template <class Wanted>
std::vector<Rank> peers_where(const Program& program, std::size_t slot, Wanted wanted) {
  std::vector<Rank> out;
  for (const Leg& leg : program.legs_of(slot)) {
    const auto peers = program.peers_of(leg);
    if (wanted(leg)) out.insert(out.end(), peers.begin(), peers.end());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Round& Program::add_round(const RateFraction& round_rate) {
  rounds.push_back({static_cast<std::uint32_t>(legs.size()), 0, round_rate, false});
  return rounds.back();
}

void Program::send(Leg leg, std::span<const Rank> to) {
  if (to.empty()) return;
  leg.first_peer = static_cast<std::uint32_t>(peers.size());
  leg.peer_count = static_cast<std::uint32_t>(to.size());
  peers.insert(peers.end(), to.begin(), to.end());
  legs.push_back(leg);
  ++rounds.back().leg_count;
}

void Program::send_each(Leg leg, std::span<const Rank> to) {
  leg.group = kNoGroup;
  for (const Rank& rank : to) send(leg, {&rank, 1});
}

void Program::receive(Leg leg, Rank from) {
  leg.kind = Leg::Kind::receive;
  send(leg, {&from, 1});
}

std::vector<Rank> receivers_of(const Program& program, std::size_t slot) {
  return peers_where(program, slot,
                     [](const Leg& leg) { return leg.kind == Leg::Kind::send && !leg.patch; });
}

std::vector<Rank> patches_of(const Program& program, std::size_t slot) {
  return peers_where(program, slot,
                     [](const Leg& leg) { return leg.kind == Leg::Kind::send && leg.patch; });
}

std::vector<Rank> senders_of(const Program& program, std::size_t slot) {
  return peers_where(program, slot, [](const Leg& leg) { return leg.kind == Leg::Kind::receive; });
}

}  // namespace selmcast
