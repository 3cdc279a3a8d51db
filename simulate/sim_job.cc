#include "simulate/sim_job.h"

#include <algorithm>
#include <map>

#include "simulate/sim_worker.h"

namespace selmcast {

namespace {
struct Node {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Rendezvous> store;
  std::unique_ptr<Driver> own_driver;  ///< Without an application; with one it is the rank's.
  Driver* driver = nullptr;            ///< Null until the parameters are registered.
  std::unique_ptr<ViewAgent> agent;    ///< As the driver.
  std::unique_ptr<SimRank> rank;       ///< With an application only.
  TimePoint ended{}, paused_until{};
  bool dead = false;
  std::string error;
  std::uint32_t closed = 0;  ///< Rounds, or steps handed over and given back.
  bool finishing = false, finished = false;
  TimePoint push_at = kNever;  ///< When what it computes will be done.
  std::vector<RoundReport> reports;
};
}  // namespace

struct SimJob::State {
  using MakeApplication = std::function<SimJob::RankApplication(Rank)>;

  SimJobConfig config;
  std::vector<std::vector<float>>* parameters;
  SimNetwork network;
  LocalStore store;
  std::vector<Node> nodes;
  std::multimap<TimePoint, std::function<void(SimJob&)>> actions;
  std::map<std::string, Bytes> published;
  TimePoint next_agents{};

  State(SimJobConfig c, std::vector<std::vector<float>>& p)
      : config(std::move(c)),
        parameters(&p),
        network(config.network),
        store(static_cast<std::uint32_t>(config.network.links.size())) {}

  bool active(const Node& node) const { return !node.dead && node.error.empty(); }
  bool runs(const Node& node, TimePoint now) const {
    return active(node) && node.paused_until <= now;
  }
  bool finished() const {
    return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
      if (!active(node)) return true;
      return node.rank ? node.rank->returned() : node.finished;
    });
  }
  void begin_step(Rank rank, TimePoint now);
  std::size_t push_due(TimePoint now);
  Result<void> set_up(const MakeApplication& make);
  DriverConfig driver_config_of(Rank rank) const;
  void start(Node& node, Driver& driver);
  void add_application(Node& node, Rank rank, SimJob::RankApplication application,
                       const std::vector<PeerAddress>& peers);
  Result<SimJobResult> run(SimJob& job, const MakeApplication& make);
  std::size_t drive(TimePoint now);
  void collect(Node& node, TimePoint now);
  void step_agents(TimePoint now);
  TimePoint next_time() const;
};

SimJob::SimJob(SimJobConfig config, std::vector<std::vector<float>>& parameters)
    : state_(std::make_unique<State>(std::move(config), parameters)) {
  SELMCAST_CHECK(parameters.size() == state_->config.network.links.size(),
                 "one parameter set per link");
}

SimJob::~SimJob() = default;

SimNetwork& SimJob::network() noexcept {
  return state_->network;
}

void SimJob::at(TimePoint at, std::function<void(SimJob&)> action) {
  state_->actions.emplace(at, std::move(action));
}

void SimJob::pause(Rank rank, Duration time) {
  state_->nodes[rank].paused_until = state_->network.clock().now() + time;
}

void SimJob::kill(Rank rank, Duration notice) {
  Node& node = state_->nodes[rank];
  if (node.dead) return;
  node.dead = true;
  state_->network.crash(rank, notice);
  at(state_->network.clock().now() + notice,
     [rank](SimJob& job) { job.state_->store.declare_lost(rank); });
}

Result<void> SimJob::State::set_up(const MakeApplication& make) {
  const auto world = static_cast<std::uint32_t>(config.network.links.size());
  nodes.resize(world);
  std::vector<PeerAddress> peers;
  for (Rank rank = 0; rank < world; ++rank) {
    nodes[rank].transport = network.attach(rank);
    nodes[rank].store = store.client(rank);
    peers.push_back(nodes[rank].transport->address());
  }
  for (Rank rank = 0; rank < world; ++rank) {
    Node& node = nodes[rank];
    if (make) {
      add_application(node, rank, make(rank), peers);
      continue;
    }
    auto driver = Driver::make(*node.transport, driver_config_of(rank), peers, (*parameters)[rank]);
    if (!driver) return std::move(driver).error();
    node.own_driver = std::move(driver).value();
    start(node, *node.own_driver);
    begin_step(rank, network.clock().now());
  }
  return {};
}

DriverConfig SimJob::State::driver_config_of(Rank rank) const {
  DriverConfig out = driver_config(config.policy);
  out.job = 1;
  out.self = rank;
  out.world = static_cast<std::uint32_t>(config.network.links.size());
  out.deterministic = config.deterministic;
  out.element = config.element;
  out.timeout = config.timeout;
  out.loss = config.loss;
  out.seed = config.seed;
  out.frame_bytes = config.network.max_frame_bytes;
  if (!config.observers.empty()) out.observer = config.observers[rank];
  if (config.adapt) config.adapt(out);
  return out;
}

void SimJob::State::start(Node& node, Driver& driver) {
  node.driver = &driver;
  node.agent =
      std::make_unique<ViewAgent>(*node.store, driver,
                                  AgentConfig{config.policy, config.seed, config.timeout,
                                              config.tx_kbps, config.rx_kbps, config.compile});
}

void SimJob::State::add_application(Node& node, Rank rank, SimJob::RankApplication application,
                                    const std::vector<PeerAddress>& peers) {
  SimRank::Setting setting{node.transport.get(),
                           {config.policy, driver_config_of(rank)},
                           peers,
                           [this, &node](Driver& driver) { start(node, driver); }};
  node.rank =
      std::make_unique<SimRank>(rank, std::move(setting), [this] { return network.clock().now(); });
  node.rank->start(std::move(application));
}

