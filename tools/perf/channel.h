// The TCP connection beside a measurement.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "tools/perf/exchange.h"

namespace selmcast::perf {

struct Message {
  Kind kind = Kind::alive;
  Bytes payload;
  /// Of a message that carries text; at most a line's worth.
  std::string text() const;
};

/// One thread. Each end says `alive` every kSayAlive while it works, so that an end that died, or a
/// network that did, is noticed within `timeout`, whatever the measurement waits for.
class Channel {
 public:
  static constexpr Duration kSayAlive = std::chrono::milliseconds(500);

  /// Server: waits for one client. Errors: bad_input (port in use), failed (nobody came).
  static Result<Channel> accept_one(std::uint16_t port, Duration timeout);
  /// Client: tries until a server listens there or `timeout` passed.
  static Result<Channel> connect(const std::string& host, std::uint16_t port, Duration timeout);

  /// Who is at the other end, for messages: "the server g1".
  const std::string& who() const noexcept { return who_; }

  Result<void> say(Kind kind, std::span<const std::byte> payload = {});
  Result<void> say_text(Kind kind, const std::string& text) {
    return say(kind, std::as_bytes(std::span(text)));
  }
  /// Waits up to `wait` for a message other than alive, after saying alive if that is due. Nothing:
  /// none came. Errors name the other end: it went away, was silent for longer than `timeout`, sent
  /// malformed bytes, refused (bad_input) or gave up (failed, with its reason).
  Result<std::optional<Message>> poll(Duration wait);
  /// Until a message comes, which must be of `kind`.
  Result<Message> expect(Kind kind);

 private:
  Channel(UniqueFd fd, std::string who, Duration timeout)
      : fd_(std::move(fd)), who_(std::move(who)), timeout_(timeout), heard_(clock_.now()) {}
  Result<bool> read_some(Duration wait);
  Result<std::optional<Message>> take();

  SteadyClock clock_;
  UniqueFd fd_;
  std::string who_;
  Duration timeout_;
  TimePoint heard_, said_{};
  Bytes in_;
};

}  // namespace selmcast::perf
