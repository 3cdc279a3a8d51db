// Reading from peers' memory on one rail: a reliable queue pair to each peer that is read from,
// connected when first wanted, and one from each peer that reads here.
//
// Who wants to read asks (wire_up.h); the other end connects a queue pair of its own and answers.
// The two directions between two ranks are independent, so nobody waits for the other. A queue
// pair in error is dropped with what it carried, and connected anew when wanted again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "base/random.h"
#include "base/units.h"
#include "transport/verbs/reliable.h"
#include "transport/verbs/wire_up.h"

namespace selmcast::verbs {

/// One thread. read() and completed() neither allocate, lock nor enter the kernel; making and
/// dropping connections does, in progress() and on_message(): set-up, and the way back from errors.
class ReadLinks {
 public:
  static constexpr std::uint32_t kReads = 64;  ///< Posted and not completed, all peers together.
  static constexpr std::uint32_t kMessages = 32;
  /// Completions that this adds to the queue.
  static constexpr std::uint32_t kCompletions = kReads + 2 * kMessages;

  struct Settings {
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_device_attr device{};
    DevicePort port;
    std::uint64_t job = 0;
  };
  static Result<std::unique_ptr<ReadLinks>> make(const Settings& settings);

  std::uint32_t wire_up_qpn() const noexcept { return datagrams_->qp_num; }
  /// By which peers know this end.
  void set_self(const RailAddress& self) noexcept { self_ = self; }

  /// Where the port's GID is from now on, for connections made later.
  void use_gid_index(std::uint32_t index) noexcept { settings_.port.gid_index = index; }

  /// A peer that may be read from and may read here; `way` leads to it and must outlive it.
  void add(std::uint32_t peer, const RailAddress& address, ibv_ah* way);
  void remove(std::uint32_t peer) noexcept;

  /// Whether read() to the peer would be taken; false has it connected.
  bool ready(std::uint32_t peer) noexcept;
  /// Posts one READ; its completion carries `number`. False: not connected, or kReads are posted.
  bool read(std::uint32_t peer, const ibv_sge& into, std::uint64_t address, std::uint32_t key,
            std::uint32_t number) noexcept;
  /// Reads from the peer that have neither completed nor been dropped with their queue pair.
  std::uint32_t posted(std::uint32_t peer) noexcept;
  /// A completion of Work::reliable.
  void completed(const ibv_wc& entry) noexcept;
  /// A completion of Work::wire_up.
  void on_message(const ibv_wc& entry) noexcept;
  /// Whether progress() has anything to do.
  bool busy() const noexcept {
    return asking_ > 0 || failing_ > 0 || posted_ > 0 || datagrams_broken_;
  }
  void progress(TimePoint now) noexcept;
  /// Asks the device whether the queue pair of the messages is in error. A system call.
  void look_for_errors() noexcept;
  /// The device is gone: drops every connection with the reads it carries.
  void give_up() noexcept;

  /// Messages to peers so far, and how many of them no longer use their peer's `way`.
  std::uint64_t messages_sent() const noexcept { return sent_; }
  std::uint64_t messages_done() const noexcept { return done_; }

  /// What failed last and with whom: a read, or else a connection. Set-up cost.
  std::string last_error() const;

 private:
  struct Link {
    std::uint32_t peer = 0;
    RailAddress address;
    ibv_ah* way = nullptr;
    enum class State : std::uint8_t { idle, asking, ready, failing } state = State::idle;
    QueuePair reads;  ///< This end reads through it.
    std::uint32_t psn = 0;
    std::uint64_t attempt = 0;
    TimePoint ask_at{}, drop_at{};
    Duration ask_pause{};  ///< Until the next ask.
    std::uint32_t posted = 0;
    TimePoint late_at{};  ///< Unset: to be set by progress().
    QueuePair serves;     ///< The peer reads through it.
    std::uint32_t serves_psn = 0;
    std::uint64_t serves_attempt = 0;
    TimePoint serves_since{};
  };

  explicit ReadLinks(const Settings& settings);
  Result<void> open();
  Link* of(std::uint32_t peer) noexcept;
  Link* of(const RailAddress& address) noexcept;
  Result<QueuePair> make_queue_pair(int access, std::uint32_t depth);
  void ask(Link& link, TimePoint now) noexcept;
  void serve(Link& link, const WireUp& message) noexcept;
  void answered(Link& link, const WireUp& message) noexcept;
  void note(const Link& link, ibv_wc_status status) noexcept;
  void fail(Link& link) noexcept;
  void drop(Link& link) noexcept;
  void set_state(Link& link, Link::State state) noexcept;
  void send(const Link& link, WireUp::Kind kind, std::uint64_t attempt, std::uint32_t qpn,
            std::uint32_t psn) noexcept;
  int post_receive(std::uint32_t slot) noexcept;
  int post_receives() noexcept;
  void restart_datagrams(TimePoint now) noexcept;

  static constexpr std::uint32_t kSlotBytes = 128;  ///< GRH and message, or a message to send.

  Settings settings_;
  RailAddress self_;
  Arena arena_;                  ///< Receive slots, then send slots.
  std::byte* memory_ = nullptr;  ///< The arena's.
  MemoryRegion region_;
  QueuePair datagrams_;
  std::vector<std::unique_ptr<Link>> links_;
  std::uint32_t posted_ = 0;
  std::uint64_t sent_ = 0, done_ = 0;  ///< Messages posted, completed.
  std::uint64_t life_ = 0;             ///< How often the message queue was restarted.
  bool datagrams_broken_ = false;
  TimePoint restart_at_{};
  Duration restart_pause_{};
  std::uint64_t last_attempt_ = 0;
  std::uint32_t asking_ = 0, failing_ = 0;
  SplitMix64 random_;
  ibv_wc_status last_status_ = IBV_WC_SUCCESS;
  std::uint32_t last_peer_qpn_ = 0;
  ibv_gid last_gid_{};
  std::string refusal_;  ///< Of the connection that could not be made last.
};

}  // namespace selmcast::verbs
