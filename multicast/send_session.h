// The sender's half of reliable multicast: one round of one stream to its receivers.
//
// Life of a round. Each receiver says by CREDIT that it is in the round and how far it may be sent
// to; a lane (one group, or one unicast copy) advances to the smallest credit of its receivers, at
// the planned rate. NACKed frames go out again, by unicast when one receiver asked and by the group
// when several did. When a lane has sent everything, TAIL is repeated to each of its receivers
// until it acknowledges. A receiver that is silent for `timeout`, or makes no progress on any
// stream for twice that long (peer_deadlines.h), is evicted, so that nobody waits for the dead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "multicast/frame_port.h"
#include "multicast/peer_deadlines.h"
#include "multicast/repair_queue.h"
#include "multicast/snapshot.h"
#include "multicast/stream_shape.h"

namespace selmcast {

/// One way to some of the receivers.
struct LaneSpec {
  Destination destination;
  std::vector<Rank> receivers;
  bool patch = false;
  Shard shard = {};  ///< What of the round's bytes goes this way.
  /// Frames become ready while the round runs, see set_ready(); otherwise all are from the start.
  bool waits = false;
  std::uint8_t data = 0;  ///< Which of the round's data is sent.
};

/// Memory that lanes send from, within what is registered as `region`.
struct RoundData {
  const std::byte* bytes = nullptr;
  RegionId region = 0;
  const std::uint16_t* weights = nullptr;  ///< By frame: so many ranks' values; null: one's.
};

struct SendSettings {
  StreamShape shape;
  std::uint32_t wire_overhead_bytes = 0;  ///< Per frame, beside the frame.
  Duration timeout{std::chrono::seconds(10)};
  std::uint32_t lanes_max = 1;
  std::uint16_t stream = 0;
  /// When each lane may send again, shared with other sessions of the same lanes; null: its own.
  std::vector<TimePoint>* pace = nullptr;
  /// Of the receivers, shared with the other streams' sessions, whose timeout counts then; must
  /// outlive the session. Null: its own.
  PeerDeadlines* deadlines = nullptr;
  /// Receivers learn of the round from its first TAIL, which goes out at once.
  bool invites = false;
};

/// What became of a receiver in the current round.
enum class ReceiverState : std::uint8_t {
  none,     ///< Not a receiver of this round.
  waiting,  ///< Has not given credit for this round yet.
  active,
  acked,    ///< Has everything.
  gave_up,  ///< Said that it stopped waiting.
  evicted,  ///< Given up by this side: silent or without progress.
  lost,     ///< drop() was called.
  cut,      ///< cut() was called.
};

/// One thread. Allocates in the constructor only.
class SendSession {
 public:
  SendSession(FramePort& port, const SendSettings& settings);

  /// Starts a round of `bytes` bytes, at most the settings' stream. What lanes send of `data` must
  /// not change until done(), but for frames of lanes that wait, which do not until they are ready.
  /// `lanes` must stay valid until then. `wire_kbps` paces each lane. `last`: the data says that
  /// this is the sender's last round.
  void begin(TimePoint now, std::uint32_t epoch, std::uint32_t round, std::uint64_t bytes,
             std::span<const RoundData> data, std::span<const LaneSpec> lanes, Kbps wire_kbps,
             bool last = false) noexcept;
  /// The same with one kind of data, `data` itself.
  void begin(TimePoint now, std::uint32_t epoch, std::uint32_t round,
             std::span<const std::byte> data, RegionId region, std::span<const LaneSpec> lanes,
             Kbps wire_kbps, bool last = false) noexcept {
    const RoundData only{data.data(), region, nullptr};
    begin(now, epoch, round, data.size(), {&only, 1}, lanes, wire_kbps, last);
  }

  /// A checked CREDIT, NACK or ACK frame of any epoch and round.
  void on_control(const FrameHeader& header, std::span<const std::byte> payload,
                  TimePoint now) noexcept;
  /// Any checked frame from a rank shows that it lives.
  void note_alive(Rank from, TimePoint now) noexcept { deadlines_->note_alive(from, now); }
  /// The rank is known to be dead: it is owed nothing any more, now and in later rounds.
  void drop(Rank rank) noexcept;
  /// The rank is no receiver of this round any more: it is told so by EVICT, and told again when it
  /// asks. Nothing if it is settled.
  void cut(Rank rank) noexcept;
  /// Paces what this round still sends, also what waits for its turn already.
  void set_rate(Kbps wire_kbps, TimePoint now) noexcept;
  /// Of a lane that waits: frames below `end` hold still from now on and may be sent.
  void set_ready(std::size_t lane, std::uint32_t end) noexcept;
  /// Of a lane that waits: the rest will never be ready. Its receivers are told so by EVICT.
  void abandon(std::size_t lane) noexcept;

