#include "store/protocol.h"

#include <algorithm>

#include "base/check.h"

namespace selmcast::store {
namespace {

constexpr std::size_t kPrefix = sizeof(std::uint32_t);

Bytes with_length(WireWriter&& writer) {
  Bytes bytes = std::move(writer).take();
  store_le(bytes.data(), static_cast<std::uint32_t>(bytes.size() - kPrefix));
  return bytes;
}

WireWriter begin(MessageKind kind) {
  WireWriter writer;
  writer.put(std::uint32_t{0}).put(static_cast<std::uint8_t>(kind));
  return writer;
}

bool decode_hello(WireReader& in, Message& out) {
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  if (!magic || !version) return false;
  out.magic = *magic;
  out.version = *version;
  if (*magic != kMagic || *version != kVersion) return true;  // The rest is another version's.
  const auto rank = in.get<std::uint32_t>();
  const auto world = in.get<std::uint32_t>();
  if (!rank || !world) return false;
  out.rank = *rank;
  out.world = *world;
  return in.finished();
}

bool decode_pair(WireReader& in, Message& out) {
  const auto key = in.get_bytes();
  const auto value = in.get_bytes();
  if (!key || !value || key->empty() || key->size() > kKeyMax || !in.finished()) return false;
  out.key = text_in(*key);
  if (value->size() > value_limit(out.key)) return false;
  out.value.assign(value->begin(), value->end());
  return true;
}

bool decode_refusal(WireReader& in, Message& out) {
  const auto text = in.get_bytes();
  if (!text || text->size() > kRefusalMax || !in.finished()) return false;
  out.text = text_in(*text);
  // It ends up on a terminal.
  std::replace_if(
      out.text.begin(), out.text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return true;
}

bool decode_fields(WireReader& in, Message& out) {
  switch (out.kind) {
    case MessageKind::hello:
      return decode_hello(in, out);
    case MessageKind::refusal:
      return decode_refusal(in, out);
    case MessageKind::write: {
      const auto flag = in.get<std::uint8_t>();
      if (!flag || *flag > 1) return false;
      out.only_if_absent = *flag == 1;
      return decode_pair(in, out);
    }
    case MessageKind::value:
      return decode_pair(in, out);
    case MessageKind::lost: {
      const auto rank = in.get<std::uint32_t>();
      if (!rank || !in.finished()) return false;
      out.rank = *rank;
      return true;
    }
    case MessageKind::welcome:
    case MessageKind::leave:
    case MessageKind::farewell:
      return in.finished();
  }
  return false;
}

}  // namespace

Result<void> check_pair(std::string_view key, std::size_t value_bytes) {
  if (key.empty() || key.size() > kKeyMax) {
    return bad_input("store key of " + std::to_string(key.size()) + " bytes: 1 to " +
                     std::to_string(kKeyMax) + " are allowed");
  }
  if (value_bytes > value_limit(key)) {
    return bad_input("store value of key '" + std::string(key) + "' has " +
                     std::to_string(value_bytes) + " bytes: up to " +
                     std::to_string(value_limit(key)) + " are allowed");
  }
  return {};
}

Bytes encode_write(std::string_view key, std::span<const std::byte> value, bool only_if_absent) {
  SELMCAST_CHECK(!key.empty() && key.size() <= kKeyMax, "key of 1 to 256 bytes");
  SELMCAST_CHECK(value.size() <= value_limit(key), "value within its limit");
  WireWriter writer = begin(MessageKind::write);
  writer.put(static_cast<std::uint8_t>(only_if_absent ? 1 : 0)).put_text(key).put_bytes(value);
  return with_length(std::move(writer));
}

Bytes encode_value(std::string_view key, std::span<const std::byte> value) {
  SELMCAST_CHECK(!key.empty() && key.size() <= kKeyMax, "key of 1 to 256 bytes");
  SELMCAST_CHECK(value.size() <= value_limit(key), "value within its limit");
  WireWriter writer = begin(MessageKind::value);
  writer.put_text(key).put_bytes(value);
  return with_length(std::move(writer));
}

Bytes encode(const Message& message) {
  WireWriter writer = begin(message.kind);
  switch (message.kind) {
    case MessageKind::hello:
      writer.put(message.magic).put(message.version).put(message.rank).put(message.world);
      break;
    case MessageKind::refusal:
      writer.put_text(std::string_view(message.text).substr(0, kRefusalMax));
      break;
    case MessageKind::write:
      return encode_write(message.key, message.value, message.only_if_absent);
    case MessageKind::value:
      return encode_value(message.key, message.value);
    case MessageKind::lost:
      writer.put(message.rank);
      break;
    case MessageKind::welcome:
    case MessageKind::leave:
    case MessageKind::farewell:
      break;
  }
  return with_length(std::move(writer));
}

std::optional<Message> decode(std::span<const std::byte> body) {
  WireReader in(body);
  const auto kind = in.get<std::uint8_t>();
  if (!kind) return std::nullopt;
  Message out;
  out.kind = static_cast<MessageKind>(*kind);
  if (!decode_fields(in, out)) return std::nullopt;
  return out;
}

void MessageStream::feed(std::span<const std::byte> bytes) {
  if (malformed_) return;
  if (taken_ > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

MessageStream::State MessageStream::next(Message& out) {
  if (malformed_) return State::malformed;
  const auto left = std::span<const std::byte>(buffer_).subspan(taken_);
  if (left.size() < kPrefix) return State::need_more;
  const std::size_t body = load_le<std::uint32_t>(left.data());
  if (body == 0 || body > body_max_) {
    malformed_ = true;
    return State::malformed;
  }
  if (left.size() - kPrefix < body) return State::need_more;
  auto message = decode(left.subspan(kPrefix, body));
  if (!message) {
    malformed_ = true;
    return State::malformed;
  }
  taken_ += kPrefix + body;
  if (taken_ == buffer_.size() && buffer_.capacity() > kValueMax) {
    Bytes().swap(buffer_);  // A large result should not stay resident per connection.
    taken_ = 0;
  }
  out = std::move(*message);
  return State::message;
}

}  // namespace selmcast::store
