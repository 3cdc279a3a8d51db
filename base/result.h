// Result<T>: the value of a set-up call or a sentence that says why there is none.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace selmcast {

/// What kind of failure an Error is; the command line turns it into the exit status.
enum class ErrorKind {
  bad_input,    ///< The caller's input is wrong: exit 2. The text names field, value, what is
                ///< allowed.
  unavailable,  ///< This machine lacks something (device, permission, package): exit 3, with
                ///< remedy.
  failed,       ///< It ran and failed (peer lost, deadline passed, store gone): exit 1.
};

/// One line for a person: what, where (file, field, rank, device), why, what to do.
struct Error {
  ErrorKind kind = ErrorKind::failed;
  std::string message;
};

inline Error bad_input(std::string message) {
  return {ErrorKind::bad_input, std::move(message)};
}
inline Error unavailable(std::string message) {
  return {ErrorKind::unavailable, std::move(message)};
}
inline Error failed(std::string message) {
  return {ErrorKind::failed, std::move(message)};
}

/// Holds a T or an Error. Converts implicitly from both. Reading the absent side aborts (CHECK).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  T& value() & { return check_value(), *std::get_if<0>(&state_); }
  const T& value() const& { return check_value(), *std::get_if<0>(&state_); }
  T&& value() && { return check_value(), std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() & { return &value(); }
  const T* operator->() const& { return &value(); }
  /// Would point into a temporary that dies with the expression.
  T* operator->() && = delete;
  const T* operator->() const&& = delete;

  const Error& error() const& {
    SELMCAST_CHECK(!has_value(), "error() of a Result that holds a value");
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    SELMCAST_CHECK(!has_value(), "error() of a Result that holds a value");
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  void check_value() const {
    if (!has_value()) SELMCAST_CHECK(false, std::get_if<1>(&state_)->message.c_str());
  }
  std::variant<T, Error> state_;
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit by design

  bool has_value() const noexcept { return ok_; }
  explicit operator bool() const noexcept { return ok_; }
  const Error& error() const& {
    SELMCAST_CHECK(!ok_, "error() of a Result that holds a value");
    return error_;
  }
  Error&& error() && {
    SELMCAST_CHECK(!ok_, "error() of a Result that holds a value");
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace selmcast
