// A Worker of a simulated job, so that a trainer runs in virtual time as it does over a network.
#pragma once

#include <map>
#include <string>

#include "base/wire.h"
#include "plan/axes/rules.h"
#include "selmcast/worker.h"
#include "simulate/sim_rank.h"

namespace selmcast {

/// What the job knows and a rank's application may ask for.
struct SimWorkerJob {
  const Policy* policy = nullptr;
  std::uint32_t world = 1;
  std::function<std::vector<Rank>()> failed_ranks;
  std::function<PlanReport()> plan;
  std::map<std::string, Bytes>* published = nullptr;  ///< Under `<rank>/<tag>`.
};

/// Used by the rank's application only, in the right order, which is not checked here. mean_of() is
/// not there: ranks do not meet outside rounds.
class SimWorker final : public Worker {
 public:
  SimWorker(SimRank& rank, SimWorkerJob job) : rank_(rank), job_(std::move(job)) {}

  Result<void> add_parameters(std::span<float> parameters) override {
    return rank_.set_up(parameters, {});
  }
  Result<void> add_layers(std::span<float> gradients, std::span<const std::size_t> sizes) override {
    auto ok = check_layers(*job_.policy, gradients.size(), sizes);
    return ok ? rank_.set_up(gradients, sizes) : ok;
  }
  Result<void> push_layer(std::size_t layer) override {
    rank_.push_layer(layer);
    return {};
  }
  Result<void> wait_layer(std::size_t layer) override { return rank_.wait_layer(layer); }
  Result<void> push() override {
    rank_.stepper().push();
    return {};
  }
  Result<RoundReport> wait() override { return rank_.stepper().wait(); }
  Result<std::vector<RoundReport>> step() override { return rank_.stepper().step(); }
  Result<std::vector<RoundReport>> finish() override { return rank_.stepper().finish(); }
  Rank rank() const noexcept override { return rank_.rank(); }
  std::uint32_t world() const noexcept override { return job_.world; }
  std::vector<Rank> failed_ranks() const override { return job_.failed_ranks(); }
  PlanReport plan() const override { return job_.plan(); }
  std::vector<std::string> notices() const override { return job_.policy->notices; }
  std::string transport_name() const override { return "sim"; }
  std::string policy_text() const override { return to_string(*job_.policy); }
  Result<std::vector<double>> mean_of(std::span<const double>, std::string) override {
    return unavailable("a simulated rank meets the others in rounds only");
  }
  Result<void> publish(std::string tag, std::span<const std::byte> value) override {
    (*job_.published)[std::to_string(rank()) + "/" + tag] = Bytes(value.begin(), value.end());
    return {};
  }
  Result<void> leave() override { return {}; }

 private:
  SimRank& rank_;
  SimWorkerJob job_;
};

}  // namespace selmcast
