// A rank's driver and stepper: made in one way for workers and for simulated ranks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sync/driver.h"
#include "sync/steps/stepper.h"

namespace selmcast {

/// A driver's rounds as the stepper sees them.
class DriverRounds : public Rounds {
 public:
  /// Before anything else. `driver` must outlive the rounds.
  void bind(Driver& driver) noexcept { driver_ = &driver; }

  void push() override;
  void push_part(std::size_t first, std::size_t count) override;
  bool settled() const noexcept override;
  Result<RoundReport> wait() override { return driver_->wait(); }
  Result<void> pass(bool last, std::vector<RoundReport>& ended) override;

 protected:
  /// The application began a round in another way.
  void count_pushed() noexcept { ++pushed_; }

 private:
  Driver* driver_ = nullptr;
  std::uint32_t pushed_ = 0;
};

struct RankSettings {
  Policy policy;
  DriverConfig driver;  ///< As driver_config() of the policy, and what the policy does not say.
};

class RankRuntime {
 public:
  /// What the rounds exchange of `parameters` is in stepper().stream(); with `layers`, their sizes.
  /// Transport, parameters and rounds must outlive the runtime; `rounds` is bound to the driver.
  /// By the thread that sets the driver up. Errors: what the driver's says, and no memory.
  static Result<std::unique_ptr<RankRuntime>> make(
      Transport& transport, const RankSettings& settings, std::span<const PeerAddress> peers,
      std::span<float> parameters, std::span<const std::size_t> layers, DriverRounds& rounds);

  Driver& driver() noexcept { return *driver_; }
  Stepper& stepper() noexcept { return *stepper_; }

 private:
  RankRuntime(const RankSettings& settings, std::span<float> parameters, DriverRounds& rounds);

  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<Driver> driver_;
};

}  // namespace selmcast
