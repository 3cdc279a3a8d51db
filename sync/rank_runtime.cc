#include "sync/rank_runtime.h"

#include <new>

#include "plan/axes/rules.h"

namespace selmcast {

void DriverRounds::push() {
  driver_->push();
  ++pushed_;
}

void DriverRounds::push_part(std::size_t first, std::size_t count) {
  driver_->push({first, count});
  ++pushed_;
}

bool DriverRounds::settled() const noexcept {
  return driver_->closed() == pushed_ || driver_->failed();
}

Result<void> DriverRounds::pass(bool last, std::vector<RoundReport>& ended) {
  last ? driver_->push_last() : driver_->push();
  ++pushed_;
  auto closed = wait();
  if (!closed) return std::move(closed).error();
  ended.insert(ended.end(), driver_->ended().begin(), driver_->ended().end());
  return {};
}

RankRuntime::RankRuntime(const RankSettings& settings, std::span<float> parameters,
                         DriverRounds& rounds)
    : stepper_(make_stepper(settings.policy, parameters, rounds, settings.driver.seed)) {}

Result<std::unique_ptr<RankRuntime>> RankRuntime::make(
    Transport& transport, const RankSettings& settings, std::span<const PeerAddress> peers,
    std::span<float> parameters, std::span<const std::size_t> layers, DriverRounds& rounds) {
  if (auto ok = check_parameters(settings.policy, parameters.size_bytes()); !ok) {
    return std::move(ok).error();
  }
  std::unique_ptr<RankRuntime> out;
  try {
    out.reset(new RankRuntime(settings, parameters, rounds));
  } catch (const std::bad_alloc&) {
    return unavailable(
        "no memory for the policy's mix, which keeps " +
        std::to_string(settings.policy.model_copies()) + " copies of " +
        std::to_string(parameters.size_bytes()) +
        " bytes beside the parameters; use fewer ranks on this host or a smaller set");
  }
  DriverConfig config = settings.driver;
  config.layers.assign(layers.begin(), layers.end());
  auto driver = Driver::make(transport, config, peers, out->stepper_->stream());
  if (!driver) return std::move(driver).error();
  out->driver_ = std::move(driver).value();
  rounds.bind(*out->driver_);
  return out;
}

}  // namespace selmcast
