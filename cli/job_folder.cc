#include "cli/job_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace selmcast {
namespace {

constexpr const char* kPrefix = "selmcast-job-";
constexpr const char* kLock = "lock";

std::string base_folder() {
  const char* base = std::getenv("TMPDIR");
  return base != nullptr && *base != 0 ? base : "/tmp";
}

/// Removes what a job leaves in its folder, and nothing else that may be there.
void remove_folder(const std::string& path) noexcept {
  for (const char* file : {"/store", "/lock.new", "/lock"}) ::unlink((path + file).c_str());
  ::rmdir(path.c_str());
}

void remove_if_abandoned(const std::string& path) noexcept {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!folder || ::fstat(folder.get(), &info) != 0 || info.st_uid != ::geteuid()) return;
  const UniqueFd lock(::openat(folder.get(), kLock, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  remove_folder(path);
}

void sweep(const std::string& base) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().filename().string().starts_with(kPrefix)) remove_if_abandoned(entry->path());
  }
}

/// The lock is held before it has its name: who finds it unlocked finds its owner dead.
UniqueFd make_lock(const std::string& folder) noexcept {
  const std::string unnamed = folder + "/lock.new";
  UniqueFd lock(::open(unnamed.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool held = lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                    ::rename(unnamed.c_str(), (folder + "/" + kLock).c_str()) == 0;
  return held ? std::move(lock) : UniqueFd();
}

}  // namespace

JobFolder::JobFolder(std::string path, UniqueFd lock)
    : path_(std::move(path)), lock_(std::move(lock)) {}

JobFolder::JobFolder(JobFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

JobFolder::~JobFolder() {
  if (!path_.empty()) remove_folder(path_);
}

Result<JobFolder> JobFolder::make() {
  const std::string base = base_folder();
  sweep(base);
  std::string path = base + "/" + kPrefix + "XXXXXX";
  const bool made = ::mkdtemp(path.data()) != nullptr;
  UniqueFd lock = made ? make_lock(path) : UniqueFd();
  if (!lock) {
    const std::string why = std::strerror(errno);
    if (made) remove_folder(path);
    return unavailable("cannot make a folder for the job's socket like " + path + ": " + why +
                       "; set TMPDIR to a folder that can be written");
  }
  return JobFolder(std::move(path), std::move(lock));
}

}  // namespace selmcast
