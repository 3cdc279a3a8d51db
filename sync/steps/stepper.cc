#include "sync/steps/stepper.h"

#include <utility>

namespace selmcast {

Stepper::Stepper(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                 std::uint64_t seed, Rank rank)
    : pace_(policy.pace),
      limit_(policy.pace_steps),
      parameters_(parameters),
      rounds_(rounds),
      late_(policy.late_steps) {
  if (policy.mix == MixKind::stale) stale_.emplace(parameters);
  if (policy.mix == MixKind::compensate) {
    exchange_.emplace(parameters, policy.gamma, policy.slim, seed, rank);
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
  depart(false);
}

Result<RoundReport> Stepper::wait() {
  auto report = rounds_.wait();
  if (!report) return report;
  under_way_ = false;
  // All hear all, so those who heard this rank are those it heard; a rank that dies in the round
  // leaves the frames that came, and one rank more or less counts in a weight.
  const auto ranks = static_cast<std::uint32_t>(report->receivers.size()) + 1;
  if (exchange_) exchange_->arrive(ranks);
  if (stale_) stale_->arrive(ranks, late_);
  return report;
}

Result<RoundReport> Stepper::synchronize() {
  push();
  return wait();
}

Result<std::optional<RoundReport>> Stepper::step() {
  ++steps_;
  if (stale_) return step_late();
  if (pace_ != PaceKind::overlap) {
    if (steps_ < limit_) return std::optional<RoundReport>();
    auto report = synchronize();
    if (!report) return std::move(report).error();
    return std::optional(std::move(report).value());
  }
  std::optional<RoundReport> closed;
  if (under_way_) {
    if (steps_ < limit_ && !rounds_.settled()) return closed;
    auto report = wait();
    if (!report) return std::move(report).error();
    closed = std::move(report).value();
  }
  depart(false);
  return closed;
}

Result<std::optional<RoundReport>> Stepper::step_late() {
  std::optional<RoundReport> closed;
  if (under_way_ && steps_ == late_) {
    auto report = wait();
    if (!report) return std::move(report).error();
    closed = std::move(report).value();
  }
  if (steps_ == limit_) depart(false);
  return closed;
}

Result<std::vector<RoundReport>> Stepper::finish_late() {
  std::vector<RoundReport> reports;
  if (under_way_) {
    auto report = wait();
    if (!report) return std::move(report).error();
    reports.push_back(std::move(report).value());
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
  if (stale_) return finish_late();
  std::vector<RoundReport> reports;
  const auto run = [&](bool last) -> Result<void> {
    if (!under_way_) depart(last);
    auto report = wait();
    if (!report) return std::move(report).error();
    reports.push_back(std::move(report).value());
    return {};
  };
  if (pace_ == PaceKind::overlap) {
    // The round under way carries no such word of this rank yet.
    do {
      if (auto ok = run(true); !ok) return std::move(ok).error();
    } while (!exchange_->all_last());
  } else if (steps_ > 0) {
    if (auto ok = run(false); !ok) return std::move(ok).error();
  }
  if (!exchange_ || exchange_->flush_rounds() == 0) return reports;
  exchange_->begin_flush();
  for (std::uint32_t r = exchange_->flush_rounds(); r > 0; --r) {
    if (auto ok = run(true); !ok) return std::move(ok).error();
  }
  return reports;
}

}  // namespace selmcast
