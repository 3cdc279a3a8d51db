// How ranks of a job find each other and agree: a small replicated key-value store.
//
// The same interface fits PMIx (put/commit/fence/get) and torchrun's store (set/get/compare_set).
// One server holds the truth and orders all writes; every client keeps a copy that the server
// feeds, so try_get() is local. All clients see the writes in the same order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/wire.h"

namespace selmcast {

/// Client side of a job's store. One thread.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  virtual Rank rank() const noexcept = 0;
  virtual std::uint32_t world() const noexcept = 0;

  /// Sets `key`; the last write wins. Keys beginning with "result/" are kept by the server and not
  /// copied to the clients. Keys have 1 to 256 bytes, values up to 1 MiB, under "result/" up to
  /// 64 MiB; beyond that bad_input. Returns once the bytes are on their way.
  virtual Result<void> put(std::string_view key, std::span<const std::byte> value) = 0;
  /// Sets `key` only if nobody has: a later try_get() tells whose value stands. (Compare-and-set
  /// against absence.)
  virtual Result<void> create(std::string_view key, std::span<const std::byte> value) = 0;
  /// The value as far as this client has heard; never blocks, sends nothing.
  virtual std::optional<Bytes> try_get(std::string_view key) const = 0;
  /// Takes in what has arrived, waiting up to `at_most` for something. True if the copy changed.
  /// Error when the server is gone.
  virtual Result<bool> update(Duration at_most) = 0;
  /// The server's word that this rank's connection broke before it said leave().
  virtual bool lost(Rank rank) const noexcept = 0;
  /// Says goodbye: from here on the end of the connection is no loss. Waits up to 5 s for the
  /// server's word that it has taken in everything this client wrote.
  virtual void leave() noexcept = 0;
};

/// Waits until `key` is there. The error names the key and the time; `what` completes the sentence
/// "waiting for <what>". Also fails when `from` is lost meanwhile. Time is this host's; a
/// LocalStore cannot change while its one thread is in here, so there it only spins until
/// `timeout`.
Result<Bytes> wait_for_key(Rendezvous& rendezvous, std::string_view key, Duration timeout,
                           std::string_view what, std::optional<Rank> from = std::nullopt);

/// "rank 3", as errors name it.
std::string rank_name(Rank rank);
/// Puts this rank's value of a kind (keys::of_rank()).
Result<void> put_own(Rendezvous& rendezvous, std::string_view kind,
                     std::span<const std::byte> value);
/// Waits for every rank's value of a kind, rank after rank, each as wait_for_key() does, and
/// hands it to `use` as soon as it is there; `does` completes "waiting for rank 3 ". The first
/// error of either ends it. This rank's own value has been put before.
Result<void> each_value(Rendezvous& rendezvous, std::string_view kind, Duration timeout,
                        std::string_view does,
                        const std::function<Result<void>(Rank, const Bytes&)>& use);

/// Where a store listens: `tcp://HOST:PORT` or `file:PATH` (a unix-domain socket at PATH).
struct StoreAddress {
  enum class Kind { tcp, unix_socket } kind = Kind::unix_socket;
  std::string host;  ///< tcp
  std::uint16_t port = 0;
  std::string path;  ///< unix_socket
};
/// Error (bad_input) on anything but the two forms. An IPv6 host is written in brackets.
Result<StoreAddress> parse_store_address(std::string_view text);
/// The form that parse_store_address() reads.
std::string to_string(const StoreAddress& address);

/// The server: one thread of its own that starts in start() and ends in the destructor.
class StoreServer {
 public:
  virtual ~StoreServer() = default;
  /// Error (bad_input) naming the address when the port or path is in use. Port 0 picks a free one.
  static Result<std::unique_ptr<StoreServer>> start(const StoreAddress& at, std::uint32_t world);

  virtual StoreAddress address() const = 0;
  /// Thread-safe copy of a value, "result/" keys included.
  virtual std::optional<Bytes> get(std::string_view key) const = 0;
  /// Thread-safe copy of every key that begins with `prefix`.
  virtual std::map<std::string, Bytes> with_prefix(std::string_view prefix) const = 0;
  /// Marks a rank as lost before its connection breaks (a launcher that saw the process die).
  virtual void declare_lost(Rank rank) = 0;
  virtual bool lost(Rank rank) const = 0;
  /// Ranks that have said leave() or are lost.
  virtual std::uint32_t gone() const = 0;
};

/// Connects, retrying until `timeout` (the server may start later). Checks protocol version, world
/// size and that the rank is free; a mismatch is bad_input, naming both sides' values.
Result<std::unique_ptr<Rendezvous>> connect_store(const StoreAddress& at, Rank rank,
                                                  std::uint32_t world, Duration timeout);

/// A store inside one process for the simulator: no threads, no time of its own.
class LocalStore {
 public:
  explicit LocalStore(std::uint32_t world);
  ~LocalStore();
  LocalStore(const LocalStore&) = delete;
  LocalStore& operator=(const LocalStore&) = delete;
  /// The client of one rank; at most one per rank; must not outlive the store.
  std::unique_ptr<Rendezvous> client(Rank rank);
  void declare_lost(Rank rank);
  std::optional<Bytes> get(std::string_view key) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace selmcast