  /// Queues what may be sent now. Returns the number of frames queued.
  std::uint32_t progress(TimePoint now) noexcept;
  /// When progress() wants to be called again without any frame having arrived.
  TimePoint next_timer() const noexcept { return next_timer_; }

  /// Every receiver is settled and no request reads the stream's memory.
  bool done() const noexcept {
    return unsettled_ == 0 && port_.data_in_flight(settings_.stream) == 0;
  }
  ReceiverState state(Rank rank) const noexcept { return peers_[rank].state; }
  /// Frames that the round's first lane has not sent yet, and all of them.
  std::uint32_t frames_left() const noexcept {
    return lane_count_ == 0 ? 0 : lanes_[0].range.end - lanes_[0].next_frame;
  }

 private:
  struct Peer {
    ReceiverState state = ReceiverState::none;
    bool dropped = false;
    std::uint32_t lane = 0;
    std::uint32_t credit_round = 0;
    std::uint64_t credit_bytes = 0;   ///< Bytes [0, credit_bytes) of that round may be sent.
    std::uint32_t first_missing = 0;  ///< By its latest NACK.
    bool final_tail_sent = false;
    TimePoint next_tail{};
    Duration tail_interval{};
  };
  struct Lane {
    const LaneSpec* spec = nullptr;
    FrameRange range;
    std::uint32_t next_frame = 0;
    std::uint32_t ready = 0;  ///< Frames below may be sent.
    RoundData data;
    std::uint32_t live = 0;  ///< Receivers not settled.
    std::uint32_t digest_lane =
        0;                     ///< The first one with the same range: its digest is this one's.
    std::uint64_t digest = 0;  ///< Over frames [range.first, digest_end).
    std::uint32_t digest_end = 0;
    TimePoint own_next_send{}, next_repair{};
    TimePoint* next_send = nullptr;  ///< Its own or a shared one.
    RepairQueue repairs;
  };

  /// Begins to wait for the receiver; false if it is settled already.
  bool expect(Rank rank, TimePoint now) noexcept;
  void activate(Rank rank) noexcept;
  /// Writes a tail's payload and returns its size.
  std::size_t tail_payload(const Lane& lane, std::uint64_t digest,
                           std::span<std::byte, kTailPayloadMax> out) const noexcept;
  /// Sums are not read by peers: how many ranks are in a frame is said in its header only.
  bool readable(const Lane& lane) const noexcept {
    return port_.readable() && lane.data.weights == nullptr;
  }
  std::uint32_t credit_of(const Lane& lane) const noexcept;
  std::uint32_t send_fresh(Lane& lane, TimePoint now) noexcept;
  std::uint32_t send_repairs(Lane& lane, TimePoint now) noexcept;
  void on_credit(const FrameHeader& header, TimePoint now) noexcept;
  void on_nack(Rank rank, std::span<const std::byte> payload, TimePoint now) noexcept;
  void send_tails(TimePoint now) noexcept;
  void send_tail(Rank rank, Peer& peer, const Lane& lane, TimePoint now) noexcept;
  void check_deadlines(TimePoint now) noexcept;
  void send_evict(Rank rank, std::uint32_t epoch, std::uint32_t round) noexcept;
  void settle(Rank rank, ReceiverState state) noexcept;
  void extend_digest(Lane& lane, std::uint32_t end) noexcept;
  FrameRun run_of(const Lane& lane, std::uint16_t flags, std::uint32_t first,
                  std::uint32_t count) const noexcept;
  std::uint32_t credit_of(const Peer& peer) const noexcept;
  Duration wire_time(std::uint32_t first, std::uint32_t count) const noexcept;
  void wake_at(TimePoint t) noexcept { next_timer_ = std::min(next_timer_, t); }

  FramePort& port_;
  SendSettings settings_;
  StreamShape shape_;  ///< Of the round.
  bool begun_ = false;
  std::uint32_t epoch_ = 0, round_ = 0;
  Kbps wire_kbps_ = 1;
  std::uint16_t flags_ = 0;  ///< Of all data.
  /// By frame: what extend_digest() found, for all lanes and repairs. Empty: the medium checks.
  std::vector<std::uint32_t> checks_;
  std::vector<Peer> peers_;
  PeerDeadlines own_deadlines_;  ///< Unless they are shared.
  PeerDeadlines* deadlines_;
  std::vector<Lane> lanes_;  ///< lanes_[0, lane_count_) are in use.
  std::size_t lane_count_ = 0;
  std::uint32_t unsettled_ = 0;
  TimePoint next_timer_ = kNever;
};

}  // namespace selmcast
