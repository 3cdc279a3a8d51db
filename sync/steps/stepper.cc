#include "sync/steps/stepper.h"

#include <utility>

#include "sync/steps/delta_steps.h"
#include "sync/steps/stage_steps.h"
#include "sync/steps/stale_steps.h"

namespace selmcast {
namespace {

/// ssp, async: see sync/free/.
class FreeSteps final : public Stepper {
 public:
  FreeSteps(std::span<float> parameters, Rounds& rounds) : Stepper(parameters, rounds) {}
  Result<std::vector<RoundReport>> step() override { return pass(false); }
  Result<std::vector<RoundReport>> finish() override { return pass(true); }
  bool ends() const noexcept override { return true; }

 private:
  void prepare(bool) override {}
  void merge(const RoundReport&) override {}
  Result<std::vector<RoundReport>> pass(bool last) {
    std::vector<RoundReport> ended;
    if (auto ok = rounds_.pass(last, ended); !ok) return std::move(ok).error();
    return ended;
  }
};

}  // namespace

void Stepper::depart(bool last) {
  prepare(last);
  carried_ = std::exchange(steps_, 0);
  rounds_.push();
  under_way_ = true;
}

Result<RoundReport> Stepper::wait() {
  auto report = rounds_.wait();
  if (!report) return report;
  under_way_ = false;
  merge(*report);
  return report;
}

Result<void> Stepper::close(std::vector<RoundReport>& reports) {
  auto report = wait();
  if (!report) return std::move(report).error();
  reports.push_back(std::move(report).value());
  return {};
}

Result<RoundReport> Stepper::synchronize() {
  push();
  return wait();
}

std::unique_ptr<Stepper> make_stepper(const Policy& policy, std::span<float> parameters,
                                      Rounds& rounds, std::uint64_t seed) {
  if (policy.free()) return std::make_unique<FreeSteps>(parameters, rounds);
  if (policy.mix.kind == MixKind::lgp) {
    return std::make_unique<StageSteps>(policy.pace.first_share, parameters, rounds);
  }
  if (policy.mix.kind == MixKind::stale) {
    return std::make_unique<StaleSteps>(policy, parameters, rounds);
  }
  if (policy.has(Trait::overlapping)) {
    return std::make_unique<OverlappingSteps>(policy, parameters, rounds, seed);
  }
  return std::make_unique<PeriodicSteps>(policy, parameters, rounds, seed);
}

}  // namespace selmcast
