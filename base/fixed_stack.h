// A stack whose storage is allocated once.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace selmcast {

/// Pushing beyond the capacity is a programmer error. One thread.
template <class T>
class FixedStack {
 public:
  explicit FixedStack(std::size_t capacity = 0) : items_(capacity) {}

  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  void push(const T& item) noexcept {
    SELMCAST_CHECK(size_ < items_.size(), "push on a full stack");
    items_[size_++] = item;
  }
  T pop() noexcept {
    SELMCAST_CHECK(size_ > 0, "pop from an empty stack");
    return items_[--size_];
  }

 private:
  std::vector<T> items_;
  std::size_t size_ = 0;
};

}  // namespace selmcast
