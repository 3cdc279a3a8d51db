// A file of results that a flag names: never half-written, never left over from an earlier run.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace selmcast {

/// A flag and what the user gave it; an empty path says that it was not given.
struct NamedFile {
  const char* flag;
  std::string path;
};

/// That no regular file is named by two outputs, nor read and written by the same command, through
/// links and different spellings too. Errors: bad_input, with both flags and the path.
Result<void> check_distinct(std::span<const NamedFile> outputs,
                            std::span<const NamedFile> inputs = {});

/// Where a result goes: nowhere (empty path), standard output (`-` or a name of it such as
/// /dev/stdout), a file, which is replaced as a whole, or a device, which is written to.
///
/// Opened before the work starts, so that a path that cannot be written stops the command before
/// anything runs. The old content of a file stays until drop_old() or write().
class OutputFile {
 public:
  /// Errors: bad_input, naming `flag` and the path, when it cannot be written.
  static Result<OutputFile> open(const std::string& flag, const std::string& path);
  OutputFile() = default;

  bool wanted() const noexcept { return kind_ != Kind::none; }
  bool is_standard_output() const noexcept { return kind_ == Kind::standard_output; }
  /// The work begins: from here on the result of an earlier run must not be taken for this one's.
  Result<void> drop_old();
  /// Writes `text` and closes. Without a destination it does nothing. Errors: failed when the
  /// device is full or the reader is gone; a file is then absent.
  Result<void> write(const std::string& text);

 private:
  enum class Kind { none, standard_output, replaced, stream, in_place };
  struct Closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  using Stream = std::unique_ptr<std::FILE, Closer>;
  std::string name() const { return flag_ + " " + path_; }
  Result<void> open_stream(Kind kind);
  Result<void> replace(const std::string& text);

  Kind kind_ = Kind::none;
  std::string flag_, path_;
  std::string target_;   ///< `replaced`: the file behind the links in `path_`.
  std::string partial_;  ///< `replaced`: beside the target, becomes it at the end.
  Stream stream_;        ///< `stream` and `in_place` (the folder takes no new file).
};

}  // namespace selmcast
