#include "sync/control_thread.h"

#include <new>

#include "base/quiet_thread.h"

namespace selmcast {

namespace {
constexpr Duration kCalm = std::chrono::milliseconds(10);
constexpr Duration kBusy = std::chrono::milliseconds(1);
}  // namespace

ControlThread::ControlThread(Rendezvous& store, Driver& driver, AgentConfig config)
    : rank_(store.rank()), driver_(driver), agent_(store, driver, std::move(config)) {}

ControlThread::~ControlThread() {
  stop(false);
}

Result<void> ControlThread::start() {
  const int error = start_quiet(thread_, [this] { loop(); });
  if (error == 0) return {};
  return failed("rank " + std::to_string(rank_) + ": " +
                no_thread("to talk to the job's store", error));
}

void ControlThread::begin(std::unique_ptr<Rendezvous> store) {
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
  changed_.notify_all();
}

void ControlThread::stop(bool goodbye) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  thread_.join();
  if (goodbye && store_ != nullptr) store_->leave();
}

void ControlThread::loop() {
  {
    std::unique_lock lock(mutex_);
    // Ends with begin() or stop(), which the destructor calls.
    changed_.wait(lock, [this] {
      return store_ != nullptr || stop_.load(std::memory_order_relaxed);  // Ordered by mutex_.
    });
  }
  const SteadyClock clock;
  bool waiting = true;
  while (!stop_.load(std::memory_order_acquire)) {
    auto updated = store_->update(waiting || agent_.busy() ? kBusy : kCalm);
    if (!updated) {
      driver_.fail(failed("rank " + std::to_string(rank_) +
                          " lost the job's store: " + updated.error().message));
    } else if (!driver_.failed()) {
      // The job has started: what it meets from here on is a failure, not bad input.
      try {
        try {
          if (auto ok = agent_.step(clock.now()); !ok) driver_.fail(failed(ok.error().message));
        } catch (const std::bad_alloc&) {
          driver_.fail(unavailable("rank " + std::to_string(rank_) +
                                   " has no memory left for the plan of a new view"));
        }
      } catch (const std::bad_alloc&) {
        driver_.fail(unavailable("rank " + std::to_string(rank_) +
                                 " has no memory left for the plan of a new view"));
      }
    }
    {
      const std::lock_guard lock(mutex_);
      failed_ranks_ = agent_.failed_ranks();
      plan_ = agent_.plan();
      run_task();
      waiting = static_cast<bool>(task_);
    }
    if (!updated) return;
  }
}

void ControlThread::run_task() {
  if (!task_ || outcome_) return;
  if (driver_.failed()) {
    outcome_ = Result<void>(driver_.error());
  } else {
    outcome_ = task_(*store_, agent_);
  }
  if (outcome_) changed_.notify_all();
}

Result<void> ControlThread::run_until(Task task, Duration timeout, const std::string& what) {
  std::unique_lock lock(mutex_);
  if (driver_.failed()) return driver_.error();
  task_ = std::move(task);
  outcome_.reset();
  const bool done = changed_.wait_for(lock, timeout, [this] { return outcome_.has_value(); });
  task_ = nullptr;
  if (!done) {
    return failed(
        "rank " + std::to_string(rank_) + " waited " +
        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout).count()) + " s " +
        what);
  }
  return *std::exchange(outcome_, std::nullopt);
}

std::vector<Rank> ControlThread::failed_ranks() const {
  const std::lock_guard lock(mutex_);
  return failed_ranks_;
}

PlanReport ControlThread::plan() const {
  const std::lock_guard lock(mutex_);
  return plan_;
}

}  // namespace selmcast
