// The thread that talks to the job's store, so that neither the driver nor the application has to.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "sync/view_agent.h"

namespace selmcast {

/// Owns the store's client and the view agent from begin() on. Everything else reaches them through
/// run_until(). A failure of the store or of the agreement fails the driver.
class ControlThread {
 public:
  /// `store` is what begin() will be given; both it and the driver outlive this object.
  ControlThread(Rendezvous& store, Driver& driver, AgentConfig config);
  ~ControlThread();

  /// Makes the thread, which waits for begin(). Error: the system gives no further thread. Two
  /// calls, so that a rank learns of that while it can still say that it does not start.
  Result<void> start();
  /// Takes the store over, which nobody else uses from here on.
  void begin(std::unique_ptr<Rendezvous> store);

  /// Runs `task` on the control thread again and again until it returns a value, and returns that.
  /// Gives up after `timeout` with an error that says "<what>", or at once when the driver failed.
  /// `what` is read then, so the task may have written to it. After begin() and before stop(); any
  /// thread but the control thread; one call at a time.
  using Task = std::function<std::optional<Result<void>>(Rendezvous&, const ViewAgent&)>;
  Result<void> run_until(Task task, Duration timeout, const std::string& what);

  /// Ends the thread after saying goodbye to the store (or not: then this rank counts as lost).
  void stop(bool goodbye);

  // Snapshots; any thread.
  std::vector<Rank> failed_ranks() const;
  PlanReport plan() const;

 private:
  void loop();
  void run_task();

  const Rank rank_;
  std::unique_ptr<Rendezvous> store_;  ///< Null until begin(); ordered by mutex_ there.
  Driver& driver_;
  ViewAgent agent_;
  /// Release in stop(), acquire in loop(). Set under mutex_, for the wait for begin().
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  ///< Guards all below; never taken by the driver.
  std::condition_variable changed_;
  Task task_;
  std::optional<Result<void>> outcome_;
  std::vector<Rank> failed_ranks_;
  PlanReport plan_;
  std::thread thread_;
};

}  // namespace selmcast
