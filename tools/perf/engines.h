// The loops that are measured: sending without pause, receiving, ping-pong. Set-up allocates; run()
// neither allocates, locks nor enters the kernel, but for what the device's library does to ring a
// doorbell. One thread. They return to their caller at the end of a slice of time, so that it can
// look after the connection to the other end.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "tools/perf/rig.h"

namespace selmcast::perf {

enum class Slice : std::uint8_t {
  over,      ///< The slice's time is.
  idle,      ///< Nothing to do until something completes (settings.events only).
  finished,  ///< The repeat is.
  broken     ///< See fault().
};

/// Why an engine broke: the status of a completion, or, where that is success, the errno of a post.
struct Fault {
  ibv_wc_status status = IBV_WC_SUCCESS;
  int error = 0;
};
std::string text_of(const Fault& fault);

/// What goes into the immediate data: the repeat (8 bits) and the message's number in it (24 bits),
/// which receivers check. In network byte order.
std::uint32_t stamp(std::uint32_t round, std::uint64_t number) noexcept;

/// A work request of `settings.op`, but for its wr_id, stamp and signal.
struct Request {
  ibv_send_wr wr{};
  ibv_sge place{};
};
/// For queue pair `q`. `peer` may be null for datagrams.
void prepare(const Rig& rig, const Settings& settings, std::size_t q, const End* peer,
             Request& out);

/// Keeps `depth` messages under way on every queue pair.
class Flood {
 public:
  /// The prepared requests point into the object: it stays where it is.
  Flood(const Rig& rig, const Settings& settings, const End* peer);
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;

  /// Begins repeat `round` of so many messages in all; 0: until finish().
  void start(std::uint32_t round, std::uint64_t messages) noexcept;
  /// As few more as make the last one signalled.
  void finish() noexcept;
  Slice run(TimePoint until) noexcept;
  /// Messages that completed since start().
  std::uint64_t completed() const noexcept;
  const Fault& fault() const noexcept { return fault_; }

 private:
  struct Lane {
    ibv_qp* qp = nullptr;
    std::vector<Request> chain;
    std::uint64_t posted = 0, completed = 0, signalled = 0, limit = 0;
  };
  bool post(std::size_t at) noexcept;
  int reap() noexcept;

  SteadyClock clock_;
  ibv_cq* cq_;
  std::vector<Lane> lanes_;
  std::uint32_t depth_, list_, signal_every_;
  unsigned flags_;
  bool events_;
  std::uint32_t round_ = 0;
  Fault fault_;
};

/// Posts receives and looks at what arrives.
class Sink {
 public:
  /// `stamped` false: messages of other programs, of which only the length is checked.
  Sink(const Rig& rig, const Settings& settings, bool stamped = true);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Posts all receives; once. 0 or an errno.
  int post_all() noexcept;
  /// Begins repeat `round`.
  void start(std::uint32_t round) noexcept;
  /// The repeat is finished with so many messages.
  void expect(std::uint64_t messages) noexcept { goal_ = messages; }
  Slice run(TimePoint until) noexcept;
  /// Of this repeat: received to elapsed_ns.
  const Report& seen() const noexcept { return seen_; }
  const Fault& fault() const noexcept { return fault_; }

 private:
  struct Receive {
    ibv_recv_wr wr{};
    ibv_sge place{};
    std::byte* at = nullptr;
  };
  struct Lane {
    ibv_qp* qp = nullptr;
    std::vector<Receive> receives;
    ibv_recv_wr* first = nullptr;  ///< Free, chained, not posted yet.
    ibv_recv_wr* last = nullptr;
    std::uint32_t free = 0;
    std::uint64_t next = 0;  ///< Number that is due.
  };
  void take(const ibv_wc& completion) noexcept;
  void check_order(Lane& lane, std::uint32_t number) noexcept;
  void check_bytes(std::byte* at) noexcept;
  bool give_back(Lane& lane) noexcept;
  void note_time() noexcept;

  SteadyClock clock_;
  const Rig& rig_;
  std::vector<Lane> lanes_;
  std::uint32_t size_, header_;
  bool datagrams_, bytes_arrive_in_place_, verify_all_, events_, stamped_;
  std::uint32_t round_ = 0, window_ = 0;
  std::uint64_t goal_ = ~std::uint64_t{0};
  TimePoint first_{}, last_{};
  bool unnoted_ = false;
  Report seen_;
  Fault fault_;
};

/// One message at a time. The client measures until the answer; the server answers.
class Ping {
 public:
  static constexpr std::size_t kSamplesMost = 1'000'000;
  Ping(const Rig& rig, const Settings& settings, const End& peer, bool client);
  Ping(const Ping&) = delete;
  Ping& operator=(const Ping&) = delete;

  /// Posts all receives; once. 0 or an errno.
  int post_all() noexcept;
  /// Client: begins a repeat of `messages`, at most kSamplesMost; 0: until finish().
  void start(std::uint64_t messages) noexcept;
  void finish() noexcept { finishing_ = true; }
  Slice run(TimePoint until) noexcept;
  /// Round trips of this repeat in ns, in their order; the caller may sort them.
  std::span<std::uint32_t> samples() noexcept { return {samples_.data(), count_}; }
  std::uint64_t completed() const noexcept { return count_; }
  /// Datagrams to which no answer came; tried again after kLostAfter.
  std::uint64_t lost() const noexcept { return lost_; }
  const Fault& fault() const noexcept { return fault_; }

 private:
  static constexpr Duration kLostAfter = std::chrono::milliseconds(200);
  enum class Way : std::uint8_t { memory, receives, completions };
  bool room() const noexcept { return posted_ - completed_ < depth_; }
  bool post() noexcept;
  bool repost(std::uint64_t slot) noexcept;
  int reap() noexcept;
  bool arrived() noexcept;
  void take_arrival() noexcept;

  SteadyClock clock_;
  ibv_cq* cq_;
  ibv_qp* qp_;
  Way way_;
  bool client_, events_, datagrams_;
  std::uint32_t depth_, signal_every_;
  Request request_;
  std::vector<ibv_recv_wr> receives_;
  std::vector<ibv_sge> places_;
  std::byte* mark_out_;  ///< Last byte of the source and of the target: the memory way.
  std::byte* mark_in_;
  std::uint64_t serial_ = 0;  ///< Of the ping under way, or answered last; never reset.
  std::uint64_t posted_ = 0, completed_ = 0;
  bool to_post_ = false, waiting_ = false, finishing_ = false, got_ = false;
  std::uint32_t got_stamp_ = 0;
  std::uint32_t misses_ = 0;
  TimePoint began_{};
  std::vector<std::uint32_t> samples_;
  std::size_t count_ = 0, limit_ = 0;
  std::uint64_t lost_ = 0;
  Fault fault_;
};

}  // namespace selmcast::perf
