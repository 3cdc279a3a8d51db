// A job of Workers inside one process: threads that meet at barriers and gossip by a given
// schedule.
#pragma once

#include <algorithm>
#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/wire.h"
#include "selmcast/worker.h"
#include "train/reference.h"

namespace selmcast::testing {

/// What the workers of a LocalJob share.
class LocalJob {
 public:
  LocalJob(std::uint32_t workers, Schedule schedule)
      : schedule_(std::move(schedule)),
        parameters_(workers),
        barrier_(static_cast<std::ptrdiff_t>(workers)) {}

  std::unique_ptr<Worker> worker(Rank rank);
  std::map<std::string, Bytes> published;  ///< Read it after the threads ended.

 private:
  friend class LocalWorker;
  Schedule schedule_;
  std::vector<std::span<float>> parameters_;
  std::barrier<> barrier_;
  std::mutex mutex_;
};

class LocalWorker final : public Worker {
 public:
  LocalWorker(LocalJob& job, Rank rank) : job_(job), rank_(rank) {}

  Result<void> add_parameters(std::span<float> parameters) override {
    job_.parameters_[rank_] = parameters;
    return {};
  }
  Result<void> push() override { return {}; }
  Result<RoundReport> wait() override {
    job_.barrier_.arrive_and_wait();
    const ReceiverSets receivers = job_.schedule_(round_);
    std::vector<std::vector<float>> models;
    for (const auto& span : job_.parameters_) models.emplace_back(span.begin(), span.end());
    gossip(receivers, models);
    job_.barrier_.arrive_and_wait();  // everyone has read before anyone writes
    std::copy(models[rank_].begin(), models[rank_].end(), job_.parameters_[rank_].begin());
    RoundReport report;
    report.round = round_++;
    report.ms = 1.0 + rank_;
    report.rate_kbps = 1000;
    report.receivers = receivers[rank_];
    report.tx_bytes = 100;
    report.verified = true;
    return report;
  }
  Result<std::vector<RoundReport>> step() override {
    auto report = synchronize();
    if (!report) return std::move(report).error();
    return std::vector{std::move(report).value()};
  }
  Result<std::vector<RoundReport>> finish() override { return std::vector<RoundReport>(); }
  Result<void> add_layers(std::span<float>, std::span<const std::size_t>) override {
    return failed("no layers here");
  }
  Result<void> push_layer(std::size_t) override { return failed("no layers here"); }
  Result<void> wait_layer(std::size_t) override { return failed("no layers here"); }
  Rank rank() const noexcept override { return rank_; }
  std::uint32_t world() const noexcept override {
    return static_cast<std::uint32_t>(job_.parameters_.size());
  }
  std::vector<Rank> failed_ranks() const override { return {}; }
  PlanReport plan() const override { return {}; }
  std::vector<std::string> notices() const override { return {"one notice"}; }
  std::string transport_name() const override { return "threads"; }
  std::string policy_text() const override { return "select=test"; }
  Result<std::vector<double>> mean_of(std::span<const double> values, std::string) override {
    return std::vector<double>(values.begin(), values.end());
  }
  Result<void> publish(std::string tag, std::span<const std::byte> value) override {
    const std::scoped_lock lock(job_.mutex_);
    job_.published[std::to_string(rank_) + "/" + tag] = Bytes(value.begin(), value.end());
    return {};
  }
  Result<void> leave() override { return {}; }

 private:
  LocalJob& job_;
  Rank rank_;
  std::uint32_t round_ = 0;
};

inline std::unique_ptr<Worker> LocalJob::worker(Rank rank) {
  return std::make_unique<LocalWorker>(*this, rank);
}

/// A task on the shipped digits.
inline TrainTask digits_task(const TrainOptions& options) {
  return *TrainTask::make(options, *load_digits(*find_digits()));
}

/// Each worker reaches the next p ranks after an offset that rotates: every in-degree is p.
inline Schedule rotating(std::uint32_t workers, std::uint32_t p) {
  return [workers, p](std::uint32_t round) {
    ReceiverSets sets(workers);
    for (Rank i = 0; i < workers; ++i) {
      for (std::uint32_t q = 0; q < p; ++q) {
        sets[i].push_back((i + 1 + (p * round + q) % (workers - 1)) % workers);
      }
    }
    return sets;
  };
}

}  // namespace selmcast::testing
