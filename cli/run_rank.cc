#include "cli/run_rank.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/common.h"
#include "simulate/sim_job.h"
#include "sync/join.h"

namespace selmcast {

namespace {

constexpr Kbps kSimDefaultKbps = 10'000'000;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Publishing takes a turn of the control thread, so it is done a few times a second only.
class ProgressTeller {
 public:
  explicit ProgressTeller(Worker& worker) : worker_(worker) {}
  Result<void> tell(std::uint32_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (worker_.rank() != 0 || now < next_) return {};
    next_ = now + std::chrono::milliseconds(500);
    return worker_.publish("progress", WireWriter().put(done).take());
  }

 private:
  Worker& worker_;
  std::chrono::steady_clock::time_point next_{};
};

/// A rank that does fewer rounds than the others would leave them waiting for it.
Result<void> agree_on_rounds(Worker& worker, std::uint32_t rounds) {
  const std::array<double, 2> own{static_cast<double>(rounds),
                                  static_cast<double>(rounds) * static_cast<double>(rounds)};
  const auto mean = worker.mean_of(own, "rounds");
  if (!mean) return mean.error();
  // No spread: the mean of the squares is the square of the mean.
  const bool equal = std::abs((*mean)[0] - own[0]) < 1e-9 * own[0] &&
                     std::abs((*mean)[1] - own[1]) < 1e-9 * own[1];
  if (equal) return {};
  return bad_input("--rounds: rank " + std::to_string(worker.rank()) + " does " +
                   std::to_string(rounds) + ", but others do not; give all ranks the same number");
}

/// Rounds of each rank's own: the reports come when they have ended, and there is one more at last.
Result<void> run_free_rounds(Worker& worker, std::uint32_t steps, RankResult& result) {
  ProgressTeller teller(worker);
  for (std::uint32_t step = 0; step <= steps; ++step) {
    auto ended = step < steps ? worker.step() : worker.finish();
    if (!ended) return std::move(ended).error();
    for (auto& report : *ended) result.rounds.push_back(std::move(report));
    if (auto ok = teller.tell(std::min(step + 1, steps)); !ok) return ok;
  }
  return {};
}

Result<RankResult> run_rounds(Worker& worker, const RunOptions& options,
                              std::span<float> parameters) {
  RankResult result;
  result.params_bytes = parameters.size_bytes();
  result.rounds.reserve(options.rounds);
  const double cpu_before = cpu_seconds();
  if (options.policy.free()) {
    if (auto ok = run_free_rounds(worker, options.rounds, result); !ok) return ok.error();
    result.cpu_s = cpu_seconds() - cpu_before;
    return result;
  }
  ProgressTeller teller(worker);
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    auto report = worker.synchronize();
    if (!report) return std::move(report).error();
    result.rounds.push_back(std::move(report).value());
    if (auto ok = teller.tell(round + 1); !ok) return ok.error();
  }
  result.cpu_s = cpu_seconds() - cpu_before;
  return result;
}

std::string dump_path(const RunOptions& options, Rank rank) {
  return options.dump_folder + "/rank-" + std::to_string(rank) + ".f32";
}

Result<void> dump_parameters(const RunOptions& options, Rank rank, std::span<const float> values) {
  const std::string path = dump_path(options, rank);
  const std::string partial = path + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size_bytes()));
    out.flush();
    if (!out) return failed("--dump: cannot write " + partial + "; is the device full?");
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) return failed("--dump: cannot rename " + partial + ": " + error.message());
  return {};
}

/// A job that fails must not leave an older one's parameters in its place.
void drop_old_dump(const RunOptions& options, Rank rank) {
  std::error_code ignored;
  if (!options.dump_folder.empty()) std::filesystem::remove(dump_path(options, rank), ignored);
}

}  // namespace

WorkerConfig worker_config(const RunOptions& options, const RankPlace& place,
                           std::optional<LinkTable> links) {
  WorkerConfig config;
  config.rendezvous = place.rendezvous;
  config.host_store = false;  // The command does, to read the results, or its launcher.
  config.rank = place.rank;
  config.world = place.world;
  config.transport = options.transport;
  config.interface = place.interface;
  config.mtu = options.mtu;
  config.policy = options.policy_text;
  config.links = std::move(links);
  config.timeout = timeout_of(options);
  config.loss = options.loss;
  config.deterministic = options.deterministic;
  config.seed = options.seed;
  return config;
}

