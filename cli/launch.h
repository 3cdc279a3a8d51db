// Starts the ranks of a job as processes of this program and watches over them.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"

namespace selmcast {

struct LaunchSpec {
  std::uint32_t workers = 1;
  /// After the program name; the launcher appends --rank I --world N --rendezvous URL.
  std::vector<std::string> child_arguments;
  /// Appended to the arguments of one rank each; empty or one entry per rank.
  std::vector<std::vector<std::string>> rank_arguments;
  /// A rank that outlives the others by this much is ended.
  Duration timeout{std::chrono::seconds(10)};
  /// Called now and then with what a rank published as "progress"; key is "<rank>/progress".
  std::function<void(std::string_view key, std::span<const std::byte> value)> on_progress;
};

struct LaunchOutcome {
  std::vector<Rank> failed_ranks;        ///< Ended by a signal or with an error, ascending.
  std::map<std::string, Bytes> results;  ///< Published, keys without "result/", e.g. "3/train".
  /// Last diagnostic line of each failed rank; first that of the exit status, if it is a rank's.
  std::vector<std::string> child_errors;
  int exit_status = 0;  ///< 0 when a rank finished; otherwise the gravest status of the ranks.
};

/// Has the ranks use the interfaces in turn; none named leaves the choice to the ranks.
void spread_interfaces(const std::vector<std::string>& interfaces, LaunchSpec& spec);

/// The error of a launch whose exit status is not 0.
Error error_of(const LaunchOutcome& outcome);

/// Hosts the job's store, starts the ranks and waits until all have ended. Their standard error
/// passes through, each line headed by its rank. SIGINT, SIGTERM, SIGHUP and SIGQUIT end the ranks,
/// then the launch. Whatever happens, no rank outlives this call (nor this process). Errors: the
/// ranks cannot start.
Result<LaunchOutcome> launch(const LaunchSpec& spec);

}  // namespace selmcast
