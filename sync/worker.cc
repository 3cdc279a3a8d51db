#include "selmcast/worker.h"

#include <algorithm>
#include <map>
#include <new>
#include <thread>

#include "base/quiet_thread.h"
#include "plan/axes/rules.h"
#include "store/keys.h"
#include "sync/call_order.h"
#include "sync/control_thread.h"
#include "sync/hosted_store.h"
#include "sync/join.h"
#include "sync/links.h"
#include "sync/rank_runtime.h"
#include "sync/roster.h"
#include "transport/backends/choose.h"

namespace selmcast {

namespace {

// How long the driver sleeps at most when nothing is due; wake() and arriving frames end it early.
constexpr Duration kIdleSleep = std::chrono::milliseconds(20);
/// Setting up takes memory and device time that rounds do not.
constexpr int kStartTimeouts = 3;

class JoinedWorker final : public Worker {
 public:
  JoinedWorker(WorkerConfig config, Policy policy, std::unique_ptr<StoreServer> server,
               std::unique_ptr<Rendezvous> store)
      : config_(std::move(config)),
        policy_(std::move(policy)),
        server_(std::move(server)),
        store_(std::move(store)),
        order_(config_.rank) {}
  ~JoinedWorker() override {
    shut_down(false);
    end_store(false);
  }

  Result<void> open(const StoreAddress& at);
  Result<void> add_parameters(std::span<float> parameters) override;
  Result<void> add_layers(std::span<float> gradients, std::span<const std::size_t> sizes) override;
  Result<void> push_layer(std::size_t layer) override;
  Result<void> wait_layer(std::size_t layer) override;
  Result<void> push() override;
  Result<RoundReport> wait() override;
  Result<std::vector<RoundReport>> step() override;
  Result<std::vector<RoundReport>> finish() override;
  Rank rank() const noexcept override { return config_.rank; }
  std::uint32_t world() const noexcept override { return config_.world; }
  std::vector<Rank> failed_ranks() const override {
    return control_ == nullptr ? std::vector<Rank>() : control_->failed_ranks();
  }
  PlanReport plan() const override { return control_ == nullptr ? PlanReport() : control_->plan(); }
  std::vector<std::string> notices() const override {
    std::vector<std::string> out = policy_.notices;
    if (transport_ == nullptr) return out;
    if (!notice_.empty()) out.push_back(notice_);
    for (std::string& notice : transport_->notices()) out.push_back(std::move(notice));
    return out;
  }
  std::string transport_name() const override { return transport_->capabilities().name; }
  std::string policy_text() const override { return to_string(policy_); }
  Result<std::vector<double>> mean_of(std::span<const double> values, std::string tag) override;
  Result<void> publish(std::string tag, std::span<const std::byte> value) override;
  Result<void> leave() override;

 private:
  /// Error: the call does not come while this rank is in the running job, or the job has failed.
  Result<void> able(const char* call) const;
  Result<void> add(std::span<float> parameters, std::span<const std::size_t> layers);
  DriverConfig driver_config() const;
  Result<void> set_up(std::span<float> parameters, std::span<const std::size_t> layers);
  Result<void> start_threads();
  void drive();
  Error on_its_way(Error error) const;
  void shut_down(bool goodbye);
  void end_store(bool goodbye);
  Result<void> add_values(const Rendezvous& store, const std::string& key,
                          std::span<const std::byte> ranks, std::vector<double>& sums) const;
  Result<void> barrier(const std::string& key, Bytes value, const std::string& what,
                       Duration timeout);

