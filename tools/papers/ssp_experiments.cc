#include <algorithm>
#include <atomic>
#include <cmath>
#include <initializer_list>
#include <map>
#include <mutex>
#include <thread>

#include "tools/papers/bsp.h"
#include "tools/papers/experiment.h"
#include "tools/papers/ssp.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kWorkers = 50;
constexpr ComputeModel kModels[] = {ComputeModel::lstm, ComputeModel::transformer,
                                    ComputeModel::resnet50};

/// SELMCAST twice, at the rate of the slowest receiver and at rates of their own, and Orpheus.
struct Scheme {
  const char* name;
  bool selmcast, own_rates;
};
constexpr Scheme kSchemes[] = {
    {"published", true, false}, {"published, own rates", true, true}, {"orpheus", false, false}};

/// One point of a sweep: the papers' setting with something changed.
struct SspCase {
  double x = 0.0;
  SspConfig config;
  /// By "model selmcast|orpheus metric".
  std::map<std::string, double> published;
};

SspCase case_at(double x) {
  SspCase out;
  out.x = x;
  out.config.p = 15;
  return out;
}

SspConfig on_links(SspConfig config, double spread, std::uint64_t seed) {
  const auto links =
      draw_problem({config.mean_kbps, spread, 1.0}, kWorkers, config.p, config.fanout, seed);
  config.tx_kbps = links.tx_kbps;
  config.rx_kbps = links.rx_kbps;
  config.spread = spread;
  config.seed = seed;
  return config;
}

constexpr double kSpreads[] = {0.25, 0.5};

/// One simulation and where its result belongs.
struct Job {
  SspConfig config;
  std::size_t row, column;  ///< Of the table, two points (receivers, utilisation) per row.
  SspOutcome outcome;
};

/// Every job on its own, so that all processors can work; the order of completion does not matter.
void run_jobs(std::vector<Job>& jobs, const StudyOptions& options) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // Guards `done` and the callback.
  std::uint64_t done = 0;
  const auto work = [&] {
    // Relaxed: the index alone is handed out, the results are read after join().
    for (auto at = next.fetch_add(1, std::memory_order_relaxed); at < jobs.size();
         at = next.fetch_add(1, std::memory_order_relaxed)) {
      jobs[at].outcome = simulate_ssp(jobs[at].config);
      const std::lock_guard lock(mutex);
      if (++done; options.progress) options.progress(done, jobs.size());
    }
  };
  const auto wanted =
      std::min<std::size_t>(std::max(1U, std::thread::hardware_concurrency()), jobs.size());
  std::vector<std::jthread> helpers;
  for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back(work);
  work();
}

void add_points(const SspCase& one, ComputeModel model, const Scheme& scheme, StudyTable& table) {
  for (const char* metric : {"receivers", "utilisation"}) {
    StudyPoint point{to_string(model), scheme.name, metric, one.x, {}, {}};
    const auto* whose = scheme.selmcast ? " selmcast " : " orpheus ";
    const auto found = one.published.find(point.setting + whose + metric);
    if (found != one.published.end()) point.published = {found->second, found->second};
    table.points.push_back(std::move(point));
  }
}

/// All samples of the table from the jobs' outcomes.
void add_samples(const std::vector<Job>& jobs, StudyTable& table) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> values;
  for (const auto& job : jobs) {
    values[{2 * job.row, job.column}].push_back(job.outcome.receivers / kWorkers);
    values[{2 * job.row + 1, job.column}].push_back(job.outcome.utilisation);
  }
  for (const auto& [place, list] : values) {
    table.points[place.first].ours.push_back(sample_of(list));
  }
}

/// The trials of one row, on links of both spreads.
void add_jobs(const SspCase& one, ComputeModel model, const Scheme& scheme, std::uint32_t trials,
              const StudyOptions& options, std::size_t row, std::vector<Job>& jobs) {
  for (std::size_t column = 0; column < std::size(kSpreads); ++column) {
    for (std::uint32_t trial = 0; trial < trials; ++trial) {
      auto config = on_links(one.config, kSpreads[column], trial_seed(options.seed, trial));
      config.model = model;
      config.selmcast = scheme.selmcast;
      config.own_rates = scheme.own_rates;
      config.horizon_ms = options.minutes * 60'000.0;
      jobs.push_back({std::move(config), row, column, {}});
    }
  }
}

Result<StudyTable> run_cases(const std::vector<SspCase>& cases, std::uint32_t otherwise,
                             const StudyOptions& options) {
  const auto trials = options.trials == 0 ? otherwise : options.trials;
  StudyTable out{{"lambda=0.25", "lambda=0.5"}, {}};
  std::vector<Job> jobs;
  for (const auto model : kModels) {
    for (const auto& one : cases) {
      for (const auto& scheme : kSchemes) {
        add_jobs(one, model, scheme, trials, options, out.points.size() / 2, jobs);
        add_points(one, model, scheme, out);
      }
    }
  }
  run_jobs(jobs, options);
  add_samples(jobs, out);
  return out;
}

