// The paces bsp, periodic and overlap: rounds of everything, mixed by the rounds themselves or,
// with mix=compensate, by a DeltaExchange.
#pragma once

#include <optional>

#include "sync/steps/delta_exchange.h"
#include "sync/steps/stepper.h"

namespace selmcast {

class DeltaSteps : public Stepper {
 public:
  std::span<float> stream() noexcept override {
    return exchange_ ? exchange_->stream() : parameters_;
  }
  const DeltaExchange* exchange() const noexcept override {
    return exchange_ ? &*exchange_ : nullptr;
  }

 protected:
  DeltaSteps(const Policy& policy, std::span<float> parameters, Rounds& rounds, std::uint64_t seed);
  void prepare(bool last) override {
    if (exchange_) exchange_->depart(last);
  }
  void merge(const RoundReport&) override {
    if (exchange_) exchange_->arrive();
  }
  /// The round under way, or one that begins now.
  Result<void> run(bool last, std::vector<RoundReport>& reports);
  /// The rounds that exchange what is left of own changes, where not all travel in every round.
  Result<std::vector<RoundReport>> flush(std::vector<RoundReport> reports);

  std::optional<DeltaExchange> exchange_;  ///< With mix=compensate.
};

class PeriodicSteps final : public DeltaSteps {
 public:
  PeriodicSteps(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                std::uint64_t seed)
      : DeltaSteps(policy, parameters, rounds, seed), period_(policy.pace.period) {}
  Result<std::vector<RoundReport>> step() override;
  Result<std::vector<RoundReport>> finish() override;

 private:
  std::uint32_t period_;
};

class OverlappingSteps final : public DeltaSteps {
 public:
  OverlappingSteps(const Policy& policy, std::span<float> parameters, Rounds& rounds,
                   std::uint64_t seed)
      : DeltaSteps(policy, parameters, rounds, seed), most_(policy.pace.most_steps) {}
  Result<std::vector<RoundReport>> step() override;
  Result<std::vector<RoundReport>> finish() override;
  bool ends() const noexcept override { return true; }

 private:
  std::uint32_t most_;  ///< Steps beyond a departure.
};

}  // namespace selmcast
