// A measurement between two ends (or, of a group, several), as perftest does it: one end serves,
// the other, with the same flags, comes and measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/perf/exchange.h"
#include "tools/perf/settings.h"

namespace selmcast::perf {

/// One repeat as the client saw it, with what the servers reported.
struct Repeat {
  std::uint32_t number = 0;     ///< 0: the warm-up.
  std::uint64_t messages = 0;   ///< Completed, or answered.
  double seconds = 0;           ///< From the first post to the last completion.
  double cpu_seconds = 0;       ///< Of this process.
  std::vector<Moved> moved;     ///< Counters of this end's device.
  std::vector<Report> reports;  ///< One per server.
  // Latency only; ns.
  std::uint32_t p50 = 0, p99 = 0, p999 = 0, least = 0, most = 0;
  double mean = 0;
  std::uint64_t lost = 0;  ///< Pings without an answer.
};

struct Outcome {
  std::string port;  ///< DevicePort::text().
  std::uint32_t mtu_bytes = 0;
  bool inlined = false;
  std::vector<Repeat> repeats;
  /// At the client: bytes of reads, or the sum of atomics, that it checked itself.
  std::uint64_t bytes_checked = 0;
};

/// Called after each repeat, the warm-up included, with how many of how many are done.
using OnRepeat = std::function<void(std::uint32_t done, std::uint32_t of)>;

/// The client: warms up, measures settings.repeats times. Several hosts only for multicast. Errors:
/// bad_input (flags that differ, by name), unavailable (no device), failed (an end that died or was
/// silent, an error completion with its cause, damaged bytes). Every wait ends by settings.timeout
/// without progress.
Result<Outcome> run_client(const Settings& settings, const std::vector<std::string>& hosts,
                           const OnRepeat& on_repeat);

/// The server: waits for one client and serves it to its end. Its repeats hold `reports` of one,
/// its own. Errors as run_client().
Result<Outcome> run_server(const Settings& settings);

/// Datagrams to or from a group without another end of ours (mckey, iperf-like tools): sends
/// settings.iterations messages, or receives that many and looks at their length only.
Result<Outcome> send_alone(const Settings& settings);
Result<Outcome> receive_alone(const Settings& settings);

}  // namespace selmcast::perf
