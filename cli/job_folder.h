// The folder that holds the socket of a launcher's store.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace selmcast {

/// A folder in TMPDIR that only this user can enter; removed at the end. A lock says that its owner
/// lives, across containers that share the folder but not the numbers of processes.
class JobFolder {
 public:
  /// Also removes such folders of this user whose owner was killed. Errors: unavailable.
  static Result<JobFolder> make();
  JobFolder(JobFolder&& other) noexcept;
  JobFolder& operator=(JobFolder&&) = delete;
  ~JobFolder();

  std::string socket() const { return path_ + "/store"; }

 private:
  JobFolder(std::string path, UniqueFd lock);
  std::string path_;  ///< Empty when moved from.
  UniqueFd lock_;
};

}  // namespace selmcast
