// The counters that a device keeps about what went wrong, before and after a measurement.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/perf/exchange.h"

namespace selmcast::perf {

struct Counter {
  std::string name;
  std::uint64_t value = 0;
};

/// The files of FOLDER/ports/PORT/hw_counters and /counters, by name; those that hold no number, or
/// cannot be read, are left out. FOLDER is /sys/class/infiniband/DEVICE.
std::vector<Counter> read_counters(const std::string& folder, unsigned port);

/// Whether a counter of this name says that something was lost, tried again, refused or damaged.
/// Drivers name theirs differently: known words decide.
bool tells_of_trouble(std::string_view name) noexcept;

/// Counters that tell of trouble and grew. One that wrapped or was reset counts as not moved.
std::vector<Moved> moved(const std::vector<Counter>& before, const std::vector<Counter>& after);

/// "rcvd_seq_err +3, out_of_sequence +1".
std::string text_of(const std::vector<Moved>& moved);

}  // namespace selmcast::perf