  WorkerConfig config_;
  Policy policy_;
  std::unique_ptr<StoreServer> server_;  ///< Where this rank hosts the store.
  std::unique_ptr<Rendezvous> store_;    ///< Until all ranks start and the control thread takes it.
  std::uint64_t job_ = 0;
  std::vector<RosterEntry> roster_;
  LinkTable links_;
  std::unique_ptr<Transport> transport_;
  std::string notice_;  ///< What transport=auto chose and why.
  std::string way_;     ///< Which interface was taken and why, where none was named.
  DriverRounds rounds_;
  std::unique_ptr<RankRuntime> runtime_;
  std::unique_ptr<ControlThread> control_;
  CallOrder order_;
  Result<void> parting_;                        ///< What the first leave() returned.
  std::map<std::string, std::uint32_t> means_;  ///< Calls of mean_of(), by tag.
  std::atomic<bool> stop_driver_{false};        ///< Release in shut_down(), acquire in drive().
  std::thread thread_;                          ///< The driver's.
};

/// An address that others cannot reach is often one of the wrong interface.
Error JoinedWorker::on_its_way(Error error) const {
  if (way_.empty()) return error;
  error.message += "; on rank " + std::to_string(config_.rank) + " " + way_ +
                   " (WorkerConfig::interface, --interface name another)";
  return error;
}

Result<void> JoinedWorker::open(const StoreAddress& at) {
  auto job = agree_on_job(*store_, config_.timeout);
  if (!job) return std::move(job).error();
  job_ = *job;
  TransportConfig open;
  open.job = job_;
  open.rank = config_.rank;
  open.world = config_.world;
  open.interface = config_.interface;
  open.mtu = config_.mtu;
  auto chosen =
      choose_transport(*store_, at, {config_.transport, open, host_identity(), config_.timeout});
  if (!chosen) return std::move(chosen).error();
  transport_ = std::move(chosen->transport);
  notice_ = std::move(chosen->notice);
  way_ = std::move(chosen->way);
  const auto& caps = transport_->capabilities();
  auto roster = exchange_roster(*store_,
                                RosterEntry{caps.name, to_string(policy_), host_identity(),
                                            caps.max_frame_bytes, transport_->address()},
                                config_.timeout);
  if (!roster) return std::move(roster).error();
  roster_ = std::move(roster).value();
  if (chosen->only_here) {
    if (auto ok = check_one_host(roster_); !ok) return on_its_way(std::move(ok).error());
  }
  auto links = agree_on_links(*store_, *transport_, roster_, config_, job_);
  if (!links) return on_its_way(std::move(links).error());
  links_ = std::move(links).value();
  return {};
}

Result<void> JoinedWorker::add_parameters(std::span<float> parameters) {
  if (auto ok = order_.add("add_parameters"); !ok) return ok;
  return add(parameters, {});
}

Result<void> JoinedWorker::add_layers(std::span<float> gradients,
                                      std::span<const std::size_t> sizes) {
  if (auto ok = order_.add("add_layers"); !ok) return ok;
  if (auto ok = check_layers(policy_, gradients.size(), sizes); !ok) return ok;
  if (auto ok = agree_on_layers(*store_, sizes, config_.timeout); !ok) return ok;
  return add(gradients, sizes);
}

DriverConfig JoinedWorker::driver_config() const {
  DriverConfig config = selmcast::driver_config(policy_);
  config.job = static_cast<std::uint32_t>(job_);
  config.self = config_.rank;
  config.world = config_.world;
  config.deterministic = config_.deterministic;
  config.timeout = config_.timeout;
  config.loss = config_.loss;
  config.seed = config_.seed;
  config.frame_bytes = transport_->capabilities().max_frame_bytes;
  for (const auto& entry : roster_) {
    config.frame_bytes = std::min(config.frame_bytes, entry.max_frame_bytes);
  }
  return config;
}

Result<void> JoinedWorker::set_up(std::span<float> parameters,
                                  std::span<const std::size_t> layers) {
  std::vector<PeerAddress> peers;
  for (const auto& entry : roster_) peers.push_back(entry.address);
  auto runtime = RankRuntime::make(*transport_, {policy_, driver_config()}, peers, parameters,
                                   layers, rounds_);
  if (!runtime) return std::move(runtime).error();
  runtime_ = std::move(runtime).value();
  return {};
}

Result<void> JoinedWorker::add(std::span<float> parameters, std::span<const std::size_t> layers) {
  if (parameters.empty()) return bad_input("the parameter set is empty");
  if (auto ok = agree_on_size(*store_, parameters.size_bytes(), config_.timeout); !ok) return ok;
  order_.starting();
  auto ready_to_start = set_up(parameters, layers);
  if (ready_to_start) ready_to_start = start_threads();
  auto started = agree_on_start(*store_, ready_to_start, kStartTimeouts * config_.timeout);
  if (!started) return started;
  control_->begin(std::move(store_));
  auto ready = control_->run_until(
      [](Rendezvous&, const ViewAgent& agent) {
        return agent.epoch() > 0 ? std::optional(Result<void>()) : std::nullopt;
      },
      kStartTimeouts * config_.timeout, "for the first view of the job");
  if (!ready) return on_its_way(std::move(ready).error());
  // Switches learn of new members with a delay; frames sent before would be lost or flooded.
  std::this_thread::sleep_for(transport_->capabilities().join_settle);
  auto met = barrier("ready", {}, "for all ranks to be ready", kStartTimeouts * config_.timeout);
  if (met) order_.started(layers.size());
  return met;
}

/// Before the agreement to start: a rank that gets no thread is then one that could not start.
Result<void> JoinedWorker::start_threads() {
  control_ = std::make_unique<ControlThread>(
      *store_, runtime_->driver(),
      AgentConfig{policy_, config_.seed, config_.timeout, links_.tx_kbps, links_.rx_kbps});
  if (auto ok = control_->start(); !ok) return ok;
  const int error = start_quiet(thread_, [this] { drive(); });
  if (error == 0) return {};
  return failed("rank " + std::to_string(config_.rank) + ": " +
                no_thread("to move its bytes", error));
}

Result<void> JoinedWorker::able(const char* call) const {
  if (auto ok = order_.in_job(call); !ok) return ok;
  return runtime_->driver().failed() ? Result<void>(runtime_->driver().error()) : Result<void>();
}

Result<void> JoinedWorker::push_layer(std::size_t layer) {
  if (auto ok = able("push_layer"); !ok) return ok;
  if (auto ok = order_.hand_over(layer); !ok) return ok;
  runtime_->driver().push_layer(layer);
  return {};
}

Result<void> JoinedWorker::wait_layer(std::size_t layer) {
  // Not able(): what closed before the job failed can still be had.
  if (auto ok = order_.in_job("wait_layer"); !ok) return ok;
  if (auto ok = order_.known("wait_layer", layer); !ok) return ok;
  return runtime_->driver().wait_layer(layer);
}

Result<void> JoinedWorker::push() {
  if (auto ok = able("push"); !ok) return ok;
  if (auto ok = order_.begin("push", runtime_->stepper().under_way()); !ok) return ok;
  runtime_->stepper().push();
  order_.pushed();
  return {};
}

Result<RoundReport> JoinedWorker::wait() {
  if (auto ok = order_.in_job("wait"); !ok) return std::move(ok).error();
  if (auto ok = order_.wait(); !ok) {
    return runtime_->driver().failed() ? runtime_->driver().error() : std::move(ok).error();
  }
  auto report = runtime_->stepper().wait();
  if (report) order_.waited();
  return report;
}

Result<std::vector<RoundReport>> JoinedWorker::step() {
  if (auto ok = able("step"); !ok) return std::move(ok).error();
  if (auto ok = order_.begin("step", false); !ok) return std::move(ok).error();
  return runtime_->stepper().step();
}

Result<std::vector<RoundReport>> JoinedWorker::finish() {
  if (auto ok = able("finish"); !ok) return std::move(ok).error();
  if (auto ok = order_.begin("finish", false); !ok) return std::move(ok).error();
  if (runtime_->stepper().ends()) order_.finished();
  return runtime_->stepper().finish();
}

void JoinedWorker::drive() {
  const SteadyClock clock;
  while (!stop_driver_.load(std::memory_order_acquire)) {
    if (runtime_->driver().progress(clock.now()) > 0) continue;
    const Duration until = runtime_->driver().next_timer() == kNever
                               ? kIdleSleep
                               : runtime_->driver().next_timer() - clock.now();
    if (until > Duration::zero()) transport_->wait(std::min(until, kIdleSleep));
  }
}

Result<void> JoinedWorker::barrier(const std::string& key, Bytes value, const std::string& what,
                                   Duration timeout) {
  bool told = false;
  std::string waits = what;
  return control_->run_until(
      [&](Rendezvous& store, const ViewAgent& agent) -> std::optional<Result<void>> {
        if (!std::exchange(told, true)) {
          if (auto ok = put_own(store, key, value); !ok) return ok;
        }
        for (Rank r = 0; r < store.world(); ++r) {
          if (!agent.alive(r) || store.try_get(keys::of_rank(key, r))) continue;
          waits = what + "; rank " + std::to_string(r) + " is missing";
          return std::nullopt;
        }
        return Result<void>();
      },
      timeout, waits);
}

Result<std::vector<double>> JoinedWorker::mean_of(std::span<const double> values, std::string tag) {
  if (auto ok = able("mean_of"); !ok) return std::move(ok).error();
  WireWriter own;
  for (const double v : values) own.put(std::bit_cast<std::uint64_t>(v));
  const std::string key = keys::mean(tag, means_[tag]++);
  auto met = barrier(key, own.take(), "for all ranks' values of " + tag, 4 * config_.timeout);
  if (!met) return std::move(met).error();
  // A rank may leave the job just now, so the first one that came this far says whose values count.
  std::vector<double> sums(values.size(), 0.0);
  bool told = false;
  auto added = control_->run_until(
      [&](Rendezvous& store, const ViewAgent& agent) -> std::optional<Result<void>> {
        const std::string counted = keys::counted_in(key);
        const auto ranks = store.try_get(counted);
        if (ranks) return add_values(store, key, *ranks, sums);
        if (std::exchange(told, true)) return std::nullopt;
        WireWriter out;
        for (Rank r = 0; r < store.world(); ++r) {
          if (agent.alive(r) && store.try_get(keys::of_rank(key, r))) out.put(r);
        }
        if (auto ok = store.create(counted, out.take()); !ok) return ok;
        return std::nullopt;
      },
      config_.timeout, "for the store");
  if (!added) return std::move(added).error();
  return sums;
}

Result<void> JoinedWorker::add_values(const Rendezvous& store, const std::string& key,
                                      std::span<const std::byte> ranks,
                                      std::vector<double>& sums) const {
  WireReader in(ranks);
  std::uint32_t count = 0;
  for (; in.remaining() > 0; ++count) {
    const auto rank = in.get<std::uint32_t>();
    const auto bytes = rank ? store.try_get(keys::of_rank(key, *rank)) : std::optional<Bytes>();
    if (!bytes || bytes->size() != sums.size() * sizeof(std::uint64_t)) {
      return bad_input("mean_of(): rank " + (rank ? std::to_string(*rank) : "?") + " gave " +
                       (bytes ? std::to_string(bytes->size() / sizeof(std::uint64_t)) : "no") +
                       " values and rank " + std::to_string(config_.rank) + " " +
                       std::to_string(sums.size()) + "; all give equally many");
    }
    WireReader values(*bytes);
    for (auto& sum : sums) sum += std::bit_cast<double>(*values.get<std::uint64_t>());
  }
  for (auto& sum : sums) sum /= std::max(count, 1U);
  return {};
}

Result<void> JoinedWorker::publish(std::string tag, std::span<const std::byte> value) {
  if (auto ok = able("publish"); !ok) return ok;
  const std::string key = keys::result(config_.rank, tag);
  return control_->run_until(
      [&](Rendezvous& store, const ViewAgent&) -> std::optional<Result<void>> {
        return store.put(key, value);
      },
      2 * config_.timeout, "to publish its results");
}

Result<void> JoinedWorker::leave() {
  if (order_.has_left()) return parting_;
  // Others may still need repairs and acknowledgements of the last round from this rank.
  if (order_.running()) {
    parting_ = barrier("done", {}, "for the others to finish", 4 * config_.timeout);
  }
  shut_down(order_.running() && parting_);
  const bool goodbye = store_ != nullptr || (order_.running() && parting_);
  if (store_ != nullptr) store_->leave();
  end_store(goodbye);
  order_.left();
  return parting_;
}

void JoinedWorker::shut_down(bool goodbye) {
  if (control_ != nullptr) control_->stop(goodbye);
  if (thread_.joinable()) {
    stop_driver_.store(true, std::memory_order_release);
    transport_->wake();
    thread_.join();
  }
}

void JoinedWorker::end_store(bool goodbye) {
  if (server_ == nullptr) return;
  // Others take it that this rank is lost as soon as it goes without goodbye, not when its store
  // does.
  if (!goodbye) server_->declare_lost(config_.rank);
  const Duration patience =
      goodbye ? config_.timeout : std::min<Duration>(config_.timeout, kLastWords);
  wait_for_departure(*server_, config_.world, patience);
  server_.reset();
}

}  // namespace

namespace {

Result<void> check_place(const WorkerConfig& config) {
  if (config.world > 0 && config.rank < config.world) return {};
  return bad_input("rank " + std::to_string(config.rank) + " does not exist in a world of " +
                   std::to_string(config.world) + " ranks (0.." +
                   std::to_string(config.world == 0 ? 0 : config.world - 1) + ")");
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::join(const WorkerConfig& config) {
  if (auto ok = check_place(config); !ok) return std::move(ok).error();
  auto policy = parse_policy(config.policy, config.world);
  if (!policy) return std::move(policy).error();
  return join_job(config, std::move(policy).value());
}

Result<std::unique_ptr<Worker>> join_job(const WorkerConfig& config, Policy policy) {
  if (auto ok = check_place(config); !ok) return std::move(ok).error();
  if (config.deterministic && policy.free()) {
    return bad_input(
        "--deterministic: under pace=ssp and async it depends on time what is merged together; use "
        "pace=bsp, or leave it out");
  }
  auto address = parse_rendezvous(config.rendezvous);
  if (!address) return std::move(address).error();
  std::unique_ptr<StoreServer> server;
  if (config.rank == 0 && config.host_store) {
    auto hosted = host_store(*address, config.world, "set WorkerConfig::host_store = false");
    if (!hosted) return std::move(hosted).error();
    server = std::move(hosted).value();
  }
  auto store = connect_store(*address, config.rank, config.world, config.timeout);
  if (!store) return std::move(store).error();
  auto worker = std::make_unique<JoinedWorker>(config, std::move(policy), std::move(server),
                                               std::move(store).value());
  if (auto ok = worker->open(*address); !ok) return std::move(ok).error();
  return std::unique_ptr<Worker>(std::move(worker));
}

}  // namespace selmcast
