#include "sync/steps/stepper.h"

#include <utility>

#include "base/check.h"

namespace selmcast {

namespace {

Result<void> append(std::vector<RoundReport>& out, Result<RoundReport> report) {
  if (!report) return std::move(report).error();
  out.push_back(std::move(report).value());
  return {};
}

}  // namespace

Stepper::Stepper(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                 std::uint64_t seed)
    : overlaps_(policy.has(Trait::overlapping)),
      free_(policy.free()),
      limit_(overlaps_ ? policy.pace.most_steps : policy.pace.period),
      parameters_(parameters),
      rounds_(rounds),
      late_(policy.mix.late_steps) {
  switch (policy.mix.kind) {
    case MixKind::stale:
      stale_.emplace(parameters);
      break;
    case MixKind::compensate:
      exchange_.emplace(parameters, policy.mix.gamma, policy.codec.slim, seed,
                        policy.codec.element);
      break;
    case MixKind::lgp:
      stages_.emplace(parameters, policy.pace.first_share);
      break;
    case MixKind::average:
    case MixKind::sgd:
    case MixKind::age:
      break;  // Done by the rounds themselves.
  }
}

void Stepper::depart(bool last) {
  if (exchange_) exchange_->depart(last);
  if (stale_) stale_->depart();
  carried_ = std::exchange(steps_, 0);
  rounds_.push();
  under_way_ = true;
}

void Stepper::push() {
  SELMCAST_CHECK(!stages_ || !under_way_, "finish() ends the stages of a step");
  if (stages_) stages_->depart_all();
  depart(false);
}

Result<RoundReport> Stepper::wait() {
  auto report = rounds_.wait();
  if (!report) return report;
  under_way_ = false;
  if (stages_) stages_->arrive_all();
  // All hear all, so those who heard this rank are those it heard; a rank that dies in the round
  // leaves the frames that came, and one rank more or less counts in a weight.
  const auto ranks = static_cast<std::uint32_t>(report->receivers.size()) + 1;
  if (exchange_) exchange_->arrive();
  if (stale_) stale_->arrive(ranks, late_);
  return report;
}

Result<RoundReport> Stepper::synchronize() {
  push();
  return wait();
}

Result<std::vector<RoundReport>> Stepper::pass(bool last) {
  std::vector<RoundReport> ended;
  if (auto ok = rounds_.pass(last, ended); !ok) return std::move(ok).error();
  return ended;
}

Result<std::vector<RoundReport>> Stepper::step() {
  if (free_) return pass(false);
  ++steps_;
  if (stages_) return step_in_stages();
  if (stale_) return step_late();
  std::vector<RoundReport> closed;
  if (!overlaps_) {
    if (steps_ < limit_) return closed;
    if (auto ok = append(closed, synchronize()); !ok) return std::move(ok).error();
    return closed;
  }
  if (under_way_) {
    if (steps_ < limit_ && !rounds_.settled()) return closed;
    if (auto ok = append(closed, wait()); !ok) return std::move(ok).error();
  }
  depart(false);
  return closed;
}

Result<std::vector<RoundReport>> Stepper::end_stages() {
  std::vector<RoundReport> reports;
  if (!under_way_) return reports;
  const bool early = rounds_.settled();
  auto rest = rounds_.wait();
  if (!rest) return std::move(rest).error();
  under_way_ = false;
  stages_->arrive_rest(early);
  reports.push_back(std::move(rest).value());
  return reports;
}

Result<std::vector<RoundReport>> Stepper::step_in_stages() {
  auto reports = end_stages();
  if (!reports) return reports;
  stages_->depart_first();
  carried_ = std::exchange(steps_, 0);
  rounds_.push_part(0, stages_->first_count());
  if (auto ok = append(*reports, rounds_.wait()); !ok) return std::move(ok).error();
  if (!stages_->arrive_first()) {
    stages_->depart_all();
    rounds_.push();
    if (auto ok = append(*reports, rounds_.wait()); !ok) return std::move(ok).error();
    stages_->arrive_all();
    return reports;
  }
  if (stages_->rest_count() == 0) return reports;
  stages_->depart_rest();
  rounds_.push_part(stages_->first_count(), stages_->rest_count());
  under_way_ = true;
  return reports;
}

Result<std::vector<RoundReport>> Stepper::step_late() {
  std::vector<RoundReport> closed;
  if (under_way_ && steps_ == late_) {
    if (auto ok = append(closed, wait()); !ok) return std::move(ok).error();
  }
  if (steps_ == limit_) depart(false);
  return closed;
}

Result<std::vector<RoundReport>> Stepper::finish_late() {
  std::vector<RoundReport> reports;
  if (under_way_) {
    if (auto ok = append(reports, wait()); !ok) return std::move(ok).error();
  }
  depart(true);
  auto report = rounds_.wait();
  if (!report) return std::move(report).error();
  under_way_ = false;
  stale_->replace();
  reports.push_back(std::move(report).value());
  return reports;
}

Result<std::vector<RoundReport>> Stepper::finish() {
  if (stages_) return end_stages();
  if (free_) return pass(true);
  if (stale_) return finish_late();
  std::vector<RoundReport> reports;
  const auto run = [&](bool last) -> Result<void> {
    if (!under_way_) depart(last);
    return append(reports, wait());
  };
  if (overlaps_) {
    // The round under way carries no such word of this rank yet.
    do {
      if (auto ok = run(true); !ok) return std::move(ok).error();
      // What a server would have handed out is this rank's own word where the server died.
      if (exchange_->all_last() && reports.back().complete) exchange_->say_all_last();
    } while (!exchange_->ended());
  } else if (steps_ > 0) {
    if (auto ok = run(false); !ok) return std::move(ok).error();
  }
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
      if (auto ok = run(true); !ok) return std::move(ok).error();
      if (!reports.back().complete) {
        exchange_->doubt();
      } else if (exchange_->mismatches() != mismatches) {
        again = true;
      }
    }
  }
  return reports;
}

}  // namespace selmcast
