// What a Worker's contract says of the order of calls, as a state machine of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "plan/axes/policy.h"

namespace selmcast::calls {

inline const std::vector<std::size_t> kLayers{4000, 96};

enum class Call : char {
  add_parameters = 'A',
  add_layers = 'L',
  push = 'p',
  wait = 'w',
  synchronize = 'y',
  step = 's',
  finish = 'f',
  push_first = '0',    ///< push_layer(0)
  push_second = '1',   ///< push_layer(1)
  push_missing = '2',  ///< push_layer(2), which does not exist
  wait_first = 'a',    ///< wait_layer(0)
  wait_missing = 'b',  ///< wait_layer(2)
  mean_of = 'm',
  publish = 'o',
  leave = 'l',
};

/// What the contract says of one rank, all ranks doing the same.
class Model {
 public:
  explicit Model(const Policy& policy) : policy_(policy) {}

  /// Whether the call is allowed now; if so it has been made.
  bool make(Call call) {
    switch (call) {
      case Call::add_parameters:
        return state_ == State::joined && start(0);
      case Call::add_layers:
        return state_ == State::joined && policy_.mix.kind == MixKind::sgd && start(kLayers.size());
      case Call::push:
        return begins() && !by_step_ && push();
      case Call::wait:
        return wait();
      case Call::synchronize:
        return begins() && !by_step_ && push() && wait();
      case Call::step:
        return begins() && step();
      case Call::finish:
        return begins() && finish();
      case Call::push_first:
        return hand_over(0);
      case Call::push_second:
        return hand_over(1);
      case Call::push_missing:
      case Call::wait_missing:
        return false;
      case Call::wait_first:
        return in_job() && layers_ > 0;
      case Call::mean_of:
      case Call::publish:
        return in_job();
      case Call::leave:
        state_ = State::left;
        return true;
    }
    return false;
  }

 private:
  enum class State { joined, running, ended, left };

  bool in_job() const { return state_ == State::running || state_ == State::ended; }
  bool begins() const { return state_ == State::running && layers_ == 0 && !pushed_; }
  bool start(std::size_t layers) {
    state_ = State::running;
    layers_ = layers;
    return true;
  }
  bool push() {
    steps_ = 0;
    return pushed_ = true;
  }
  bool wait() {
    if (!in_job()) return false;
    if (layers_ > 0) {
      if (handed_.size() != layers_) return false;
      handed_.clear();
      return true;
    }
    return std::exchange(pushed_, false);
  }
  bool hand_over(std::size_t layer) {
    return in_job() && layer < layers_ && handed_.insert(layer).second;
  }
  bool step() {
    if (policy_.pace.kind == PaceKind::overlap || policy_.pace.kind == PaceKind::stages) {
      by_step_ = true;
    } else if (policy_.mix.kind == MixKind::stale) {
      ++steps_;
      if (by_step_ && steps_ == policy_.mix.late_steps) by_step_ = false;
      if (steps_ == policy_.pace.period) {
        by_step_ = true;
        steps_ = 0;
      }
    }
    return true;
  }
  bool finish() {
    by_step_ = false;
    steps_ = 0;
    if (policy_.free() || policy_.pace.kind == PaceKind::overlap) state_ = State::ended;
    return true;
  }

  Policy policy_;
  State state_ = State::joined;
  std::size_t layers_ = 0;
  std::set<std::size_t> handed_;
  bool pushed_ = false;
  bool by_step_ = false;  ///< A round that step() began is under way.
  std::uint32_t steps_ = 0;
};

}  // namespace selmcast::calls
