// A program's rounds as the tests speak of them: who reaches whom, and how.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/compile.h"

namespace selmcast {

struct PlannedRound {
  bool multicast = false;
  std::uint32_t group = 0;  ///< Of the multicast.
  std::vector<Rank> receivers, patches, senders;
  RateFraction rate;
  bool below_p = false;
};

inline PlannedRound planned_round(const Program& program, std::size_t slot) {
  PlannedRound out;
  out.patches = patches_of(program, slot);
  out.receivers = receivers_of(program, slot);
  out.senders = senders_of(program, slot);
  out.rate = program.rounds[slot].rate;
  out.below_p = program.rounds[slot].below_p;
  for (const Leg& leg : program.legs_of(slot)) {
    if (leg.kind != Leg::Kind::send || leg.group == kNoGroup) continue;
    out.multicast = true;
    out.group = leg.group;
  }
  return out;
}

inline std::vector<PlannedRound> planned_rounds(const Program& program) {
  std::vector<PlannedRound> out;
  for (std::size_t t = 0; t < program.rounds.size(); ++t) out.push_back(planned_round(program, t));
  return out;
}

/// By the group and by patches.
inline std::vector<Rank> reached(const PlannedRound& round) {
  auto out = round.receivers;
  out.insert(out.end(), round.patches.begin(), round.patches.end());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace selmcast
