#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "store/protocol.h"
#include "store/rendezvous.h"
#include "store/socket.h"

namespace selmcast {
namespace {

using store::Message;
using store::MessageKind;
using store::MessageStream;

constexpr Duration kSendStall = std::chrono::seconds(10);  ///< Without any progress of a write.
constexpr Duration kFarewellWait = std::chrono::seconds(5);
constexpr Duration kRetryEvery = std::chrono::milliseconds(20);
constexpr std::size_t kReadsPerUpdate = 64;  ///< Bounds one update() under a flood of writes.

class StoreClient final : public Rendezvous {
 public:
  StoreClient(UniqueFd fd, StoreAddress at, Rank rank, std::uint32_t world)
      : fd_(std::move(fd)), at_(std::move(at)), rank_(rank), lost_(world, false) {}

  Rank rank() const noexcept override { return rank_; }
  std::uint32_t world() const noexcept override { return static_cast<std::uint32_t>(lost_.size()); }

  Result<void> put(std::string_view key, std::span<const std::byte> value) override {
    if (auto ok = store::check_pair(key, value.size()); !ok) return ok;
    return send(store::encode_write(key, value, false));
  }
  Result<void> create(std::string_view key, std::span<const std::byte> value) override {
    if (auto ok = store::check_pair(key, value.size()); !ok) return ok;
    return send(store::encode_write(key, value, true));
  }
  std::optional<Bytes> try_get(std::string_view key) const override {
    const auto found = copy_.find(key);
    if (found == copy_.end()) return std::nullopt;
    return found->second;
  }
  Result<bool> update(Duration at_most) override {
    const TimePoint deadline = clock_.now() + std::max(Duration::zero(), at_most);
    while (true) {
      if (take_in()) return true;
      if (broken_) return *broken_;
      if (!store::wait_ready(fd_.get(), POLLIN, deadline)) return false;
    }
  }
  bool lost(Rank rank) const noexcept override { return rank < lost_.size() && lost_[rank]; }

  void leave() noexcept override {
    if (left_ || broken_) return;
    left_ = true;
    Message goodbye;
    goodbye.kind = MessageKind::leave;
    if (!send(store::encode(goodbye))) return;
    const TimePoint deadline = clock_.now() + kFarewellWait;
    while (!farewell_ && !broken_ && store::wait_ready(fd_.get(), POLLIN, deadline)) take_in();
  }

  /// Says hello and takes the copy of the moment.
  Result<void> join(TimePoint deadline) {
    Message hello;
    hello.kind = MessageKind::hello;
    hello.rank = rank_;
    hello.world = world();
    if (auto sent = send(store::encode(hello)); !sent) return sent;
    while (!welcome_) {
      take_in();
      if (welcome_) break;
      if (broken_) return *broken_;
      if (!store::wait_ready(fd_.get(), POLLIN, deadline)) {
        return failed("store at " + to_string(at_) + " accepted the connection but did not answer");
      }
    }
    return {};
  }
  /// The server went away before it said anything: it may be starting again.
  bool ended_silently() const noexcept { return ended_ && !heard_; }

 private:
  Error gone(const std::string& why) const {
    return failed(
        "store at " + to_string(at_) + " is gone (" + why +
        "): the process that hosts it (rank 0, or the launcher) ended or is out of reach; its own "
        "message says why");
  }
  void break_with(Error error) {
    if (!broken_) broken_ = std::move(error);
  }

  /// Reads what is there and applies it; true if the copy or the losses changed.
  bool take_in() {
    bool changed = false;
    for (std::size_t i = 0; i < kReadsPerUpdate && !broken_; ++i) {
      const ssize_t got = ::recv(fd_.get(), chunk_.data(), chunk_.size(), MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got <= 0) {
        ended_ = true;
        break_with(gone(got == 0 ? "connection closed" : std::strerror(errno)));
        break;
      }
      heard_ = true;
      stream_.feed(std::span(chunk_).first(static_cast<std::size_t>(got)));
      changed = apply_all() || changed;
    }
    return changed;
  }

  bool apply_all() {
    bool changed = false;
    Message message;
    MessageStream::State state{};
    while (!broken_ && (state = stream_.next(message)) == MessageStream::State::message) {
      changed = apply(message) || changed;
    }
    if (state == MessageStream::State::malformed) {
      break_with(
          failed("store at " + to_string(at_) + " sent a malformed message; is it a store?"));
    }
    return changed;
  }

  bool apply(Message& message) {
    switch (message.kind) {
      case MessageKind::value:
        copy_.insert_or_assign(std::move(message.key), std::move(message.value));
        return true;
      case MessageKind::lost:
        if (message.rank >= lost_.size() || lost_[message.rank]) return false;
        lost_[message.rank] = true;
        return true;
      case MessageKind::welcome:
        welcome_ = true;
        return false;
      case MessageKind::farewell:
        farewell_ = true;
        return false;
      case MessageKind::refusal: {
        std::string text = "store at " + to_string(at_) + ": " + message.text;
        break_with(welcome_ ? failed(std::move(text)) : bad_input(std::move(text)));
        return false;
      }
      case MessageKind::hello:
      case MessageKind::write:
      case MessageKind::leave:
        break;
    }
    break_with(failed("store at " + to_string(at_) + " sent a client's message; is it a store?"));
    return false;
  }

  Result<void> send(const Bytes& bytes) {
    std::span<const std::byte> left(bytes);
    while (!left.empty()) {
      if (broken_) return *broken_;
      const ssize_t sent = ::send(fd_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        left = left.subspan(static_cast<std::size_t>(sent));
        continue;
      }
      const int code = errno;
      if (code == EINTR) continue;
      if (code != EAGAIN && code != EWOULDBLOCK) {
        take_in();  // A refusal that is waiting says more than the broken pipe does.
        break_with(gone(std::strerror(code)));
        return *broken_;
      }
      if (!store::wait_ready(fd_.get(), POLLOUT, clock_.now() + kSendStall)) {
        break_with(gone("it took no bytes for 10 s"));
      }
    }
    return {};
  }

  SteadyClock clock_;
  UniqueFd fd_;
  StoreAddress at_;
  Rank rank_;
  std::vector<bool> lost_;
  std::map<std::string, Bytes, std::less<>> copy_;
  MessageStream stream_{store::kBodyMax};
  std::optional<Error> broken_;
  bool welcome_ = false;
  bool farewell_ = false;
  bool left_ = false;
  bool heard_ = false;
  bool ended_ = false;
  std::array<std::byte, 65536> chunk_{};
};

}  // namespace

Result<std::unique_ptr<Rendezvous>> connect_store(const StoreAddress& at, Rank rank,
                                                  std::uint32_t world, Duration timeout) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + timeout;
  while (true) {
    auto fd = store::try_connect(at, deadline);
    if (!fd) return fd.error();
    if (*fd) {
      store::tune(fd->get());
      auto client = std::make_unique<StoreClient>(std::move(*fd), at, rank, world);
      auto joined = client->join(deadline);
      if (joined) return std::unique_ptr<Rendezvous>(std::move(client));
      if (!client->ended_silently()) return joined.error();
    }
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero()) {
      return failed("rank " + std::to_string(rank) + ": no store answers at " + to_string(at) +
                    "; start rank 0 (or the launcher), or check the address");
    }
    std::this_thread::sleep_for(std::min<Duration>(left, kRetryEvery));
  }
}

}  // namespace selmcast