void SimJob::State::begin_step(Rank rank, TimePoint now) {
  Node& node = nodes[rank];
  if (config.on_step) config.on_step(rank, node.closed, now);
  if (node.closed < config.rounds) {
    node.push_at = now + (config.compute.empty() ? Duration::zero() : config.compute[rank]);
  } else if (config.policy.free()) {
    node.finishing = true;
    node.driver->push_last();
  } else {
    node.finished = true;
  }
}

std::size_t SimJob::State::push_due(TimePoint now) {
  std::size_t done = 0;
  for (Rank rank = 0; rank < nodes.size(); ++rank) {
    Node& node = nodes[rank];
    if (!runs(node, now) || node.push_at > now) continue;
    node.push_at = kNever;
    if (config.work) config.work(rank, node.closed, (*parameters)[rank]);
    node.driver->push();
    ++done;
  }
  return done;
}

void SimJob::State::collect(Node& node, TimePoint now) {
  if (node.rank) {
    const bool before = node.rank->returned();
    while (node.rank->resume()) {
    }
    if (node.rank->returned() && !before) {
      node.ended = now;
      if (!node.rank->result()) node.error = node.rank->result().error().message;
    }
    return;
  }
  if (node.driver->failed()) {
    node.error = node.driver->error().message;
    return;
  }
  if (node.finished || node.driver->closed() == node.closed) return;
  if (config.policy.free()) {
    const auto ended = node.driver->ended();
    node.reports.insert(node.reports.end(), ended.begin(), ended.end());
  } else {
    node.reports.push_back(node.driver->report());
  }
  if (node.finishing) {
    node.finished = true;
    return;
  }
  ++node.closed;
  begin_step(static_cast<Rank>(&node - nodes.data()), now);
}

std::size_t SimJob::State::drive(TimePoint now) {
  std::size_t done = push_due(now);
  for (Node& node : nodes) {
    if (!runs(node, now)) continue;
    if (node.driver != nullptr) done += node.driver->progress(now);
    collect(node, now);
  }
  return done;
}

void SimJob::State::step_agents(TimePoint now) {
  for (Node& node : nodes) {
    if (!runs(node, now) || node.agent == nullptr) continue;
    static_cast<void>(node.store->update(Duration::zero()));
    if (auto ok = node.agent->step(now); !ok) node.driver->fail(ok.error());
    collect(node, now);
  }
  next_agents = now + config.agent_period;
}

TimePoint SimJob::State::next_time() const {
  TimePoint next = std::min(network.next_event(), next_agents);
  if (!actions.empty()) next = std::min(next, actions.begin()->first);
  for (const Node& node : nodes) {
    if (!active(node)) continue;
    if (!runs(node, network.clock().now())) {
      next = std::min(next, node.paused_until);
      continue;
    }
    next = std::min(next, node.push_at);
    if (node.driver != nullptr) next = std::min(next, node.driver->next_timer());
    if (node.rank) next = std::min(next, node.rank->wakes_at());
  }
  return next;
}

Result<SimJobResult> SimJob::run() {
  return state_->run(*this, nullptr);
}

Result<SimJobResult> SimJob::run(const std::function<Application(Rank)>& make) {
  return state_->run(*this, [this, &make](Rank rank) -> RankApplication {
    return [this, application = make(rank)](SimRank& self) -> Result<void> {
      auto& parameters = (*state_->parameters)[self.rank()];
      if (auto ok = self.set_up(parameters, state_->config.layers); !ok) return ok;
      return application(self, self.stepper());
    };
  });
}

Result<SimJobResult> SimJob::run_workers(const WorkerBody& body) {
  return state_->run(*this, [this, &body](Rank) -> RankApplication {
    return [this, &body](SimRank& self) {
      const Node& node = state_->nodes[self.rank()];
      SimWorker worker(
          self,
          {&state_->config.policy, static_cast<std::uint32_t>(state_->nodes.size()),
           [&node] { return node.agent ? node.agent->failed_ranks() : std::vector<Rank>(); },
           [&node] { return node.agent ? node.agent->plan() : PlanReport(); }, &state_->published});
      return body(worker, self);
    };
  });
}

Result<SimJobResult> SimJob::State::run(SimJob& job, const MakeApplication& make) {
  State& state = *this;
  SimJobResult result;
  if (auto ok = state.set_up(make); !ok) return ok.error();
  const TimePoint start = state.network.clock().now();
  while (!state.finished()) {
    const TimePoint now = state.network.clock().now();
    if (now - start > state.config.deadline) {
      result.timed_out = true;
      break;
    }
    while (!state.actions.empty() && state.actions.begin()->first <= now) {
      auto action = std::move(state.actions.begin()->second);
      state.actions.erase(state.actions.begin());
      action(job);
    }
    if (state.next_agents <= now) state.step_agents(now);
    if (state.drive(now) > 0) continue;
    // A timer that is due but could do nothing (no slot free) must not stop the clock.
    state.network.advance_to(std::max(state.next_time(), now + std::chrono::microseconds(1)));
  }
  for (const Node& node : state.nodes) {
    if (node.rank) node.rank->end();
    result.ended.push_back(node.ended);
    result.reports.push_back(node.reports);
    result.errors.push_back(node.error);
  }
  for (const Node& node : state.nodes) {
    if (!state.active(node) || node.agent == nullptr) continue;
    result.failed_ranks = node.agent->failed_ranks();
    result.plan = node.agent->plan();
    break;
  }
  result.published = std::move(state.published);
  result.trace_hash = state.network.trace_hash();
  return result;
}

}  // namespace selmcast
