// Every interleaving of two or three threads: a small model checker for tests.
//
// The threads are real, but only one runs at a time. Before each operation on a modelled atomic
// another thread may go on instead; explore() runs the bodies again and again until every order of
// operations was tried (depth-first), except that of orders which differ only in operations that do
// not touch each other one is enough (sleep sets, Godefroid, LNCS 1032).
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace selmcast::interleavings {

inline constexpr std::size_t kThreads = 3;
using Clock = std::array<std::uint32_t, kThreads>;

/// Runs bodies over all schedules. One explorer at a time.
class Explorer {
 public:
  /// At most kThreads.
  using Bodies = std::vector<std::function<void()>>;

  /// `make()` builds a fresh instance: the bodies, which share what they capture. Returns how many
  /// schedules there are; stops at the first error.
  std::uint64_t explore(const std::function<Bodies()>& make) {
    // On one processor a hand-over is several times cheaper.
    cpu_set_t before, one;
    const bool pinned = sched_getaffinity(0, sizeof before, &before) == 0;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
    if (pinned) sched_setaffinity(0, sizeof one, &one);
    std::uint64_t schedules = 0;
    do {
      run_once(make());
      schedules += repeats_ ? 0 : 1;
    } while (error_.empty() && next_trail());
    if (pinned) sched_setaffinity(0, sizeof before, &before);
    return schedules;
  }
  const std::string& error() const { return error_; }

  // For bodies and the modelled types.
  static Explorer& running() { return *running_; }
  std::size_t thread() const { return current_; }
  Clock& clock() { return clocks_[current_]; }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  /// Whether all threads have ended: what is destroyed then is ordered by their joining.
  bool over() const { return over_; }
  /// A point where another thread may go on; then comes an operation on `object`.
  void step(const void* object, bool stores) {
    if (over_) return;
    const auto self = current_;
    fibers_[self].next = {object, stores};
    hand_over(self);
    for (auto& fiber : fibers_) {
      if (touch(fiber.next, fibers_[self].next)) fiber.asleep = false;
    }
  }
  /// Number of stores so far. A loop that polls takes it before it looks, and when it found nothing
  /// waits for a store after that: what spinning would do, in finitely many steps.
  std::uint64_t stores() const { return stores_; }
  void await_store_after(std::uint64_t seen) {
    const auto self = current_;
    fibers_[self].waits_after = seen;
    fibers_[self].waits = true;
    fibers_[self].next = {};
    hand_over(self);
    fibers_[self].waits = false;
    if (stores_ == seen) throw Stuck();
  }
  void count_store() { ++stores_; }

 private:
  struct Stuck {};
  struct Operation {
    const void* object = nullptr;  ///< Absent: not known.
    bool stores = true;
  };
  struct Fiber {
    std::binary_semaphore go{0};
    bool waits = false, done = false, asleep = false;
    Operation next;
    std::uint64_t waits_after = 0;
  };
  struct Choice {
    std::size_t taken = 0, of = 0;
  };

  /// Whether the order of two operations matters.
  static bool touch(const Operation& a, const Operation& b) {
    if (a.object == nullptr || b.object == nullptr) return true;
    return a.object == b.object && (a.stores || b.stores);
  }

  /// The next thread by the trail; `self` waits until it is chosen again.
  void hand_over(std::size_t self) {
    const auto next = choose();
    if (next == self) return;
    current_ = next;
    fibers_[next].go.release();
    if (!fibers_[self].done) fibers_[self].go.acquire();
  }

  std::size_t choose() {
    std::array<std::size_t, kThreads> among{};
    std::size_t count = 0, alive = 0;
    for (std::size_t t = 0; t < kThreads; ++t) {
      if (fibers_[t].done) continue;
      alive = t;
      if (!fibers_[t].waits || stores_ != fibers_[t].waits_after) among[count++] = t;
    }
    if (count == 0) {
      fail("every thread waits for another");
      return alive;
    }
    // A thread asleep would only repeat an order that was tried before.
    std::array<std::size_t, kThreads> awake{};
    std::size_t choices = 0;
    for (std::size_t c = 0; c < count; ++c) {
      if (!fibers_[among[c]].asleep) awake[choices++] = among[c];
    }
    if (choices == 0) repeats_ = true;
    if (repeats_) return among[0];
    if (choices == 1) return awake[0];
    if (depth_ == trail_.size()) trail_.push_back({0, choices});
    const auto taken = trail_[depth_++].taken;
    for (std::size_t c = 0; c < taken; ++c) fibers_[awake[c]].asleep = true;
    return awake[taken];
  }

  bool next_trail() {
    while (!trail_.empty() && trail_.back().taken + 1 == trail_.back().of) trail_.pop_back();
    if (trail_.empty()) return false;
    ++trail_.back().taken;
    return true;
  }

  void run_once(Bodies bodies) {
    running_ = this;
    over_ = repeats_ = false;
    depth_ = stores_ = 0;
    for (auto& fiber : fibers_) {
      fiber.waits = fiber.done = fiber.asleep = false;
      fiber.next = {};
    }
    std::array<std::thread, kThreads> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      clocks_[t] = {};
      clocks_[t][t] = 1;
      fibers_[t].done = t >= bodies.size();
      if (fibers_[t].done) continue;
      threads[t] = std::thread([this, t, &bodies] {
        fibers_[t].go.acquire();
        try {
          bodies[t]();
        } catch (const Stuck&) {
        }
        fibers_[t].done = true;
        const bool last =
            std::all_of(fibers_.begin(), fibers_.end(), [](const Fiber& f) { return f.done; });
        if (!last) hand_over(t);
      });
    }
    current_ = choose();
    fibers_[current_].go.release();
    for (std::size_t t = 0; t < bodies.size(); ++t) threads[t].join();
    over_ = true;
  }

  inline static Explorer* running_ = nullptr;
  std::array<Fiber, kThreads> fibers_;
  std::size_t current_ = 0;
  std::array<Clock, kThreads> clocks_{};
  std::vector<Choice> trail_;
  std::size_t depth_ = 0;
  std::uint64_t stores_ = 0;
  bool over_ = false, repeats_ = false;
  std::string error_;
};

}  // namespace selmcast::interleavings