/// The papers' numbers of one scheme and metric for the three models, in the order of kModels.
void publish(SspCase& one, const std::string& method_and_metric,
             const std::vector<double>& numbers) {
  for (std::size_t m = 0; m < numbers.size(); ++m) {
    one.published[std::string(to_string(kModels[m])) + " " + method_and_metric] = numbers[m];
  }
}

void publish_defaults(SspCase& one) {
  publish(one, "selmcast receivers", {0.55, 0.55, 0.55});
  publish(one, "orpheus receivers", {0.30, 0.30, 0.30});
  publish(one, "selmcast utilisation", {0.68, 0.70, 0.70});
  publish(one, "orpheus utilisation", {0.63, 0.65, 0.64});
}

Result<StudyTable> run_models(const StudyOptions& options) {
  auto bounded = case_at(4);
  publish_defaults(bounded);
  return run_cases({bounded}, 3, options);
}

/// One case per value, in which `set(config, value)` changes the defaults; the papers' main numbers
/// are those of the value that they call the default.
template <class T, class Set>
std::vector<SspCase> sweep(std::initializer_list<T> values, T usual, const Set& set) {
  std::vector<SspCase> cases;
  for (const T value : values) {
    cases.push_back(case_at(value));
    set(cases.back().config, value);
    if (value == usual) publish_defaults(cases.back());
  }
  return cases;
}

Result<StudyTable> run_ssp_by_p(const StudyOptions& options) {
  auto cases = sweep({0.05, 0.1, 0.2, 0.3, 0.4}, 0.3, [](auto& config, double share) {
    config.p = static_cast<std::uint32_t>(std::max(1L, std::lround(share * kWorkers)));
  });
  publish(cases.front(), "selmcast receivers", {0.37, 0.34, 0.33});
  publish(cases.front(), "selmcast utilisation", {0.75, 0.81, 0.81});
  publish(cases.back(), "selmcast receivers", {0.65, 0.64, 0.61});
  publish(cases.back(), "selmcast utilisation", {0.59, 0.59, 0.59});
  return run_cases(cases, 1, options);
}

/// x = 0: pairs are never forced.
Result<StudyTable> run_by_k(const StudyOptions& options) {
  auto cases =
      sweep({0U, 1U, 2U, 4U, 8U, 16U}, 4U, [](auto& config, std::uint32_t k) { config.k = k; });
  publish(cases.front(), "selmcast receivers", {0.46, 0.44, 0.42});
  publish(cases.front(), "orpheus receivers", {0.30, 0.30, 0.30});
  publish(cases.front(), "selmcast utilisation", {0.72, 0.77, 0.73});
  publish(cases.front(), "orpheus utilisation", {0.64, 0.66, 0.66});
  return run_cases(cases, 1, options);
}

Result<StudyTable> run_by_bound(const StudyOptions& options) {
  return run_cases(sweep({0U, 1U, 2U, 4U, 8U, 16U}, 4U,
                         [](auto& config, std::uint32_t ssp) { config.ssp = ssp; }),
                   1, options);
}

Result<StudyTable> run_by_eta(const StudyOptions& options) {
  return run_cases(
      sweep({0.0, 0.25, 0.5, 0.75, 1.0}, 0.75, [](auto& config, double eta) { config.eta = eta; }),
      1, options);
}

Result<StudyTable> run_by_size(const StudyOptions& options) {
  return run_cases(
      sweep({-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0}, 0.0,
            [](auto& config, double power) { config.volume_bits *= std::exp2(power); }),
      1, options);
}

Result<StudyTable> run_by_jitter(const StudyOptions& options) {
  return run_cases(sweep({0.0, 0.25, 0.5, 0.75, 1.0}, 0.0,
                         [](auto& config, double jitter) { config.jitter = jitter; }),
                   1, options);
}

}  // namespace

std::vector<Experiment> ssp_experiments() {
  const std::string papers = "papers";
  return {
      {"ssp", "receivers and NPU utilisation of the three models; n=50, p=0.3n, ssp=k=4", "k",
       papers, 3, run_models},
      {"ssp-p", "the same against p/n", "p/n", papers, 1, run_ssp_by_p},
      {"ssp-k", "the same against the bound k on pairs; 0 = none", "k", papers, 1, run_by_k},
      {"ssp-bound", "the same against the bound ssp on staleness; 0 = BSP", "ssp", papers, 1,
       run_by_bound},
      {"ssp-eta", "the same against eta, the share left below which a delivery is kept", "eta",
       papers, 1, run_by_eta},
      {"ssp-size", "the same against the size, 200 MB times 2^x", "log2 size", papers, 1,
       run_by_size},
      {"ssp-jitter", "the same against the share of the links drawn anew every 100 ms", "gamma",
       papers, 1, run_by_jitter},
  };
}

}  // namespace selmcast
