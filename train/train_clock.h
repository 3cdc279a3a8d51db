// The time that a trainer sees: real, or a simulation's.
#pragma once

#include <thread>

#include "base/clock.h"

namespace selmcast {

/// One thread.
class TrainClock {
 public:
  virtual ~TrainClock() = default;
  virtual TimePoint now() = 0;
  virtual void sleep(Duration time) = 0;
};

class RealTrainClock final : public TrainClock {
 public:
  TimePoint now() override { return clock_.now(); }
  void sleep(Duration time) override { std::this_thread::sleep_for(time); }

 private:
  SteadyClock clock_;
};

}  // namespace selmcast
