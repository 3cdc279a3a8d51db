// Hears what devices say unasked (a port going down, a device breaking) in a thread of its own, so
// that the data path never enters the kernel for it.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/verbs/rail.h"
#include "transport/verbs/removal_watch.h"

namespace selmcast::verbs {

class AsyncEvents {
 public:
  /// Sets Rail::up, gone, renamed, regroup and suspect of `rails` (which must outlive this), then
  /// calls `changed` (thread-safe). The thread ends with the object.
  static Result<std::unique_ptr<AsyncEvents>> start(std::vector<Rail*> rails,
                                                    std::function<void()> changed);
  ~AsyncEvents();

 private:
  AsyncEvents(std::vector<Rail*> rails, std::function<void()> changed, UniqueFd stop);
  void run();
  /// Until there are none for now; false when the device gives none any more.
  bool take(Rail& rail);

  std::vector<Rail*> rails_;
  std::vector<std::unique_ptr<RemovalWatch>> removals_;  ///< Of each rail; may be null.
  std::function<void()> changed_;
  UniqueFd stop_;
  std::thread thread_;
};

}  // namespace selmcast::verbs
