// The pace stages (two-stage OSP): what matters most goes behind a barrier, the rest in the next
// step.
#pragma once

#include <optional>

#include "sync/steps/stage_exchange.h"
#include "sync/steps/stepper.h"

namespace selmcast {

class StageSteps final : public Stepper {
 public:
  StageSteps(std::optional<double> first_share, std::span<float> parameters, Rounds& rounds)
      : Stepper(parameters, rounds), stages_(parameters, first_share) {}
  std::span<float> stream() noexcept override { return stages_.stream(); }
  Result<std::vector<RoundReport>> step() override;
  Result<std::vector<RoundReport>> finish() override;
  const StageExchange* stages() const noexcept override { return &stages_; }

 private:
  void prepare(bool last) override;
  void merge(const RoundReport& report) override;
  /// The round of the rest, if one is under way.
  Result<std::vector<RoundReport>> end_rest();

  StageExchange stages_;
};

}  // namespace selmcast
