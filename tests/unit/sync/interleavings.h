// Atomics and plain memory whose every interleaving an Explorer tries, with a race detector.
//
// Each thread and each atomic carries a vector clock: a store with release order hands the clock on
// to loads with acquire order, a relaxed one does not, so data that is not ordered by such a pair
// is reported as a race even though the interleaving itself is sequentially consistent (vector
// clocks as in FastTrack, Flanagan and Freund, PLDI 2009).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "tests/unit/sync/explorer.h"

namespace selmcast::interleavings {

/// std::atomic as far as the code under test uses it.
template <class T>
class Atomic {
 public:
  explicit Atomic(T value = T{}) : value_(value) {}

  T load(std::memory_order order) const {
    auto& at = Explorer::running();
    at.step(this, false);
    if (order == std::memory_order_acquire || order == std::memory_order_acq_rel) take(at.clock());
    return value_;
  }
  void store(T value, std::memory_order order) {
    auto& at = Explorer::running();
    at.step(this, true);
    value_ = value;
    at.count_store();
    hand_on(at, order, false);
  }
  T exchange(T value, std::memory_order order) {
    auto& at = Explorer::running();
    at.step(this, true);
    if (order != std::memory_order_relaxed && order != std::memory_order_release) take(at.clock());
    const T before = value_;
    value_ = value;
    at.count_store();
    hand_on(at, order, true);
    return before;
  }
  T fetch_add(T value, std::memory_order order) {
    auto& at = Explorer::running();
    at.step(this, true);
    if (order != std::memory_order_relaxed && order != std::memory_order_release) take(at.clock());
    const T before = value_;
    value_ = static_cast<T>(value_ + value);
    at.count_store();
    hand_on(at, order, true);
    return before;
  }

 private:
  void take(Clock& clock) const {
    for (std::size_t t = 0; t < kThreads; ++t) clock[t] = std::max(clock[t], released_[t]);
  }
  void hand_on(Explorer& at, std::memory_order order, bool read_modify_write) {
    const bool release = order == std::memory_order_release || order == std::memory_order_acq_rel;
    if (!release) {
      // A relaxed store ends the release sequence; a read-modify-write continues it.
      if (!read_modify_write) released_ = {};
      return;
    }
    auto& clock = at.clock();
    for (std::size_t t = 0; t < kThreads; ++t) {
      released_[t] = read_modify_write ? std::max(released_[t], clock[t]) : clock[t];
    }
    ++clock[at.thread()];
  }
  T value_;
  Clock released_{};
};

/// Plain memory: every access is checked to be ordered after the accesses it conflicts with.
class Data {
 public:
  int read() const {
    if (Explorer::running().over()) return value_;
    check("read");
    reads_[Explorer::running().thread()] = now();
    return value_;
  }
  void write(int value) {
    if (Explorer::running().over()) return;
    check("written");
    for (std::size_t t = 0; t < kThreads; ++t) {
      if (reads_[t] > Explorer::running().clock()[t] && t != Explorer::running().thread()) {
        Explorer::running().fail("data written while another thread may read it");
      }
    }
    writes_[Explorer::running().thread()] = now();
    value_ = value;
  }

 private:
  static std::uint32_t now() {
    auto& at = Explorer::running();
    return at.clock()[at.thread()];
  }
  void check(const char* what) const {
    auto& at = Explorer::running();
    for (std::size_t t = 0; t < kThreads; ++t) {
      if (t != at.thread() && writes_[t] > at.clock()[t]) {
        at.fail(std::string("data ") + what + " without order after another thread's write");
      }
    }
  }
  int value_ = 0;
  Clock writes_{};
  mutable Clock reads_{};
};

}  // namespace selmcast::interleavings
