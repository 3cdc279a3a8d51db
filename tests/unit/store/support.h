// What the rendezvous tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "store/protocol.h"
#include "store/rendezvous.h"
#include "store/socket.h"

namespace selmcast::test {

using namespace std::chrono_literals;

inline Bytes bytes_of(std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

/// A directory that goes away with the test.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char name[] = "/tmp/selmcast-test-XXXXXX";
    if (::mkdtemp(name) != nullptr) path_ = name;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline StoreAddress socket_at(std::string path) {
  StoreAddress at;
  at.path = std::move(path);
  return at;
}
inline StoreAddress any_port() {
  StoreAddress at;
  at.kind = StoreAddress::Kind::tcp;
  at.host = "127.0.0.1";
  return at;
}

inline std::unique_ptr<StoreServer> serve(const StoreAddress& at, std::uint32_t world) {
  auto server = StoreServer::start(at, world);
  EXPECT_TRUE(server) << (server ? "" : server.error().message);
  return server ? std::move(*server) : nullptr;
}
inline std::unique_ptr<Rendezvous> join(const StoreServer& server, Rank rank, std::uint32_t world) {
  auto client = connect_store(server.address(), rank, world, 5s);
  EXPECT_TRUE(client) << (client ? "" : client.error().message);
  return client ? std::move(*client) : nullptr;
}

/// True once `condition` holds; gives up after 5 s.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + 5s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// A connection that speaks whatever bytes a test wants.
class RawClient {
 public:
  explicit RawClient(const StoreAddress& at) {
    auto fd = store::try_connect(at, SteadyClock().now() + 5s);
    if (fd) fd_ = std::move(*fd);
  }
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        if (sent < 0 && errno == EAGAIN &&
            store::wait_ready(fd_.get(), POLLOUT, SteadyClock().now() + 5s)) {
          continue;
        }
        return false;
      }
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Appends what came to `heard`; false when the server ended the connection or nothing came
  /// within `limit`.
  bool receive(Duration limit = 5s) {
    if (!store::wait_ready(fd_.get(), POLLIN, SteadyClock().now() + limit)) return false;
    std::byte chunk[4096];
    const auto got = ::recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    closed_ = got == 0 || (got < 0 && errno != EAGAIN);
    if (got > 0) heard.insert(heard.end(), chunk, chunk + got);
    return !closed_;
  }
  /// True when the server ended the connection before `limit` passed without a word from it.
  bool closed_by_server(Duration limit = 5s) {
    while (receive(limit)) {
    }
    return closed_;
  }

  Bytes heard;

 private:
  UniqueFd fd_;
  bool closed_ = false;
};

}  // namespace selmcast::test
