#include "sync/steps/stepper.h"

#include <utility>

namespace selmcast {

Stepper::Stepper(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                 std::uint64_t seed)
    : pace_(policy.pace),
      free_(policy.free()),
      limit_(policy.pace_steps),
      parameters_(parameters),
      rounds_(rounds) {
  if (policy.mix == MixKind::compensate) {
    exchange_.emplace(parameters, policy.gamma, policy.slim, seed);
  }
}

void Stepper::depart(bool last) {
  if (exchange_) exchange_->depart(last);
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
  if (exchange_) exchange_->arrive();
  return report;
}

Result<RoundReport> Stepper::synchronize() {
  push();
  return wait();
}

Result<std::optional<RoundReport>> Stepper::pass_one() {
  if (auto ok = rounds_.pass(false, ended_); !ok) return std::move(ok).error();
  if (ended_.empty()) return std::optional<RoundReport>();
  std::optional oldest(std::move(ended_.front()));
  ended_.erase(ended_.begin());
  return oldest;
}

Result<std::optional<RoundReport>> Stepper::step() {
  if (free_) return pass_one();
  ++steps_;
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

Result<std::vector<RoundReport>> Stepper::finish() {
  std::vector<RoundReport> reports;
  if (free_) {
    if (auto ok = rounds_.pass(true, ended_); !ok) return std::move(ok).error();
    return std::exchange(ended_, {});
  }
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
