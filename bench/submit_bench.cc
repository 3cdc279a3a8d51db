// What a round costs the application's thread: push(), which hands the round to the driver, while
// that thread polls (spins), sleeps, or is busy with another round's frames; and from push() until
// wait() returns. Every single call is timed; percentiles, because a mean hides the wake-ups.
// With layers (order=priority) one to four application threads hand them over at the same time.
//
//   bench_submit [rounds = 20000]
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/driver_rig.h"
#include "bench/null_transport.h"
#include "hwconf/machine.h"
#include "transport/shm/shm_transport.h"

namespace selmcast {
namespace {

enum class Idle { spin, yield, sleep };

/// One rank's driver and its thread.
class Rig {
 public:
  Rig(std::unique_ptr<Transport> transport, Rank self, std::uint32_t ranks, std::size_t elements,
      Idle idle, std::size_t layers = 0)
      : transport_(std::move(transport)), self_(self), idle_(idle), parameters_(elements, 1.0F) {
    policy_ = need(parse_policy(layers > 0 ? "p3" : "mix=average"));
    config_ = config_of(policy_, self, ranks, transport_->capabilities().max_frame_bytes);
    config_.order = policy_.order.kind;
    config_.layers.assign(layers, layers > 0 ? elements / layers : 0);
  }
  ~Rig() {
    stop_.store(true, std::memory_order_release);
    if (thread_.joinable()) thread_.join();
  }

  void connect(const std::vector<PeerAddress>& peers, const View& view) {
    driver_ = need(Driver::make(*transport_, config_, peers, parameters_));
    offer_first(*driver_, view, policy_, self_);
    thread_ = std::thread([this] { drive(); });
  }
  void enter() {
    while (!driver_->accepted()) std::this_thread::yield();
    driver_->activate(0);
    while (!driver_->switched()) std::this_thread::yield();
  }
  Driver& driver() { return *driver_; }
  Transport& transport() { return *transport_; }

 private:
  void drive() {
    const SteadyClock clock;
    while (!stop_.load(std::memory_order_acquire)) {
      if (driver_->progress(clock.now()) > 0 || idle_ == Idle::spin) continue;
      if (idle_ == Idle::yield) {
        std::this_thread::yield();
      } else {
        transport_->wait(std::chrono::milliseconds(20));
      }
    }
  }