void print_joining(const Worker& worker, const Policy& policy) {
  if (worker.rank() != 0) return;
  const auto& known = policy.notices;
  for (const std::string& notice : worker.notices()) {
    if (std::find(known.begin(), known.end(), notice) == known.end()) print_notice(notice);
  }
}

Result<RankResult> run_rank(const RunOptions& options, const RankPlace& place) {
  drop_old_dump(options, place.rank);
  auto links = load_links(options, place.world);
  if (!links) return std::move(links).error();
  const auto parameters = shared_parameters(options, place.rank);
  if (!parameters) return parameters.error();
  auto worker = join_job(worker_config(options, place, std::move(links).value()), options.policy);
  if (!worker) return std::move(worker).error();
  print_joining(**worker, options.policy);
  if (auto ok = (*worker)->add_parameters(parameters->values); !ok) return ok.error();
  if (auto ok = agree_on_rounds(**worker, options.rounds); !ok) return ok.error();
  auto result = run_rounds(**worker, options, parameters->values);
  if (!result) return std::move(result).error();
  if (!options.dump_folder.empty()) {
    auto dumped = dump_parameters(options, place.rank, parameters->values);
    if (!dumped) return dumped.error();
  }
  result->transport = (*worker)->transport_name();
  result->policy = (*worker)->policy_text();
  result->plan = (*worker)->plan();
  result->failed_ranks = (*worker)->failed_ranks();
  result->notices = (*worker)->notices();
  if (auto ok = (*worker)->publish("run", serialize(*result)); !ok) return ok.error();
  if (auto ok = (*worker)->leave(); !ok) return ok.error();
  return result;
}

Result<SimJobConfig> simulated_job(const RunOptions& options, std::uint32_t world) {
  auto links = load_links(options, world);
  if (!links) return std::move(links).error();
  const LinkTable table = links->value_or(LinkTable{std::vector<Kbps>(world, kSimDefaultKbps),
                                                    std::vector<Kbps>(world, kSimDefaultKbps)});
  SimJobConfig config;
  config.policy = options.policy;
  config.element = config.policy.codec.element;
  config.tx_kbps = table.tx_kbps;
  config.rx_kbps = table.rx_kbps;
  config.rounds = options.rounds;
  config.timeout = timeout_of(options);
  config.loss = options.loss;
  config.deterministic = options.deterministic;
  config.seed = config.network.seed = options.seed;
  config.deadline = std::chrono::hours(24 * 365);
  if (options.mtu != 0) config.network.max_frame_bytes = options.mtu - 28;
  for (Rank rank = 0; rank < world; ++rank) {
    SimLink link;
    link.tx_kbps = table.tx_kbps[rank];
    link.rx_kbps = table.rx_kbps[rank];
    config.network.links.push_back(link);
  }
  return config;
}

Result<std::map<Rank, RankResult>> run_simulated(const RunOptions& options, std::uint32_t world) {
  auto made = simulated_job(options, world);
  if (!made) return std::move(made).error();
  const SimJobConfig config = std::move(made).value();
  std::vector<std::vector<float>> parameters;
  for (Rank rank = 0; rank < world; ++rank) {
    auto initial = initial_parameters(options, rank);
    if (!initial) return std::move(initial).error();
    parameters.push_back(std::move(initial).value());
  }
  const double cpu_before = cpu_seconds();
  for (Rank rank = 0; rank < world; ++rank) drop_old_dump(options, rank);
  SimJob job(config, parameters);
  auto outcome = job.run();
  if (!outcome) return std::move(outcome).error();
  const double cpu = cpu_seconds() - cpu_before;
  std::map<Rank, RankResult> results;
  for (Rank rank = 0; rank < world; ++rank) {
    if (!outcome->errors[rank].empty()) return failed(outcome->errors[rank]);
    RankResult& result = results[rank];
    result.transport = "sim";
    result.policy = to_string(config.policy);
    result.params_bytes = parameters[rank].size() * sizeof(float);
    result.cpu_s = cpu / world;
    result.rounds = outcome->reports[rank];
    result.plan = outcome->plan;
    result.failed_ranks = outcome->failed_ranks;
    result.notices = config.policy.notices;
    if (options.dump_folder.empty()) continue;
    auto dumped = dump_parameters(options, rank, parameters[rank]);
    if (!dumped) return dumped.error();
  }
  return results;
}

}  // namespace selmcast
