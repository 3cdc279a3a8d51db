// A whole job in one thread and in virtual time: every rank's driver and view agent over the
// simulated network and a local store. The same code as a real job, without threads and sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "simulate/sim_rank.h"
#include "sync/view_agent.h"
#include "transport/sim/sim_network.h"

namespace selmcast {

struct SimJobConfig {
  SimConfig network;  ///< One link per rank.
  Policy policy;
  std::vector<Kbps> tx_kbps, rx_kbps;  ///< Wire rates that the plan is made from.
  std::vector<std::size_t> layers;     ///< See DriverConfig; for jobs with applications.
  std::uint32_t rounds = 1;            ///< Of every rank; under pace=ssp and async, steps.
  /// How long a rank computes before each of them, by rank; empty: not at all.
  std::vector<Duration> compute;
  /// What a rank then does to its parameters, in step `step` of its own, counted from 0.
  std::function<void(Rank rank, std::uint32_t step, std::span<float> parameters)> work;
  /// Called as it begins to compute that step, at `now`; also once after the last, with `rounds`.
  std::function<void(Rank rank, std::uint32_t step, TimePoint now)> on_step;
  std::vector<FreeObserver*> observers;      ///< By rank, or empty.
  Compile compile;                           ///< See AgentConfig; empty: by the policy.
  std::function<void(DriverConfig&)> adapt;  ///< Changes what drivers are made for; empty: nothing.
  Duration timeout{std::chrono::seconds(10)};
  double loss = 0.0;
  bool deterministic = false;
  WireElement element = WireElement::f32;
  std::uint64_t seed = 1;
  Duration deadline{std::chrono::hours(1)};  ///< In virtual time, for the whole job.
  /// How often an agent looks at the store.
  Duration agent_period{std::chrono::milliseconds(1)};
};

struct SimJobResult {
  /// By rank; a rank that died has fewer. Applications keep their own. Under pace=ssp and async:
  /// rounds of this rank that ended.
  std::vector<std::vector<RoundReport>> reports;
  std::vector<TimePoint> ended;     ///< By rank: when its application returned.
  std::vector<std::string> errors;  ///< By rank; empty when it finished or died.
  std::vector<Rank> failed_ranks;   ///< As the lowest finished rank sees it.
  PlanReport plan;
  std::map<std::string, Bytes> published;  ///< By workers, under `<rank>/<tag>`.
  std::uint64_t trace_hash = 0;
  bool timed_out = false;
};

/// One simulated job. Usage: construct, schedule faults, run().
class SimJob {
 public:
  /// `parameters[r]` are rank r's, all of one size; they hold the mixed result after run().
  SimJob(SimJobConfig config, std::vector<std::vector<float>>& parameters);
  ~SimJob();

  /// Calls `action` when the virtual clock reaches `at`.
  void at(TimePoint at, std::function<void(SimJob&)> action);
  SimNetwork& network() noexcept;
  /// The process of `rank` dies now; the store notices `notice` later.
  void kill(Rank rank, Duration notice);

  /// The process of `rank` does nothing for so long, as under SIGSTOP; what reaches it waits.
  void pause(Rank rank, Duration time);

  /// Every rank does the configured rounds, one after the other.
  Result<SimJobResult> run();
  /// What one rank does, on the parameters it gave: the stepper follows the policy.
  using Application = std::function<Result<void>(SimRank&, Stepper&)>;
  /// Every rank runs an application of its own, `make(rank)`.
  Result<SimJobResult> run(const std::function<Application(Rank)>& make);
  /// Every rank runs `body` with a worker of its own, and registers parameters itself.
  using WorkerBody = std::function<Result<void>(Worker&, SimRank&)>;
  Result<SimJobResult> run_workers(const WorkerBody& body);

 private:
  using RankApplication = SimRank::Application;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace selmcast
