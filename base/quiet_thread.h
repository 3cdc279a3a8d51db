// Threads of the library's own, which no signal reaches: those are the application's.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace selmcast {

/// Starts `body` in `thread` with all signals blocked. 0 or an errno; never throws.
template <class Body>
int start_quiet(std::thread& thread, Body body) noexcept {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    error = refused.code().value();
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

/// For an error message: that there is no thread `purpose` (as "to move its bytes"), by which limit
/// and what to do, after start_quiet() returned `error`.
std::string no_thread(const std::string& purpose, int error);

}  // namespace selmcast
