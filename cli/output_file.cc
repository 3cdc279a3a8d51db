#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/unique_fd.h"

namespace selmcast {
namespace {

bool same_file(const struct stat& file, int fd) noexcept {
  struct stat other {};
  return ::fstat(fd, &other) == 0 && other.st_dev == file.st_dev && other.st_ino == file.st_ino;
}

/// Names of open files, where another file by the same name would not reach the reader.
bool names_a_descriptor(const std::string& path) noexcept {
  return path.starts_with("/proc/") || path.starts_with("/dev/fd/");
}

/// Where a path leads, or nothing for what may be named twice: devices, pipes, standard output.
std::string regular_target(const std::string& path) {
  if (path.empty() || path == "-" || names_a_descriptor(path)) return {};
  std::error_code unknown;
  const auto kind = std::filesystem::status(path, unknown).type();
  if (kind != std::filesystem::file_type::not_found &&
      kind != std::filesystem::file_type::regular) {
    return {};
  }
  const auto target = std::filesystem::weakly_canonical(std::filesystem::absolute(path), unknown);
  return unknown ? path : target.string();
}

bool can_be_created(const std::string& path) noexcept {
  ::unlink(path.c_str());
  const UniqueFd made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return made && ::unlink(path.c_str()) == 0;
}

/// 0, or errno. Both fwrite() and fflush() report errors of the device.
int put(std::FILE* file, const std::string& text) noexcept {
  errno = 0;
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  if (std::fflush(file) != 0) return errno;
  return whole ? 0 : reason;
}

}  // namespace

Result<void> check_distinct(std::span<const NamedFile> outputs, std::span<const NamedFile> inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NamedFile& output = outputs[i];
    const std::string target = regular_target(output.path);
    if (target.empty()) continue;
    const auto clashes = [&](const NamedFile& other) {
      if (regular_target(other.path) == target) return true;
      std::error_code unknown;  // Hard links: two names of one file.
      return !other.path.empty() && std::filesystem::equivalent(output.path, other.path, unknown);
    };
    for (std::size_t j = i + 1; j < outputs.size(); ++j) {
      if (!clashes(outputs[j])) continue;
      return bad_input(std::string(output.flag) + ", " + outputs[j].flag + ": both name " +
                       output.path + "; name two files");
    }
    for (const NamedFile& input : inputs) {
      if (!clashes(input)) continue;
      return bad_input(std::string(output.flag) + " " + output.path + ": is read as " + input.flag +
                       " by the same command; name another file for the result");
    }
  }
  return {};
}

Result<OutputFile> OutputFile::open(const std::string& flag, const std::string& path) {
  OutputFile output;
  output.flag_ = flag;
  output.path_ = path;
  if (path.empty()) return output;
  struct stat info {};
  const bool exists = path != "-" && ::stat(path.c_str(), &info) == 0;
  if (path == "-" || (exists && same_file(info, STDOUT_FILENO))) {
    output.kind_ = Kind::standard_output;
    return output;
  }
  const bool device = exists && !S_ISREG(info.st_mode);
  if (device || names_a_descriptor(path) || (exists && same_file(info, STDERR_FILENO))) {
    if (auto ok = output.open_stream(Kind::stream); !ok) return std::move(ok).error();
    return output;
  }
  std::error_code unresolved;
  const auto behind_links = std::filesystem::canonical(path, unresolved);
  output.target_ = unresolved ? path : behind_links.string();
  output.partial_ = output.target_ + ".partial-" + std::to_string(::getpid());
  const bool writable = !exists || ::access(path.c_str(), W_OK) == 0;
  if (writable && can_be_created(output.partial_)) {
    output.kind_ = Kind::replaced;
    return output;
  }
  if (auto ok = output.open_stream(Kind::in_place); !ok) return std::move(ok).error();
  return output;
}

Result<void> OutputFile::open_stream(Kind kind) {
  // Append mode keeps what is there and adds to what others write to the same file.
  stream_.reset(std::fopen(path_.c_str(), "ae"));
  if (stream_ == nullptr) {
    return bad_input(name() + ": cannot open for writing: " + std::strerror(errno) +
                     "; name a file in an existing folder, or - for standard output");
  }
  kind_ = kind;
  return {};
}

Result<void> OutputFile::drop_old() {
  // A mounted file, or one of a folder with the sticky bit, can be emptied but not removed.
  if (kind_ == Kind::replaced && ::unlink(target_.c_str()) != 0 && errno != ENOENT) {
    if (auto ok = open_stream(Kind::in_place); !ok) return ok;
  }
  if (kind_ == Kind::in_place && ::ftruncate(::fileno(stream_.get()), 0) != 0) {
    return bad_input(name() + ": cannot be emptied: " + std::strerror(errno));
  }
  return {};
}

Result<void> OutputFile::write(const std::string& text) {
  if (kind_ == Kind::none) return {};
  if (kind_ == Kind::replaced) return replace(text);
  int reason = 0;
  if (kind_ == Kind::in_place && ::ftruncate(::fileno(stream_.get()), 0) != 0) reason = errno;
  if (reason == 0) reason = put(kind_ == Kind::standard_output ? stdout : stream_.get(), text);
  if (stream_ != nullptr && std::fclose(stream_.release()) != 0 && reason == 0) reason = errno;
  kind_ = Kind::none;
  if (reason == 0) return {};
  return failed(name() + ": writing failed: " + std::strerror(reason));
}

Result<void> OutputFile::replace(const std::string& text) {
  kind_ = Kind::none;
  int reason = 0;
  stream_.reset(std::fopen(partial_.c_str(), "wxe"));
  if (stream_ == nullptr) {
    reason = errno;
  } else {
    reason = put(stream_.get(), text);
    if (std::fclose(stream_.release()) != 0 && reason == 0) reason = errno;
    if (reason == 0 && std::rename(partial_.c_str(), target_.c_str()) != 0) reason = errno;
    if (reason == 0) return {};
    ::unlink(partial_.c_str());
  }
  ::unlink(target_.c_str());
  return failed(name() + ": writing failed: " + std::strerror(reason));
}

}  // namespace selmcast
