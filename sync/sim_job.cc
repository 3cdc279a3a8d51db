#include "sync/sim_job.h"

#include <algorithm>
#include <map>

namespace selmcast {

namespace {
struct Node {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Rendezvous> store;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<ViewAgent> agent;
  bool dead = false;
  std::string error;
  std::uint32_t closed = 0;
  std::vector<RoundReport> reports;
};
}  // namespace

struct SimJob::State {
  SimJobConfig config;
  std::vector<std::vector<float>>* parameters;
  SimNetwork network;
  LocalStore store;
  std::vector<Node> nodes;
  std::multimap<TimePoint, std::function<void(SimJob&)>> actions;
  TimePoint next_agents{};

  State(SimJobConfig c, std::vector<std::vector<float>>& p)
      : config(std::move(c)),
        parameters(&p),
        network(config.network),
        store(static_cast<std::uint32_t>(config.network.links.size())) {}

  bool active(const Node& node) const { return !node.dead && node.error.empty(); }
  bool finished() const {
    return std::all_of(nodes.begin(), nodes.end(), [&](const Node& node) {
      return !active(node) || node.closed == config.rounds;
    });
  }
  Result<void> set_up();
  std::size_t drive(TimePoint now);
  void collect(Node& node);
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

void SimJob::kill(Rank rank, Duration notice) {
  Node& node = state_->nodes[rank];
  if (node.dead) return;
  node.dead = true;
  state_->network.crash(rank, notice);
  at(state_->network.clock().now() + notice,
     [rank](SimJob& job) { job.state_->store.declare_lost(rank); });
}

Result<void> SimJob::State::set_up() {
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
    EngineConfig engine;
    engine.job = 1;
    engine.self = rank;
    engine.world = world;
    engine.mix = config.policy.round_mix();
    engine.gamma = config.policy.gamma;
    engine.deterministic = config.deterministic;
    engine.element = config.element;
    engine.timeout = config.timeout;
    engine.loss = config.loss;
    engine.seed = config.seed;
    engine.frame_bytes = config.network.max_frame_bytes;
    node.engine = std::make_unique<Engine>(*node.transport, engine);
    if (auto ok = node.engine->set_up(peers, (*parameters)[rank]); !ok) return ok;
    node.agent = std::make_unique<ViewAgent>(
        *node.store, *node.engine,
        AgentConfig{config.policy, config.seed, config.timeout, config.tx_kbps, config.rx_kbps});
    node.engine->push();
  }
  return {};
}

void SimJob::State::collect(Node& node) {
  if (node.engine->failed()) {
    node.error = node.engine->error().message;
    return;
  }
  if (node.engine->rounds_closed() == node.closed) return;
  ++node.closed;
  node.reports.push_back(node.engine->report());
  if (node.closed < config.rounds) node.engine->push();
}

std::size_t SimJob::State::drive(TimePoint now) {
  std::size_t done = 0;
  for (Node& node : nodes) {
    if (!active(node)) continue;
    done += node.engine->progress(now);
    collect(node);
  }
  return done;
}

void SimJob::State::step_agents(TimePoint now) {
  for (Node& node : nodes) {
    if (!active(node)) continue;
    static_cast<void>(node.store->update(Duration::zero()));
    if (auto ok = node.agent->step(now); !ok) node.engine->fail(ok.error());
    collect(node);
  }
  next_agents = now + config.agent_period;
}

TimePoint SimJob::State::next_time() const {
  TimePoint next = std::min(network.next_event(), next_agents);
  if (!actions.empty()) next = std::min(next, actions.begin()->first);
  for (const Node& node : nodes) {
    if (active(node)) next = std::min(next, node.engine->next_timer());
  }
  return next;
}

Result<SimJobResult> SimJob::run() {
  State& state = *state_;
  SimJobResult result;
  if (auto ok = state.set_up(); !ok) return ok.error();
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
      action(*this);
    }
    if (state.next_agents <= now) state.step_agents(now);
    if (state.drive(now) > 0) continue;
    // A timer that is due but could do nothing (no slot free) must not stop the clock.
    state.network.advance_to(std::max(state.next_time(), now + std::chrono::microseconds(1)));
  }
  for (const Node& node : state.nodes) {
    result.reports.push_back(node.reports);
    result.errors.push_back(node.error);
  }
  for (const Node& node : state.nodes) {
    if (!state.active(node)) continue;
    result.failed_ranks = node.agent->failed_ranks();
    result.plan = node.agent->plan();
    break;
  }
  result.trace_hash = state.network.trace_hash();
  return result;
}

}  // namespace selmcast
