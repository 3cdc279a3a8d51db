// What a work request's wr_id says: what kind it is (top byte) and its number (the rest).
#pragma once

#include <cstdint>

namespace selmcast::verbs {

enum class Work : std::uint8_t { send = 1, receive, wire_up, reliable };

constexpr std::uint64_t tag(Work work, std::uint64_t number) noexcept {
  return (std::uint64_t{static_cast<std::uint8_t>(work)} << 56U) | number;
}
constexpr Work work_of(std::uint64_t id) noexcept {
  return static_cast<Work>(id >> 56U);
}
constexpr std::uint64_t number_of(std::uint64_t id) noexcept {
  return id & ((std::uint64_t{1} << 56U) - 1);
}

}  // namespace selmcast::verbs
