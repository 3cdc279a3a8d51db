// The trace of a run with overlapping rounds says how many steps each round carried of each rank.
// Replayed in virtual time, one loop over all ranks with the update as its authors publish it gives
// the parameters that the real job of threads, engines and a transport ended with.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "store/rendezvous.h"
#include "train/report.h"
#include "train/trace.h"
#include "train/trainer.h"
#include "training_support.h"
#include "transport/backends/open.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kRanks = 4;
constexpr double kRate = 0.1;

TrainTask constant_rate_task() {
  TrainOptions options;
  options.workers = kRanks;
  options.epochs = 3;
  options.batch = 16;
  options.learning_rate = kRate;
  options.decay = 0.0;
  return testing::digits_task(options);
}

struct RunOutcome {
  std::vector<RankTrace> traces;
  std::vector<std::vector<float>> models;
};

/// Real workers over shared memory, each in a thread of its own, with rank 2 three times slower.
void run_job(const TrainTask& task, const std::string& policy, RunOutcome& outcome) {
  std::string folder = ::testing::TempDir() + "selmcast-replay-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  StoreAddress address;
  address.path = folder + "/store";
  auto store = StoreServer::start(address, kRanks);
  ASSERT_TRUE(store) << store.error().message;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      WorkerConfig config;
      config.rendezvous = "file:" + folder + "/store";
      config.host_store = false;
      config.rank = rank;
      config.world = kRanks;
      config.transport = "shm";
      config.policy = policy;
      config.links =
          LinkTable{std::vector<Kbps>(kRanks, 20'000), std::vector<Kbps>(kRanks, 20'000)};
      auto worker = Worker::join(config);
      ASSERT_TRUE(worker) << worker.error().message;
      TrainerOptions options;
      options.slowdown = rank == 2 ? 3.0 : 1.0;
      options.compute = std::chrono::microseconds(700);
      options.departure = Departure::after_closing;
      options.trace = true;
      const auto trained = train_rank(**worker, task, options);
      ASSERT_TRUE(trained) << trained.error().message;
      EXPECT_TRUE((*worker)->leave());
    });
  }
  for (auto& thread : threads) thread.join();
  std::map<std::string, Bytes> published;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    const std::string key = std::to_string(rank) + "/";
    published[key + kTraceTag] = *(*store)->get("result/" + key + kTraceTag);
    const auto last = (*store)->get("result/" + key + snapshot_tag(task.steps()));
    outcome.models.push_back(decode_snapshot(*last).value().parameters);
  }
  // Through the file that the command writes, as whoever replays a run would get it.
  const auto traces = collect_traces(published, kRanks, {});
  ASSERT_TRUE(traces) << traces.error().message;
  auto read = parse_trace(trace_csv(*traces), "trace.csv", kRanks);
  ASSERT_TRUE(read) << read.error().message;
  outcome.traces = std::move(*read);
  std::filesystem::remove_all(folder);
}

/// Steps of a rank that each round carries: up to and with the one after which it departs. What
/// follows the last departure goes with a round of its own.
std::vector<std::uint32_t> steps_per_round(const RankTrace& trace) {
  std::vector<std::uint32_t> counts;
  std::uint32_t since = 0;
  for (const TracedStep& step : trace) {
    ++since;
    if (!step.departed) continue;
    EXPECT_EQ(*step.departed, counts.size()) << "rounds depart in order";
    counts.push_back(since);
    since = 0;
  }
  counts.push_back(since);
  return counts;
}

