#include "tools/perf/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "store/socket.h"

namespace selmcast::perf {
namespace {

constexpr Duration kTryAgain = std::chrono::milliseconds(50);
constexpr std::size_t kTextMost = 1'000;

std::string seconds_text(Duration time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s";
}

StoreAddress tcp(std::string host, std::uint16_t port) {
  StoreAddress out;
  out.kind = StoreAddress::Kind::tcp;
  out.host = std::move(host);
  out.port = port;
  return out;
}

}  // namespace

std::string Message::text() const {
  return text_in(std::span(payload).first(std::min(payload.size(), kTextMost)));
}

Result<Channel> Channel::accept_one(std::uint16_t port, Duration timeout) {
  const SteadyClock clock;
  const TimePoint end = clock.now() + timeout;
  auto listener = store::listen_at(tcp("::", port));
  if (!listener) listener = store::listen_at(tcp("0.0.0.0", port));  // No IPv6 here.
  if (!listener) return Error{listener.error().kind, "perf: --port: " + listener.error().message};
  for (;;) {
    if (clock.now() >= end || !store::wait_ready(listener->fd.get(), POLLIN, end)) {
      return failed("perf: no client came to TCP port " + std::to_string(port) + " within " +
                    seconds_text(timeout) +
                    "; start `selmcast perf THIS_HOST` with the same flags "
                    "there, or wait longer (--timeout)");
    }
    UniqueFd fd(::accept4(listener->fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      // A client that has gone again; anything else would be refused for ever.
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return failed("perf: no client can be accepted on TCP port " + std::to_string(port) + ": " +
                    std::strerror(errno));
    }
    store::tune(fd.get());
    return Channel(std::move(fd), "the client", timeout);
  }
}

Result<Channel> Channel::connect(const std::string& host, std::uint16_t port, Duration timeout) {
  const SteadyClock clock;
  const TimePoint end = clock.now() + timeout;
  while (clock.now() < end) {
    auto fd = store::try_connect(tcp(host, port), end);
    if (!fd) return Error{fd.error().kind, "perf: " + fd.error().message};
    if (*fd) {
      store::tune(fd->get());
      return Channel(std::move(fd).value(), "the server " + host, timeout);
    }
    std::this_thread::sleep_for(kTryAgain);
  }
  return failed("perf: no server listens at " + host + " TCP port " + std::to_string(port) +
                " within " + seconds_text(timeout) +
                "; start `selmcast perf` with the same flags there first");
}

Result<void> Channel::say(Kind kind, std::span<const std::byte> payload) {
  const Bytes bytes = encode_message(kind, payload);
  const TimePoint end = clock_.now() + timeout_;
  for (std::size_t done = 0; done < bytes.size();) {
    const auto sent = ::send(fd_.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent > 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!store::wait_ready(fd_.get(), POLLOUT, end)) {
        return failed("perf: " + who_ + " takes no bytes for " + seconds_text(timeout_));
      }
    } else {
      return failed("perf: " + who_ + " went away: " + std::strerror(errno));
    }
  }
  said_ = clock_.now();
  return {};
}

Result<bool> Channel::read_some(Duration wait) {
  std::array<std::byte, 4096> buffer;
  for (;;) {
    const auto got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      in_.insert(in_.end(), buffer.begin(), buffer.begin() + got);
      heard_ = clock_.now();
      return true;
    }
    if (got == 0) {
      return failed("perf: " + who_ + " closed the connection: it died or was stopped");
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return failed("perf: " + who_ + " went away: " + std::strerror(errno));
    if (wait <= Duration::zero()) return false;
    if (!store::wait_ready(fd_.get(), POLLIN, clock_.now() + wait)) return false;
    wait = Duration::zero();
  }
}

Result<std::optional<Message>> Channel::take() {
  while (in_.size() >= kHeaderBytes) {
    const auto header = decode_header(std::span<const std::byte, kHeaderBytes>(in_.data(), 6));
    if (!header) return header.error();
    if (in_.size() < kHeaderBytes + header->bytes) break;
    const auto begin = in_.begin() + kHeaderBytes;
    Message out{.kind = header->kind, .payload = Bytes(begin, begin + header->bytes)};
    in_.erase(in_.begin(), begin + header->bytes);
    if (out.kind == Kind::alive) continue;
    if (out.kind == Kind::refuse) return bad_input("perf: " + who_ + " refuses: " + out.text());
    if (out.kind == Kind::fail) return failed("perf: " + who_ + " gave up: " + out.text());
    return std::optional<Message>(std::move(out));
  }
  return std::optional<Message>();
}

Result<std::optional<Message>> Channel::poll(Duration wait) {
  if (clock_.now() - said_ >= kSayAlive) {
    // What the other end still had to say, above all its reason, comes first.
    if (auto ok = say(Kind::alive); !ok) {
      static_cast<void>(read_some(Duration::zero()));
      auto last = take();
      if (!last || *last) return last;
      return ok.error();
    }
  }
  auto waiting = take();
  if (!waiting || *waiting) return waiting;
  auto some = read_some(std::min(wait, kSayAlive));
  if (!some) return some.error();
  if (*some) return take();
  if (clock_.now() - heard_ > timeout_) {
    return failed("perf: " + who_ + " was silent for " + seconds_text(timeout_) +
                  ": it hangs, or the network between is down (--timeout)");
  }
  return std::optional<Message>();
}

Result<Message> Channel::expect(Kind kind) {
  // A peer that only says that it is alive does not keep this end for ever.
  const TimePoint end = clock_.now() + timeout_;
  while (clock_.now() < end) {
    auto message = poll(kSayAlive);
    if (!message) return message.error();
    if (!*message) continue;
    if ((*message)->kind == kind) return std::move(**message);
    return failed("perf: " + who_ + " sent message " +
                  std::to_string(static_cast<int>((*message)->kind)) + " where " +
                  std::to_string(static_cast<int>(kind)) + " was due");
  }
  return failed("perf: " + who_ + " did not get ready within " + seconds_text(timeout_));
}

}  // namespace selmcast::perf
