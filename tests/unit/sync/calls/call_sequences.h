// Sequences of calls of a Worker, on whole workers in this process: none hangs or aborts, and a
// call at the wrong time is an error at once, as a model of the contract says.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <thread>

#include "selmcast/worker.h"
#include "store/rendezvous.h"
#include "tests/unit/sync/calls/call_model.h"
#include "transport/backends/open.h"

namespace selmcast::calls {

using namespace std::chrono_literals;

/// Longer than the watchdog waits: what ends by a deadline only is taken for a hang.
inline constexpr Duration kTimeout = 10min;
inline constexpr auto kPatience = 60s;
inline constexpr std::size_t kCount = 4096;

template <class T>
std::optional<Error> error_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error());
}

/// `computes`: the caller's own parameters are its own now, so a step may change them first.
inline std::optional<Error> make(Worker& worker, std::vector<float>& parameters, Call call,
                                 bool computes = false) {
  const double value = 1.5;
  switch (call) {
    case Call::add_parameters:
      return error_of(worker.add_parameters(parameters));
    case Call::add_layers:
      return error_of(worker.add_layers(parameters, kLayers));
    case Call::push:
      return error_of(worker.push());
    case Call::wait:
      return error_of(worker.wait());
    case Call::synchronize:
      return error_of(worker.synchronize());
    case Call::step:
      if (computes) {
        for (auto& w : parameters) w += 1.0F;
      }
      return error_of(worker.step());
    case Call::finish:
      return error_of(worker.finish());
    case Call::push_first:
    case Call::push_second:
    case Call::push_missing:
      return error_of(worker.push_layer(static_cast<std::size_t>(call) - '0'));
    case Call::wait_first:
      return error_of(worker.wait_layer(0));
    case Call::wait_missing:
      return error_of(worker.wait_layer(2));
    case Call::mean_of:
      return error_of(worker.mean_of({&value, 1}, "x"));
    case Call::publish:
      return error_of(worker.publish("x", {}));
    case Call::leave:
      return error_of(worker.leave());
  }
  return std::nullopt;
}

/// The calls that this thread has made of its sequence, for whoever ends the program.
inline thread_local std::array<char, 32> making{};

inline void tell_sequence(int) {
  static constexpr char kWords[] = "aborted in the sequence of calls ";
  if (::write(STDERR_FILENO, kWords, sizeof kWords - 1) < 0) return;
  if (::write(STDERR_FILENO, making.data(), making.size()) < 0) return;
}

/// Ends the program, with the sequence's name, when its calls take too long.
class Watchdog {
 public:
  explicit Watchdog(std::string sequence)
      : thread_([this, sequence = std::move(sequence)] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, kPatience, [this] { return done_; })) return;
          std::fprintf(stderr, "the sequence of calls %s hangs\n", sequence.c_str());
          std::_Exit(1);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

class Sequences : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& state : backend_states()) {
      if (state.name == "shm" && !state.usable) GTEST_SKIP() << state.reason;
    }
    std::string folder = testing::TempDir() + "selmcast-calls-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    before_ = std::signal(SIGABRT, tell_sequence);
  }
  void TearDown() override {
    if (folder_.empty()) return;
    std::signal(SIGABRT, before_);
    std::filesystem::remove_all(folder_);
  }

  /// All sequences of `length` calls of `alphabet`, after those of `prefix`. Shorter ones are their
  /// beginnings.
  void try_all(const std::string& policy, std::uint32_t world, const std::string& prefix,
               const std::string& alphabet, std::size_t length) {
    for_all(prefix, alphabet, length,
            [&](const std::string& sequence) { try_one(policy, world, sequence); });
  }

  /// Several at a time, since jobs wait more than they work. Stops after a failure.
  template <class One>
  static void for_all(const std::string& prefix, const std::string& alphabet, std::size_t length,
                      One one) {
    std::size_t count = 1;
    for (std::size_t i = 0; i < length; ++i) count *= alphabet.size();
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&] {
        // Relaxed: the number alone is handed out.
        for (auto n = next.fetch_add(1, std::memory_order_relaxed); n < count;
             n = next.fetch_add(1, std::memory_order_relaxed)) {
          std::string sequence = prefix;
          for (std::size_t i = 0, rest = n; i < length; ++i, rest /= alphabet.size()) {
            sequence += alphabet[rest % alphabet.size()];
          }
          if (!HasFailure()) one(sequence);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }

  void try_one(const std::string& policy, std::uint32_t world, const std::string& sequence) {
    // A worker that is destroyed early would be a loss to the other one.
    std::barrier all(world);
    on_ranks(policy, world, sequence, [&](const WorkerConfig& config, auto&) {
      std::vector<float> parameters(kCount, static_cast<float>(config.rank));
      auto worker = Worker::join(config);
      EXPECT_TRUE(worker) << sequence << ": " << worker.error().message;
      if (worker) make_all(**worker, parameters, policy, sequence);
      all.arrive_and_wait();
    });
  }

  /// `body(config, store)` for every rank of a job, each in a thread of its own, under the
  /// watchdog.
  template <class Body>
  void on_ranks(const std::string& policy, std::uint32_t world, const std::string& name,
                Body body) {
    const Watchdog watchdog(name);
    StoreAddress address;
    // Relaxed: a number of its own is all it takes.
    address.path = folder_ + "/" + std::to_string(jobs_.fetch_add(1, std::memory_order_relaxed));
    auto started = StoreServer::start(address, world);
    ASSERT_TRUE(started) << started.error().message;
    std::unique_ptr<StoreServer> store = std::move(started).value();
    const auto one = [&](Rank rank) {
      making.fill('\n');
      WorkerConfig config;
      config.host_store = false;
      config.rendezvous = to_string(address);
      config.rank = rank;
      config.world = world;
      config.transport = "shm";
      config.policy = policy;
      config.timeout = kTimeout;
      config.links =
          LinkTable{std::vector<Kbps>(world, 800'000), std::vector<Kbps>(world, 800'000)};
      body(config, store);
    };
    std::vector<std::thread> others;
    for (Rank rank = 1; rank < world; ++rank) others.emplace_back([&, rank] { one(rank); });
    one(0);
    for (auto& other : others) other.join();
  }

  static void make_all(Worker& worker, std::vector<float>& parameters, const std::string& policy,
                       const std::string& sequence) {
    Model model(*parse_policy(policy));
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      making[i] = sequence[i];
      const auto call = static_cast<Call>(sequence[i]);
      const bool allowed = model.make(call);
      const auto error = make(worker, parameters, call, allowed);
      EXPECT_EQ(!error, allowed) << policy << ": call " << i + 1 << " of " << sequence << ": "
                                 << (error ? error->message : "no error");
      if (error) {
        EXPECT_EQ(error->kind, ErrorKind::bad_input) << sequence << ": " << error->message;
      }
      // These may always be asked.
      EXPECT_TRUE(worker.failed_ranks().empty());
      EXPECT_LE(worker.plan().members, worker.world());
      EXPECT_EQ(worker.transport_name(), "shm");
      static_cast<void>(worker.notices());
    }
  }

  std::string folder_;
  std::atomic<std::size_t> jobs_{0};
  void (*before_)(int) = SIG_DFL;
};

}  // namespace selmcast::calls
