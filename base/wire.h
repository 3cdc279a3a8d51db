// Little-endian integers in byte buffers, independent of the host's order and of alignment.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace selmcast {

using Bytes = std::vector<std::byte>;

/// Not bool: a hostile byte other than 0 and 1 has no bool to become.
template <class T>
concept WireInteger = std::unsigned_integral<T> && !std::same_as<T, bool>;

template <WireInteger T>
constexpr T byte_swapped(T value) noexcept {
  T out = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out = static_cast<T>(static_cast<T>(out << 8U) | static_cast<T>(value & 0xFFU));
    value = static_cast<T>(value >> 8U);
  }
  return out;
}

/// Writes `value` at `at`; the caller guarantees sizeof(T) bytes of room.
template <WireInteger T>
void store_le(std::byte* at, T value) noexcept {
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1)
    value = byte_swapped(value);
  std::memcpy(at, &value, sizeof value);
}

/// Reads a T at `at`; the caller guarantees sizeof(T) readable bytes.
template <WireInteger T>
T load_le(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1)
    value = byte_swapped(value);
  return value;
}

/// Appends integers and byte strings to a buffer it grows. For set-up messages, not the data path.
class WireWriter {
 public:
  template <WireInteger T>
  WireWriter& put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<std::byte>(value & 0xFFU));
      if constexpr (sizeof(T) > 1) value = static_cast<T>(value >> 8U);
    }
    return *this;
  }
  /// A length (u32) followed by the bytes.
  WireWriter& put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  WireWriter& put_text(std::string_view text) { return put_bytes(std::as_bytes(std::span(text))); }
  /// Hands the bytes out; the writer is empty afterwards.
  Bytes take() { return std::exchange(out_, {}); }

 private:
  Bytes out_;
};

/// The characters that the bytes are, whatever they may be: check before they are shown.
inline std::string text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Reads what WireWriter wrote, from hostile bytes: past the end every read fails and keeps
/// failing.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> in) noexcept : in_(in) {}

  template <WireInteger T>
  std::optional<T> get() noexcept {
    if (!ok_ || in_.size() < sizeof(T)) return fail<T>();
    const T value = load_le<T>(in_.data());
    in_ = in_.subspan(sizeof(T));
    return value;
  }
  std::optional<std::span<const std::byte>> get_bytes() noexcept {
    const auto size = get<std::uint32_t>();
    if (!size || *size > in_.size()) return fail<std::span<const std::byte>>();
    const auto out = in_.first(*size);
    in_ = in_.subspan(*size);
    return out;
  }
  std::size_t remaining() const noexcept { return in_.size(); }
  /// True when no read failed and nothing is left over.
  bool finished() const noexcept { return ok_ && in_.empty(); }

 private:
  template <class T>
  std::optional<T> fail() noexcept {
    ok_ = false;
    return std::nullopt;
  }
  std::span<const std::byte> in_;
  bool ok_ = true;
};

}  // namespace selmcast
