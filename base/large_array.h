// Arrays that are walked from end to end, in pages as large as the machine gives.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/arena.h"

namespace selmcast {

/// So many zeros. From a huge page on they lie in an Arena, where a walk costs few translations of
/// addresses; smaller ones lie on the heap. Move-only. Throws std::bad_alloc when there is no
/// memory, as a vector does.
template <class T>
class LargeArray {
  static_assert(std::is_arithmetic_v<T>, "zeroed bytes are zeros");

 public:
  explicit LargeArray(std::size_t count) {
    const bool large = count >= Arena::kHugePage / sizeof(T);
    if (!large) {
      small_.resize(count, T{0});
      return;
    }
    auto mapped = Arena::map(count * sizeof(T));
    if (!mapped) throw std::bad_alloc();
    arena_ = std::move(mapped).value();
  }
  LargeArray(LargeArray&&) = default;
  LargeArray& operator=(LargeArray&&) = default;

  T* data() noexcept {
    return arena_.data() == nullptr ? small_.data() : reinterpret_cast<T*>(arena_.data());
  }

 private:
  std::vector<T> small_;
  Arena arena_;
};

}  // namespace selmcast
