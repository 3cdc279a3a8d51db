// Objects named by 32-bit ids that stay invalid after their object is gone, and the handles that
// own them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace selmcast {

/// Values in numbered places; an id is the place (low 16 bits) and the place's generation (high 16
/// bits, never 0), which changes whenever the place is freed. An id of a freed value is thus not
/// found until its place was reused 65 535 times. One thread.
template <class T>
class HandleTable {
 public:
  static constexpr std::size_t kPlaces = 1U << 16U;

  /// The new value's id, never 0; nothing when the table is full. May allocate.
  std::optional<std::uint32_t> insert(T value) {
    if (free_.empty()) {
      if (places_.size() == kPlaces) return std::nullopt;
      places_.emplace_back();
      free_.reserve(places_.capacity());
      free_.push_back(static_cast<std::uint32_t>(places_.size() - 1));
    }
    const std::uint32_t at = free_.back();
    free_.pop_back();
    places_[at].value = std::move(value);
    return id_of(at);
  }

  /// The value, or nullptr for an id that was freed or never given out. Stays valid until the next
  /// insert().
  T* find(std::uint32_t id) noexcept {
    return const_cast<T*>(static_cast<const HandleTable*>(this)->find(id));
  }
  const T* find(std::uint32_t id) const noexcept {
    const std::uint32_t at = id & 0xFFFFU;
    if (at >= places_.size() || places_[at].generation != id >> 16U) return nullptr;
    return places_[at].value ? &*places_[at].value : nullptr;
  }

  /// Calls `use(id, value)` for each value, which it may change.
  template <class Use>
  void for_each(Use use) {
    for (std::size_t at = 0; at < places_.size(); ++at) {
      if (places_[at].value) use(id_of(static_cast<std::uint32_t>(at)), *places_[at].value);
    }
  }

  /// Takes the value out; nothing for an id that find() would not find. Does not allocate.
  std::optional<T> erase(std::uint32_t id) noexcept {
    if (find(id) == nullptr) return std::nullopt;
    Place& place = places_[id & 0xFFFFU];
    // Swapped, not moved: g++ 12 with TSan takes a moved optional for uninitialized.
    std::optional<T> out;
    out.swap(place.value);
    if (++place.generation == 0) place.generation = 1;
    free_.push_back(id & 0xFFFFU);
    return out;
  }

 private:
  std::uint32_t id_of(std::uint32_t at) const noexcept {
    return (std::uint32_t{places_[at].generation} << 16U) | at;
  }
  struct Place {
    std::optional<T> value;
    std::uint16_t generation = 1;
  };
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
};

/// Puts `value` into `table` and hands out the handle that owns it; the owner's release() erases
/// it. Error failed where the table is full, and `value` is gone.
template <detail::HandleKind kind, class T>
Result<TransportHandle<kind>> hand_out(Transport& owner, HandleTable<T>& table, T value) {
  const auto id = table.insert(std::move(value));
  if (id) return TransportHandle<kind>(&owner, *id);
  constexpr const char* kWhat[] = {"register_memory: 65536 regions are registered",
                                   "connect: 65536 endpoints are open",
                                   "join: 65536 memberships are held"};
  return failed(std::string(kWhat[static_cast<std::size_t>(kind)]) + " already; release some");
}

}  // namespace selmcast
