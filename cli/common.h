// What every subcommand shares: exit status, one-line errors, the JSON document, progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/output_file.h"

namespace selmcast {

/// Exit status of a failure: bad_input 2, unavailable 3, failed 1.
int exit_status_of(ErrorKind kind) noexcept;

/// The text on one line: line breaks and other control characters become single blanks, since names
/// taken from files and the network end up in messages.
std::string one_line(std::string_view text);

/// Writes "selmcast: MESSAGE" as one line to standard error and returns the exit status.
int print_error(const Error& error);

/// Writes "selmcast: note: MESSAGE" as one line to standard error.
void print_notice(std::string_view message);

bool is_terminal(std::FILE* stream) noexcept;

/// Where `--json` (or another flag with a JSON document) goes; see OutputFile.
class JsonOutput {
 public:
  /// Errors: bad_input when the file cannot be opened for writing.
  static Result<JsonOutput> open(const std::string& path, const std::string& flag = "--json");
  JsonOutput() = default;

  bool wanted() const noexcept { return file_.wanted(); }
  /// Where human text goes: null when standard output belongs to the JSON document.
  std::FILE* human() const noexcept { return silent_ ? nullptr : stdout; }
  /// See OutputFile.
  Result<void> drop_old() { return file_.drop_old(); }
  /// Writes the document, with `"schema": 1` added if it is absent, and closes the file. Without a
  /// destination it does nothing. Errors: failed when the device is full or the reader is gone.
  Result<void> write(nlohmann::ordered_json document);

 private:
  OutputFile file_;
  bool silent_ = false;
};

/// Shows how far a counted piece of work is: a bar that redraws itself on a terminal, otherwise a
/// line for about every tenth of the work. A null stream keeps it silent. One thread.
class Progress {
 public:
  /// `total` is the number of steps; at least 1.
  Progress(std::FILE* stream, std::string label, std::uint64_t total);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { finish(); }

  /// `done` steps are complete; `detail` is a few words beside the bar.
  void update(std::uint64_t done, std::string_view detail = {});
  /// Leaves the last state on a line of its own; later updates show nothing.
  void finish();

 private:
  void draw_bar(std::uint64_t done, std::string_view detail);

  std::FILE* stream_;
  std::string label_;
  std::uint64_t total_;
  bool terminal_;
  std::uint64_t next_line_ = 0;
  std::chrono::steady_clock::time_point next_draw_{};
  std::string drawn_;
};

}  // namespace selmcast
