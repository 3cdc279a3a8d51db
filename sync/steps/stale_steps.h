// The pace periodic:H with mix=stale:S: a round departs after H steps and is merged S steps later.
#pragma once

#include "sync/steps/stale_merge.h"
#include "sync/steps/stepper.h"

namespace selmcast {

class StaleSteps final : public Stepper {
 public:
  StaleSteps(const Policy& policy, std::span<float> parameters, Rounds& rounds)
      : Stepper(parameters, rounds),
        merge_(parameters),
        period_(policy.pace.period),
        late_(policy.mix.late_steps) {}
  std::span<float> stream() noexcept override { return merge_.stream(); }
  Result<std::vector<RoundReport>> step() override;
  Result<std::vector<RoundReport>> finish() override;

 private:
  void prepare(bool last) override;
  void merge(const RoundReport& report) override;

  StaleMerge merge_;
  std::uint32_t period_;
  std::uint32_t late_;  ///< Steps from a departure to its merge.
};

}  // namespace selmcast
