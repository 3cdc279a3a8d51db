#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/quiet_thread.h"
#include "store/protocol.h"
#include "store/rendezvous.h"
#include "store/socket.h"
#include "store/store_state.h"

namespace selmcast {
namespace {

using store::Client;
using store::Message;
using store::MessageStream;

constexpr Duration kHelloWait = std::chrono::seconds(5);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr int kTickMs = 100;  ///< How often silent connections and a paused listener are looked at.
constexpr std::uint64_t kListenerId = 0;
constexpr std::uint64_t kWakeId = 1;
constexpr std::uint32_t kWorldMax = 65'536;

struct Connection {
  UniqueFd fd;
  MessageStream stream{store::kHelloBodyMax};
  Client client;
  TimePoint opened{};
  std::uint32_t interest = 0;  ///< What epoll was last told.
};

class StoreServerThread final : public StoreServer {
 public:
  StoreServerThread(store::Listener listener, UniqueFd epoll, UniqueFd wake, std::uint32_t world)
      : listener_(std::move(listener)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        connections_max_(2 * std::size_t{world} + 64),
        state_(world) {
    watch(listener_.fd.get(), kListenerId, EPOLLIN, EPOLL_CTL_ADD);
    watch(wake_.get(), kWakeId, EPOLLIN, EPOLL_CTL_ADD);
  }
  /// 0 or an errno.
  int start() noexcept {
    return start_quiet(thread_, [this] { run(); });
  }
  ~StoreServerThread() override {
    // Relaxed: the eventfd write and read order it before the thread's load.
    stop_.store(true, std::memory_order_relaxed);
    ring();
    if (thread_.joinable()) thread_.join();
    store::remove_socket_file(listener_);
  }

  StoreAddress address() const override { return listener_.at; }
  std::optional<Bytes> get(std::string_view key) const override {
    const std::lock_guard lock(mutex_);
    return state_.get(key);
  }
  std::map<std::string, Bytes> with_prefix(std::string_view prefix) const override {
    const std::lock_guard lock(mutex_);
    return state_.with_prefix(prefix);
  }
  void declare_lost(Rank rank) override {
    {
      const std::lock_guard lock(mutex_);
      state_.declare_lost(rank);
    }
    ring();
  }
  bool lost(Rank rank) const override {
    const std::lock_guard lock(mutex_);
    return state_.lost(rank);
  }
  std::uint32_t gone() const override {
    const std::lock_guard lock(mutex_);
    return state_.gone();
  }

 private:
  void ring() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  }
  void watch(int fd, std::uint64_t id, std::uint32_t events, int operation) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void run() {
    std::array<epoll_event, 64> events{};
    while (!stop_.load(std::memory_order_relaxed)) {
      const int count =
          ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), kTickMs);
      const std::lock_guard lock(mutex_);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kListenerId) {
          accept_some();
        } else if (event.data.u64 == kWakeId) {
          std::uint64_t ignored = 0;
          [[maybe_unused]] const auto got = ::read(wake_.get(), &ignored, sizeof ignored);
        } else {
          read_some(event.data.u64);
        }
      }
      tick();
      flush_all();
    }
  }

  void accept_some() {
    while (true) {
      UniqueFd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          // The listener stays readable; without a pause this thread would spin.
          watch(listener_.fd.get(), kListenerId, 0, EPOLL_CTL_MOD);
          accept_again_ = clock_.now() + kAcceptPause;
        }
        return;
      }
      if (connections_.size() >= connections_max_) continue;  // Closes it: a stranger's flood.
      store::tune(fd.get());
      const std::uint64_t id = next_id_++;
      Connection& connection = connections_[id];
      connection.fd = std::move(fd);
      connection.opened = clock_.now();
      connection.interest = EPOLLIN;
      watch(connection.fd.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    }
  }

  /// One chunk per readiness, so that a large result does not starve the others.
  void read_some(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    const ssize_t got = ::recv(connection.fd.get(), chunk_.data(), chunk_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got <= 0) return drop(id);
    if (connection.client.closing) return;  // Refused: it only waits for its sentence.
    connection.stream.feed(std::span(chunk_).first(static_cast<std::size_t>(got)));
    Message message;
    MessageStream::State state{};
    while ((state = connection.stream.next(message)) == MessageStream::State::message) {
      if (!state_.receive(connection.client, message)) return drop(id);
      if (connection.client.rank) connection.stream.set_body_max(store::kBodyMax);
    }
    if (state == MessageStream::State::malformed) drop(id);
  }

  void drop(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    state_.disconnected(found->second.client);
    connections_.erase(found);
  }

  void tick() {
    const TimePoint now = clock_.now();
    if (accept_again_ != kNever && now >= accept_again_) {
      accept_again_ = kNever;
      watch(listener_.fd.get(), kListenerId, EPOLLIN, EPOLL_CTL_MOD);
    }
    doomed_.clear();
    for (const auto& [id, connection] : connections_) {
      if (!connection.client.rank && now - connection.opened > kHelloWait) doomed_.push_back(id);
    }
    for (const std::uint64_t id : doomed_) drop(id);
  }

  void flush_all() {
    // A drop queues losses for the others, so go round until nobody is dropped.
    do {
      doomed_.clear();
      for (auto& [id, connection] : connections_) {
        if (!flush(connection)) doomed_.push_back(id);
        const auto interest =
            static_cast<std::uint32_t>(EPOLLIN) |
            (connection.client.outbox.empty() ? 0U : static_cast<std::uint32_t>(EPOLLOUT));
        if (interest == connection.interest) continue;
        connection.interest = interest;
        watch(connection.fd.get(), id, interest, EPOLL_CTL_MOD);
      }
      for (const std::uint64_t id : doomed_) drop(id);
    } while (!doomed_.empty());
  }

  /// False when the connection is to be dropped: broken, or done with a refusal.
  static bool flush(Connection& connection) {
    store::Outbox& outbox = connection.client.outbox;
    while (!outbox.empty()) {
      const auto bytes =
          std::span<const std::byte>(*outbox.messages.front()).subspan(outbox.sent_of_first);
      const ssize_t sent =
          ::send(connection.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      outbox.consume(static_cast<std::size_t>(sent));
    }
    return !connection.client.closing;
  }

  SteadyClock clock_;
  store::Listener listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::size_t connections_max_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;  ///< Guards everything below.
  store::StoreState state_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::uint64_t next_id_ = kWakeId + 1;
  TimePoint accept_again_ = kNever;
  std::vector<std::uint64_t> doomed_;
  std::array<std::byte, 65536> chunk_{};

  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<StoreServer>> StoreServer::start(const StoreAddress& at,
                                                        std::uint32_t world) {
  if (world == 0 || world > kWorldMax) {
    return bad_input("world size " + std::to_string(world) + ": 1 to " + std::to_string(kWorldMax) +
                     " ranks are allowed");
  }
  auto listener = store::listen_at(at);
  if (!listener) return listener.error();
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) {
    const std::string why = std::strerror(errno);
    store::remove_socket_file(*listener);
    return unavailable("store at " + to_string(at) + ": " + why +
                       "; raise the limit of open files (ulimit -n)");
  }
  auto server = std::make_unique<StoreServerThread>(std::move(*listener), std::move(epoll),
                                                    std::move(wake), world);
  if (const int error = server->start(); error != 0) {
    return unavailable("store at " + to_string(at) + ": " + no_thread("to serve it", error));
  }
  return std::unique_ptr<StoreServer>(std::move(server));
}

}  // namespace selmcast
