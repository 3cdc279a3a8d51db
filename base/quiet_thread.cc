#include "base/quiet_thread.h"

#include <sys/resource.h>

#include <cstring>
#include <fstream>

namespace selmcast {

namespace {

std::string user_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "no limit";
  return std::to_string(limit.rlim_cur);
}

/// Of the container, where it sees a control group of its own; empty elsewhere.
std::string group_limit() {
  std::ifstream in("/sys/fs/cgroup/pids.max");
  std::string limit;
  return in >> limit ? " is " + limit : "";
}

}  // namespace

std::string no_thread(const std::string& purpose, int error) {
  const std::string why = "no thread " + purpose + ": " + std::strerror(error);
  if (error == ENOMEM) return why + "; raise the limit (ulimit -v) or start fewer ranks here";
  return why + "; threads count as processes: raise the user's limit (ulimit -u is " +
         user_limit() + ") or the container's or service's (pids.max" + group_limit() +
         "), or start fewer ranks on this host";
}

}  // namespace selmcast