  std::unique_ptr<Transport> transport_;
  Rank self_;
  Idle idle_;
  Policy policy_;
  std::vector<float> parameters_;
  DriverConfig config_;
  std::unique_ptr<Driver> driver_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct Times {
  std::vector<double> push, round;  ///< In nanoseconds.
};

double nanoseconds(Duration d) {
  return std::chrono::duration<double, std::nano>(d).count();
}

/// Rounds pushed on all rigs by this thread; the first one's calls are timed.
Times play(std::vector<std::unique_ptr<Rig>>& rigs, std::size_t rounds) {
  const SteadyClock clock;
  Times out;
  for (std::size_t r = 0; r < rounds + rounds / 10; ++r) {
    for (std::size_t i = 1; i < rigs.size(); ++i) rigs[i]->driver().push();
    const auto before = clock.now();
    rigs[0]->driver().push();
    const auto pushed = clock.now();
    for (auto& rig : rigs) need(rig->driver().wait());
    const auto closed = clock.now();
    if (r < rounds / 10) continue;  // Warm-up.
    out.push.push_back(nanoseconds(pushed - before));
    out.round.push_back(nanoseconds(closed - before));
  }
  return out;
}

void print(const std::string& name, const char* what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
  };
  std::printf("%-38s %-14s %9.0f %9.0f %9.0f %9.0f %9.0f\n", name.c_str(), what, at(0.5), at(0.9),
              at(0.99), at(0.999), values.back());
}

void measure(const std::string& name, std::vector<std::unique_ptr<Rig>> rigs, std::size_t rounds) {
  const auto ranks = static_cast<std::uint32_t>(rigs.size());
  const auto view = view_of(ranks, 100'000'000);
  std::vector<PeerAddress> peers;
  for (auto& rig : rigs) peers.push_back(rig->transport().address());
  for (auto& rig : rigs) rig->connect(peers, view);
  for (auto& rig : rigs) rig->enter();
  const auto times = play(rigs, rounds);
  print(name, "push", times.push);
  print(name, "push to wait", times.round);
}

/// Layers of one rank, each handed over by one of `threads` threads, which begin a round together;
/// the times of every single call.
std::vector<double> play_layers(Driver& driver, std::size_t threads, std::size_t per_thread,
                                std::size_t rounds) {
  std::vector<std::vector<double>> times(threads);
  std::atomic<std::size_t> ready{0};
  std::barrier ended(static_cast<std::ptrdiff_t>(threads), [&]() noexcept {
    need(driver.wait());
    ready.store(0, std::memory_order_relaxed);
  });
  const auto hand_over = [&](std::size_t own) {
    const SteadyClock clock;
    times[own].reserve(rounds * per_thread);
    for (std::size_t r = 0; r < rounds + rounds / 10; ++r) {
      // Those that run at the moment leave together; a barrier would wake them one after another.
      ready.fetch_add(1, std::memory_order_acq_rel);
      while (ready.load(std::memory_order_acquire) < threads) std::this_thread::yield();
      for (std::size_t l = own * per_thread; l < (own + 1) * per_thread; ++l) {
        const auto before = clock.now();
        driver.push_layer(l);
        const auto after = clock.now();
        if (r >= rounds / 10) times[own].push_back(nanoseconds(after - before));
      }
      ended.arrive_and_wait();
    }
  };
  std::vector<std::thread> pool;
  for (std::size_t t = 1; t < threads; ++t) pool.emplace_back(hand_over, t);
  hand_over(0);
  for (auto& thread : pool) thread.join();
  std::vector<double> all;
  for (const auto& one : times) all.insert(all.end(), one.begin(), one.end());
  return all;
}

void measure_layers(const std::string& name, std::unique_ptr<Transport> transport, Idle idle,
                    std::size_t threads, std::size_t rounds) {
  constexpr std::size_t kPerThread = 8, kElements = 64;
  const auto layers = threads * kPerThread;
  Rig rig(std::move(transport), 0, 1, layers * kElements, idle, layers);
  rig.connect({rig.transport().address()}, view_of(1, 100'000'000));
  rig.enter();
  print(name + ", " + std::to_string(threads) + " threads", "push_layer",
        play_layers(rig.driver(), threads, kPerThread, rounds));
}

std::unique_ptr<Transport> shm(std::uint64_t job, Rank rank, std::uint32_t ranks) {
  TransportConfig config;
  config.job = job;
  config.rank = rank;
  config.world = ranks;
  return need(open_shm(config));
}

template <class... Rigs>
std::vector<std::unique_ptr<Rig>> list(Rigs... rigs) {
  std::vector<std::unique_ptr<Rig>> out;
  (out.push_back(std::move(rigs)), ...);
  return out;
}

void run(std::size_t rounds) {
  constexpr std::size_t kSmall = 256, kLarge = 250'000;  // A frame's worth, and 1 MB.
  const auto job = static_cast<std::uint64_t>(::getpid()) * 10;
  std::printf("%-38s %-14s %9s %9s %9s %9s %9s\n", "ns", "", "p50", "p90", "p99", "p99.9", "max");
  measure("alone, driver spins",
          list(std::make_unique<Rig>(std::make_unique<NullTransport>(), 0, 1, kSmall, Idle::spin)),
          rounds);
  measure("alone, driver yields",
          list(std::make_unique<Rig>(std::make_unique<NullTransport>(), 0, 1, kSmall, Idle::yield)),
          rounds);
  measure("alone, driver sleeps (shm)",
          list(std::make_unique<Rig>(shm(job + 1, 0, 1), 0, 1, kSmall, Idle::sleep)), rounds);
  for (const auto elements : {kSmall, kLarge}) {
    const auto turns = elements == kSmall ? rounds / 4 : rounds / 100 + 10;
    measure("two ranks, " + std::to_string(elements * 4) + " bytes (shm)",
            list(std::make_unique<Rig>(shm(job + elements, 0, 2), 0, 2, elements, Idle::sleep),
                 std::make_unique<Rig>(shm(job + elements, 1, 2), 1, 2, elements, Idle::sleep)),
            turns);
  }
  for (const std::size_t threads : {1U, 2U, 4U}) {
    measure_layers("layers, driver yields", std::make_unique<NullTransport>(), Idle::yield, threads,
                   rounds / 10 + 10);
  }
  for (const std::size_t threads : {1U, 2U, 4U}) {
    measure_layers("layers, driver sleeps (shm)", shm(job + 2 + threads, 0, 1), Idle::sleep,
                   threads, rounds / 10 + 10);
  }
}

}  // namespace
}  // namespace selmcast

int main(int argc, char** argv) {
  using namespace selmcast;
  char* end = nullptr;
  const long rounds = argc > 1 ? std::strtol(argv[1], &end, 10) : 20'000;
  if (argc > 2 || (end != nullptr && *end != '\0') || rounds < 100 || rounds > 10'000'000) {
    std::fprintf(stderr, "usage: bench_submit [rounds, 100 to 10000000]\n");
    return 2;
  }
  std::fprintf(stderr, "%s\n", machine_facts(describe_machine()).c_str());
  run(static_cast<std::size_t>(rounds));
  return 0;
}
