// Rounds for tests of what happens around them.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "sync/steps/stepper.h"

namespace selmcast::testing_steps {

/// Rounds of several threads: the exact mean, and who comes late makes the others wait.
class Meeting {
 public:
  explicit Meeting(std::uint32_t n) : streams(n), arrived_(n, 0) {}

  class Seat final : public Rounds {
   public:
    Seat(Meeting& meeting, std::uint32_t rank) : meeting_(meeting), rank_(rank) {}
    void push() override { push_part(0, meeting_.streams[rank_].size()); }
    void push_part(std::size_t first, std::size_t count) override {
      meeting_.push(rank_, first, count);
    }
    bool settled() const noexcept override { return meeting_.closed() >= pushes(); }
    Result<RoundReport> wait() override { return meeting_.wait(rank_); }
    Result<void> pass(bool, std::vector<RoundReport>&) override { return failed("lock-step only"); }
    std::uint32_t pushes() const noexcept { return meeting_.pushed_by(rank_); }

   private:
    Meeting& meeting_;
    std::uint32_t rank_;
  };

  std::vector<std::span<float>> streams;

 private:
  void push(std::uint32_t rank, std::size_t first, std::size_t count) {
    const std::scoped_lock lock(mutex_);
    ++arrived_[rank];
    bool all = true;
    std::uint32_t here = 0;
    for (const auto rounds : arrived_) {
      all = all && rounds > closed_;
      here += rounds > closed_ ? 1 : 0;
    }
    // All ranks must exchange the same part.
    if (here == 1) part_ = {first, count};
    EXPECT_EQ(part_, std::pair(first, count)) << "round " << closed_;
    if (!all) return;
    for (std::size_t i = first; i < first + count; ++i) {
      double sum = 0.0;
      for (const auto& stream : streams) sum += static_cast<double>(stream[i]);
      const auto mean = static_cast<float>(sum / static_cast<double>(streams.size()));
      for (const auto& stream : streams) stream[i] = mean;
    }
    ++closed_;
    changed_.notify_all();
  }
  Result<RoundReport> wait(std::uint32_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ >= arrived_[rank]; });
    RoundReport report;
    report.round = arrived_[rank] - 1;
    return report;
  }
  std::uint32_t closed() const {
    const std::scoped_lock lock(mutex_);
    return closed_;
  }
  std::uint32_t pushed_by(std::uint32_t rank) const {
    const std::scoped_lock lock(mutex_);
    return arrived_[rank];
  }

  std::pair<std::size_t, std::size_t> part_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint32_t> arrived_;
  std::uint32_t closed_ = 0;
};

}  // namespace selmcast::testing_steps
