// Drivers with a view put in force by hand, for benchmarks that need no store.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "plan/compile.h"
#include "sync/driver.h"

namespace selmcast {

/// Ends the benchmark with the reason when there is no value.
template <class T>
T need(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(3);
  }
  return std::move(result).value();
}
inline void need(const Result<void>& result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(3);
  }
}

inline View view_of(std::uint32_t ranks, Kbps rate) {
  View view;
  view.epoch = 1;
  view.seed = 5;
  for (Rank r = 0; r < ranks; ++r) {
    view.members.push_back(r);
    view.tx_kbps.push_back(rate);
    view.rx_kbps.push_back(rate);
  }
  return view;
}

inline DriverConfig config_of(const Policy& policy, Rank self, std::uint32_t ranks,
                              std::uint32_t frame_bytes) {
  DriverConfig config = driver_config(policy);
  config.job = 7;
  config.self = self;
  config.world = ranks;
  config.frame_bytes = frame_bytes;
  return config;
}

/// Offers the first view's program. Some thread must call progress() meanwhile; then
/// activate_first().
inline void offer_first(Driver& driver, const View& view, const Policy& policy, Rank self) {
  auto epoch = std::make_unique<EpochState>();
  epoch->program = need(compile(view, policy, self));
  driver.offer(std::move(epoch));
}

}  // namespace selmcast