/// OSP (Wang et al., ICPP 2019) and LOSP in their published form, with a server:
///   w(t+1) = w(t) - 1/P * sum over ranks i of eta * (the K(t,i) gradients of i's steps),
///   worker after pulling w(t): w <- w(t) - gamma * (gradients since its last snapshot).
/// gamma = 0 is OSP. In double, one rank after the other, nothing of sync/.
std::vector<float> replay(const TrainTask& task, const std::vector<RankTrace>& traces,
                          double gamma) {
  const std::vector<float> start = task.initial_parameters();
  const std::size_t n = start.size();
  std::vector<double> server(start.begin(), start.end());
  std::vector<std::vector<float>> models(kRanks, start);
  std::vector<Learner> learners;
  std::vector<std::vector<std::uint32_t>> counts;
  std::size_t rounds = 0;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    learners.emplace_back(task, rank);
    counts.push_back(steps_per_round(traces[rank]));
    rounds = std::max(rounds, counts.back().size());
  }
  std::vector<std::uint32_t> done(kRanks, 0);
  std::vector<std::vector<double>> pushed(kRanks, std::vector<double>(n, 0.0));  // G of round t-1
  std::vector<float> gradient(n);
  for (std::size_t round = 0; round < rounds; ++round) {
    auto sums = std::vector<std::vector<double>>(kRanks, std::vector<double>(n, 0.0));
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const std::uint32_t steps = round < counts[rank].size() ? counts[rank][round] : 0;
      for (std::uint32_t k = 0; k < steps; ++k, ++done[rank]) {
        if (done[rank] % task.rounds_per_epoch() == 0) learners[rank].start_epoch();
        learners[rank].gradient(models[rank], gradient);
        for (std::size_t x = 0; x < n; ++x) {
          sums[rank][x] += static_cast<double>(gradient[x]);
          models[rank][x] -= static_cast<float>(kRate) * gradient[x];
        }
      }
    }
    // The round before this one has closed: the server merges it, and all pull. The first departs
    // before any has closed.
    for (std::size_t x = 0; round > 0 && x < n; ++x) {
      double total = 0.0;
      for (Rank rank = 0; rank < kRanks; ++rank) total += pushed[rank][x];
      server[x] -= kRate * total / kRanks;
      for (Rank rank = 0; rank < kRanks; ++rank) {
        models[rank][x] = static_cast<float>(server[x] - gamma * sums[rank][x]);
      }
    }
    pushed = std::move(sums);
  }
  std::vector<float> end(n);
  for (std::size_t x = 0; x < n; ++x) {
    double total = 0.0;
    for (Rank rank = 0; rank < kRanks; ++rank) total += pushed[rank][x];
    end[x] = static_cast<float>(server[x] - kRate * total / kRanks);
  }
  return end;
}

struct Published {
  const char* name;
  const char* policy;
  double gamma;
};

class TraceReplay : public ::testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    for (const auto& state : backend_states()) {
      if (state.name == "shm" && !state.usable) GTEST_SKIP() << state.reason;
    }
  }
};

TEST_P(TraceReplay, ThePublishedUpdateGivesTheSameParameters) {
  const TrainTask task = constant_rate_task();
  RunOutcome run;
  ASSERT_NO_FATAL_FAILURE(run_job(task, GetParam().policy, run));
  const std::vector<float> expected = replay(task, run.traces, GetParam().gamma);
  const auto slow = steps_per_round(run.traces[2]), fast = steps_per_round(run.traces[0]);
  EXPECT_GT(slow.size(), 3U);
  EXPECT_NE(slow, fast) << "ranks of different speed carry different numbers of steps";
  float moved = 0.0F;
  const auto start = task.initial_parameters();
  for (Rank rank = 0; rank < kRanks; ++rank) {
    for (std::size_t x = 0; x < expected.size(); ++x) {
      ASSERT_NEAR(run.models[rank][x], expected[x], 1e-5F) << "rank " << rank << ", value " << x;
      moved = std::max(moved, std::abs(expected[x] - start[x]));
    }
  }
  EXPECT_GT(moved, 0.05F);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, TraceReplay,
    ::testing::Values(Published{"osp", "osp", 0.0}, Published{"losp", "losp", 1.5 * kRate},
                      Published{"losp_gamma_one", "osp mix=compensate:1 pace=overlap:6", kRate}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace selmcast
