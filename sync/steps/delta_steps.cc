#include "sync/steps/delta_steps.h"

#include <utility>

namespace selmcast {

DeltaSteps::DeltaSteps(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                       std::uint64_t seed)
    : Stepper(parameters, rounds) {
  if (policy.mix.kind != MixKind::compensate) return;
  exchange_.emplace(parameters, policy.mix.gamma, policy.codec.slim, seed, policy.codec.element);
}

Result<void> DeltaSteps::run(bool last, std::vector<RoundReport>& reports) {
  if (!under_way_) depart(last);
  return close(reports);
}

Result<std::vector<RoundReport>> DeltaSteps::flush(std::vector<RoundReport> reports) {
  if (!exchange_ || exchange_->flush_rounds() == 0) return reports;
  // Once more where a rank that died had been heard by some of the others only. What was lost in
  // the last of the rounds is told in a round of the view without the dead one: the second one
  // after it.
  constexpr std::uint32_t kConfirming = 2;
  for (bool again = true; again;) {
    again = false;
    exchange_->begin_flush();
    for (std::uint32_t r = exchange_->flush_rounds() + kConfirming; r > 0; --r) {
      const auto mismatches = exchange_->mismatches();
      if (auto ok = run(true, reports); !ok) return std::move(ok).error();
      if (!reports.back().complete) {
        exchange_->doubt();
      } else if (exchange_->mismatches() != mismatches) {
        again = true;
      }
    }
  }
  return reports;
}

Result<std::vector<RoundReport>> PeriodicSteps::step() {
  std::vector<RoundReport> closed;
  if (++steps_ < period_) return closed;
  depart(false);
  if (auto ok = close(closed); !ok) return std::move(ok).error();
  return closed;
}

Result<std::vector<RoundReport>> PeriodicSteps::finish() {
  std::vector<RoundReport> reports;
  if (steps_ > 0) {
    if (auto ok = run(false, reports); !ok) return std::move(ok).error();
  }
  return flush(std::move(reports));
}

Result<std::vector<RoundReport>> OverlappingSteps::step() {
  ++steps_;
  std::vector<RoundReport> closed;
  if (under_way_) {
    if (steps_ < most_ && !rounds_.settled()) return closed;
    if (auto ok = close(closed); !ok) return std::move(ok).error();
  }
  depart(false);
  return closed;
}

Result<std::vector<RoundReport>> OverlappingSteps::finish() {
  std::vector<RoundReport> reports;
  // The round under way carries no word of this rank's end yet.
  do {
    if (auto ok = run(true, reports); !ok) return std::move(ok).error();
    // What a server would have handed out is this rank's own word where the server died.
    if (exchange_->all_last() && reports.back().complete) exchange_->say_all_last();
  } while (!exchange_->ended());
  return flush(std::move(reports));
}

}  // namespace selmcast
