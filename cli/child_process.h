// One child process whose standard error we read line by line.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace selmcast {

/// Dies with its parent. Killed and reaped by the destructor if it still runs.
class ChildProcess {
 public:
  /// Runs this program (/proc/self/exe) with `arguments`.
  static Result<ChildProcess> start(const std::vector<std::string>& arguments);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  int error_fd() const noexcept { return errors_.get(); }
  /// Takes in what the child wrote to standard error; returns complete lines. The last one is kept.
  std::vector<std::string> read_lines();
  const std::string& last_line() const noexcept { return last_line_; }

  /// The wait status once the child has ended; reaps it.
  std::optional<int> ended();
  /// It runs, but a signal has stopped it (SIGSTOP, a debugger).
  bool stopped() const noexcept;
  void kill(int signal) noexcept;

 private:
  ChildProcess(pid_t pid, UniqueFd errors) : pid_(pid), errors_(std::move(errors)) {}

  pid_t pid_ = -1;  ///< -1 when moved from.
  UniqueFd errors_;
  std::string partial_, last_line_;
  std::optional<int> status_;
};

}  // namespace selmcast
