// What programs of all ranks compute, leg by leg and one after the other: no frames, no network.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "plan/program.h"

namespace selmcast::testing_jobs {

/// One number a rank and part; every leg moves one number. `mix=sgd`.
class Interpreter {
 public:
  Interpreter(std::vector<Program> programs, std::vector<double> start, Shard part)
      : programs_(std::move(programs)), own_(std::move(start)), part_(part) {}

  /// Rank's value after one round of cycle slot `slot`.
  std::vector<double> round(std::size_t slot) {
    said_ = own_;
    state_.assign(programs_.size(), {});
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < programs_.size(); ++rank) moved = turn(rank, slot) || moved;
    }
    for (Rank rank = 0; rank < programs_.size(); ++rank) {
      mix_plain(rank, slot);
      for (const Leg& leg : programs_[rank].legs_of(slot)) {
        if (leg.kind != Leg::Kind::send || !of_part(leg)) continue;
        EXPECT_TRUE(state_[rank].sent[&leg]) << "rank " << rank << ": a leg was never ready";
      }
    }
    return own_;
  }

 private:
  struct Sum {
    double value = 0.0;
    std::uint32_t ranks = 1;
  };
  struct State {
    std::map<std::uint16_t, std::vector<Sum>> added;  ///< By phase.
    std::map<std::uint16_t, std::optional<Sum>> arrived;
    std::map<const Leg*, bool> sent;
    bool reduced = false;
  };

  bool of_part(const Leg& leg) const { return leg.part == part_ || leg.part == Shard(); }

  std::optional<Sum> ready(Rank rank, const Leg& leg) {
    State& state = state_[rank];
    if (leg.source == Leg::Source::snapshot) return Sum{said_[rank], 1};
    if (leg.source == Leg::Source::arrived) return state.arrived[leg.fed_by];
    const auto& added = state.added[leg.fed_by];
    if (added.size() < leg.expects) return std::nullopt;
    Sum out{said_[rank], 1};
    for (const Sum& sum : added) {
      out.value += sum.value;
      out.ranks += sum.ranks;
    }
    state.reduced = true;
    if (leg.source == Leg::Source::sum) return out;
    own_[rank] = out.value / out.ranks;
    return Sum{own_[rank], 1};
  }

  bool turn(Rank rank, std::size_t slot) {
    bool moved = false;
    for (const Leg& leg : programs_[rank].legs_of(slot)) {
      if (leg.kind != Leg::Kind::send || !of_part(leg) || state_[rank].sent[&leg]) continue;
      const auto what = ready(rank, leg);
      if (!what) continue;
      for (const Rank to : programs_[rank].peers_of(leg)) receive(to, slot, leg, rank, *what);
      state_[rank].sent[&leg] = moved = true;
    }
    return moved;
  }

  void receive(Rank to, std::size_t slot, const Leg& sent, Rank from, const Sum& what) {
    for (const Leg& leg : programs_[to].legs_of(slot)) {
      if (leg.kind != Leg::Kind::receive || leg.phase != sent.phase || leg.part != sent.part ||
          programs_[to].peers_of(leg).front() != from) {
        continue;
      }
      if (leg.combine == Leg::Combine::add)
        state_[to].added[leg.phase].push_back(what);
      else
        state_[to].arrived[leg.phase] = what;
      if (leg.combine == Leg::Combine::replace) own_[to] = what.value;
    }
  }

  /// What was added and is reduced nowhere is mixed where it arrived.
  void mix_plain(Rank rank, std::size_t slot) {
    static_cast<void>(slot);
    State& state = state_[rank];
    if (state.reduced) return;
    Sum out{said_[rank], 1};
    for (const auto& [phase, added] : state.added) {
      for (const Sum& sum : added) {
        out.value += sum.value;
        out.ranks += sum.ranks;
      }
    }
    if (out.ranks > 1) own_[rank] = out.value / out.ranks;
  }

  std::vector<Program> programs_;
  std::vector<double> own_, said_;
  Shard part_;
  std::vector<State> state_;
};

}  // namespace selmcast::testing_jobs
