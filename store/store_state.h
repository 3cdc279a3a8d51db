// What a store's server knows, and what it owes to each client. No I/O and no threads of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "store/protocol.h"

namespace selmcast::store {

/// Bytes that a client has not read yet. Messages to several clients are shared.
struct Outbox {
  std::deque<std::shared_ptr<const Bytes>> messages;
  std::size_t sent_of_first = 0;
  std::size_t bytes = 0;  ///< Of all messages, sent_of_first not subtracted.

  void push(std::shared_ptr<const Bytes> message);
  /// Counts `count` bytes from the front as sent.
  void consume(std::size_t count);
  bool empty() const noexcept { return messages.empty(); }
};

/// One client as the server sees it.
struct Client {
  std::optional<Rank> rank;  ///< Known once it is welcome.
  Outbox outbox;
  bool closing = false;  ///< Close once the outbox is empty; take nothing more from it.
};

/// The truth of one job. All calls from one thread at a time (the server locks).
class StoreState {
 public:
  explicit StoreState(std::uint32_t world);

  /// A message of a client. May queue messages for this and other clients; sets closing on the
  /// client when it is refused. False: malformed in its place, drop it without a word.
  bool receive(Client& client, Message& message);
  /// The connection ended, in whatever way.
  void disconnected(Client& client);
  void declare_lost(Rank rank);

  std::optional<Bytes> get(std::string_view key) const;
  std::map<std::string, Bytes> with_prefix(std::string_view prefix) const;
  bool lost(Rank rank) const noexcept;
  std::uint32_t gone() const noexcept { return gone_; }

 private:
  enum class Standing : std::uint8_t { absent, joined, left, lost };
  struct Entry {
    Bytes value;
    std::uint64_t order = 0;  ///< Of its latest write.
  };

  std::string refusal_of(const Message& hello) const;
  void welcome(Client& client, Rank rank);
  void refuse(Client& client, std::string sentence);
  bool write(Client& client, Message& message);
  void broadcast(Bytes message);
  void mark_lost(Rank rank);

  std::map<std::string, Entry, std::less<>> values_;
  std::vector<Standing> standing_;
  std::vector<Client*> client_of_;  ///< By rank; null when not connected.
  std::uint64_t writes_ = 0;
  std::uint64_t copied_bytes_ = 0;  ///< Keys and values that clients have a copy of.
  std::uint64_t result_bytes_ = 0;
  std::uint32_t gone_ = 0;
};

}  // namespace selmcast::store
