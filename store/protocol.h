// Messages between a store's server and its clients. Pure: bytes in, values out, no I/O.
//
// On the stream: u32 length of the body, then the body: u8 kind and the fields of that kind,
// little- endian. A client begins with `hello`; the server answers with the values and losses so
// far and then `welcome`, or with `refusal`. `hello` keeps its first two fields (magic, version) in
// every version of the protocol, so that two versions can tell each other apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"
#include "store/keys.h"

namespace selmcast::store {

inline constexpr std::uint32_t kMagic = 0x524D4C53;  // "SLMR"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kKeyMax = 256;
inline constexpr std::size_t kValueMax = 1U << 20U;         ///< Of a key that is copied to clients.
inline constexpr std::size_t kResultValueMax = 64U << 20U;  ///< Of a key under "result/".
inline constexpr std::size_t kRefusalMax = 1024;
inline constexpr std::size_t kHelloBodyMax = 64;
inline constexpr std::size_t kBodyMax = kResultValueMax + kKeyMax + 16;

enum class MessageKind : std::uint8_t {
  hello = 1,     ///< client: magic, version, rank, world.
  welcome = 2,   ///< server: the client is in, and has the copy of this moment.
  refusal = 3,   ///< server: a sentence; the connection ends.
  write = 4,     ///< client: key, value, only_if_absent.
  value = 5,     ///< server: key, value.
  lost = 6,      ///< server: rank.
  leave = 7,     ///< client: the end of the connection is no loss from here on.
  farewell = 8,  ///< server: everything up to `leave` was taken in.
};

struct Message {
  MessageKind kind = MessageKind::welcome;
  std::uint32_t magic = kMagic;      ///< hello
  std::uint16_t version = kVersion;  ///< hello; when it differs from kVersion, rank and world are 0
  std::uint32_t world = 0;           ///< hello
  Rank rank = 0;                     ///< hello, lost
  bool only_if_absent = false;       ///< write
  std::string key;                   ///< write, value
  Bytes value;                       ///< write, value
  std::string text;                  ///< refusal; control characters are replaced by spaces

  bool operator==(const Message&) const = default;
};

inline bool is_result_key(std::string_view key) noexcept {
  return key.starts_with(keys::kResults);
}
inline std::size_t value_limit(std::string_view key) noexcept {
  return is_result_key(key) ? kResultValueMax : kValueMax;
}
/// bad_input when a key or the size of its value is outside its limits.
Result<void> check_pair(std::string_view key, std::size_t value_bytes);

/// The bytes of a message, length prefix included. Key and value must be within their limits; a
/// longer refusal text is cut.
Bytes encode(const Message& message);
/// As encode() for `write` and `value`, without a copy of the value on the way.
Bytes encode_write(std::string_view key, std::span<const std::byte> value, bool only_if_absent);
Bytes encode_value(std::string_view key, std::span<const std::byte> value);

/// One message from its body (without the length prefix); nothing if it is malformed in any way:
/// unknown kind, a length that does not fit, a limit passed, bytes left over.
std::optional<Message> decode(std::span<const std::byte> body);

/// Cuts a stream into messages. Memory grows with the bytes that came, never with what a length
/// prefix promises. After `malformed` it stays malformed.
class MessageStream {
 public:
  enum class State { need_more, message, malformed };

  /// Bodies larger than `body_max` are malformed.
  explicit MessageStream(std::size_t body_max) noexcept : body_max_(body_max) {}
  void set_body_max(std::size_t body_max) noexcept { body_max_ = body_max; }

  void feed(std::span<const std::byte> bytes);
  /// Takes the next whole message into `out`.
  State next(Message& out);

 private:
  std::size_t body_max_;
  Bytes buffer_;
  std::size_t taken_ = 0;
  bool malformed_ = false;
};

}  // namespace selmcast::store
