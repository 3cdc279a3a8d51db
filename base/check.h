// Programmer errors: a broken precondition prints where and why, then aborts.
#pragma once

namespace selmcast {

/// Prints "FILE:LINE: check failed: EXPRESSION: MESSAGE" to standard error and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const char* message) noexcept;

}  // namespace selmcast

/// Active in every build: it guards invariants, never input (input gets an Error).
#define SELMCAST_CHECK(condition, message)                               \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::selmcast::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
