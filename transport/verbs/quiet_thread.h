// Threads of the transport's own, which no signal reaches: those are the application's.
#pragma once

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace selmcast::verbs {

/// Starts `body` in `thread` with all signals blocked. 0 or an errno.
template <class Body>
int start_quiet(std::thread& thread, Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    error = refused.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace selmcast::verbs
