// A growable first-in first-out queue over one vector; slots keep what they own between uses.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace selmcast::detail {

/// Unlike std::deque it never gives memory back, so a queue that has reached its depth stops
/// allocating. One thread.
template <class T>
class RingQueue {
 public:
  bool empty() const noexcept { return size_ == 0; }
  std::size_t size() const noexcept { return size_; }
  T& front() noexcept { return slots_[head_]; }
  const T& operator[](std::size_t i) const noexcept {
    return slots_[(head_ + i) & (slots_.size() - 1)];
  }

  /// Appends and returns the new last slot, which still holds an earlier, used-up value.
  T& push_slot() {
    if (size_ == slots_.size()) grow();
    return slots_[(head_ + size_++) & (slots_.size() - 1)];
  }
  void push(T value) { push_slot() = std::move(value); }
  void pop() noexcept {
    head_ = (head_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 8 : slots_.size() * 2);
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move(slots_[(head_ + i) & (slots_.size() - 1)]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> slots_;  // Size is zero or a power of two.
  std::size_t head_ = 0, size_ = 0;
};

}  // namespace selmcast::detail
