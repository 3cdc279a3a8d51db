// An application under the simulated clock: one rank that computes for a stated time and steps.
#pragma once

#include <functional>
#include <memory>
#include <semaphore>
#include <thread>

#include "sync/rank_runtime.h"

namespace selmcast {

/// What one rank's application sees of a simulated job. It runs in a thread of its own, but never
/// at the same time as the simulation or another application: whoever waits passes a baton on, so
/// that a job runs the same way every time. All calls but those marked [simulation] by the
/// application.
class SimRank final : public DriverRounds {
 public:
  /// Runs until it returns; its error becomes the rank's.
  using Application = std::function<Result<void>(SimRank&)>;
  /// Tells the virtual time.
  using Now = std::function<TimePoint()>;

  /// What set_up() needs to know, and what is to be told when it has succeeded.
  struct Setting {
    Transport* transport = nullptr;
    RankSettings rank;
    std::vector<PeerAddress> peers;
    std::function<void(Driver&)> ready;
  };

  SimRank(Rank rank, Setting setting, Now now);
  ~SimRank() override;

  /// Once, before any round; see Worker::add_parameters() and add_layers().
  Result<void> set_up(std::span<float> parameters, std::span<const std::size_t> layers);
  Stepper& stepper() noexcept { return runtime_->stepper(); }

  Rank rank() const noexcept { return rank_; }
  TimePoint now() const { return now_(); }
  /// Lets the time pass. Returns at once when the rank is ended().
  void compute(Duration time);
  /// The rank died or the job was cut off: every wait() is an error, and the application must
  /// return.
  bool ended() const noexcept { return ended_; }

  Result<RoundReport> wait() override;
  // Where layers are handed over one by one; wait() then waits for all of them.
  void push_layer(std::size_t layer);
  Result<void> wait_layer(std::size_t layer);

  // [simulation]
  void start(Application application);
  /// Lets the application go on if what it waits for has happened; true if it did.
  bool resume();
  /// When it wants to go on by itself; kNever while it waits for a round or has returned.
  TimePoint wakes_at() const noexcept { return waits_for_round_ ? kNever : wakes_at_; }
  bool returned() const noexcept { return returned_; }
  const Result<void>& result() const noexcept { return result_; }
  /// Makes the application return.
  void end();

 private:
  void block();

  Rank rank_;
  Setting setting_;
  std::size_t layers_ = 0, layers_pushed_ = 0;
  std::unique_ptr<RankRuntime> runtime_;
  Now now_;
  TimePoint wakes_at_{};
  bool waits_for_round_ = false, ended_ = false, returned_ = false;
  std::optional<std::size_t> waits_for_layer_;
  Result<void> result_;
  /// Each handed over by release() of the one side and acquire() of the other, which orders
  /// everything else in here.
  std::binary_semaphore go_{0}, back_{0};
  std::thread thread_;
};

}  // namespace selmcast
