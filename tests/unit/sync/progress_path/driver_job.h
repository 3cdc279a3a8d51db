// A whole job in one process: a driver and its thread per rank, over any transport, with a
// view put in force by hand instead of through a store.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "plan/compile.h"
#include "sync/driver.h"
#include "tests/unit/sync/progress_path/intercept.h"

namespace selmcast {

class DriverJob {
 public:
  using Open = std::function<Result<std::unique_ptr<Transport>>(Rank)>;

  DriverJob(std::uint32_t ranks, std::size_t elements) : parameters_(ranks) {
    for (Rank r = 0; r < ranks; ++r) {
      parameters_[r].resize(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        parameters_[r][i] = static_cast<float>((31 * r + i) % 64) / 64.0F;
      }
    }
  }
  ~DriverJob() { stop(); }

  /// Why it cannot be; empty: ready, all drivers in the policy's first view, drivers running.
  std::string start(const Policy& policy, const Open& open) {
    const auto ranks = static_cast<std::uint32_t>(parameters_.size());
    std::uint32_t frame = ~0U;
    std::vector<PeerAddress> peers;
    for (Rank r = 0; r < ranks; ++r) {
      auto opened = open(r);
      if (!opened) return opened.error().message;
      transports_.push_back(std::move(opened).value());
      frame = std::min(frame, transports_.back()->capabilities().max_frame_bytes);
      peers.push_back(transports_.back()->address());
    }
    for (Rank r = 0; r < ranks; ++r) {
      DriverConfig config = driver_config(policy);
      config.job = 7;
      config.self = r;
      config.world = ranks;
      config.frame_bytes = frame;
      auto driver = Driver::make(*transports_[r], config, peers, parameters_[r]);
      if (!driver) return driver.error().message;
      drivers_.push_back(std::move(driver).value());
    }
    for (Rank r = 0; r < ranks; ++r) {
      threads_.emplace_back([this, r] { drive(r); });
    }
    return enter_view(policy);
  }

  /// From now on drivers are armed while they make progress.
  void watch(intercept::Watch what) noexcept { watch_.store(what, std::memory_order_release); }

  std::string round() {
    for (auto& driver : drivers_) driver->push();
    for (auto& driver : drivers_) {
      const auto report = driver->wait();
      if (!report) return report.error().message;
      if (!report->verified) return "a round was not verified";
    }
    return {};
  }

  void stop() {
    stop_.store(true, std::memory_order_release);
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void drive(Rank rank) {
    const SteadyClock clock;
    Driver& driver = *drivers_[rank];
    while (!stop_.load(std::memory_order_acquire)) {
      std::size_t done = 0;
      {
        const intercept::Armed armed(watch_.load(std::memory_order_acquire));
        done = driver.progress(clock.now());
      }
      // Sleeping when there is nothing to do is the driver loop's own call, not progress().
      if (done == 0) transports_[rank]->wait(std::chrono::milliseconds(1));
    }
  }

  std::string enter_view(const Policy& policy) {
    View view;
    view.epoch = 1;
    view.seed = 5;
    for (Rank r = 0; r < drivers_.size(); ++r) {
      view.members.push_back(r);
      view.tx_kbps.push_back(4'000'000);
      view.rx_kbps.push_back(4'000'000);
    }
    for (Rank r = 0; r < drivers_.size(); ++r) {
      auto program = compile(view, policy, r);
      if (!program) return program.error().message;
      auto epoch = std::make_unique<EpochState>();
      epoch->program = std::move(program).value();
      drivers_[r]->offer(std::move(epoch));
    }
    const auto all = [&](auto&& condition) {
      for (auto& driver : drivers_) {
        while (!condition(*driver) && !driver->failed()) std::this_thread::yield();
      }
    };
    all([](Driver& driver) { return driver.accepted().has_value(); });
    for (auto& driver : drivers_) driver->activate(0);
    all([](Driver& driver) { return driver.switched(); });
    for (auto& driver : drivers_) {
      if (driver->failed()) return driver->error().message;
    }
    return {};
  }

  std::vector<std::vector<float>> parameters_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Driver>> drivers_;
  std::atomic<intercept::Watch> watch_{intercept::Watch::nothing};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace selmcast
