// The receiver's half of reliable multicast: one round of one stream from the senders it must hear.
//
// From (epoch, round) the receiver knows whom it must hear, so a sender lost entirely is noticed
// too. Gaps are asked for by NACK after a short random back-off (so that receivers of one loss do
// not all ask at once); the sender's TAIL shows a lost end. A sender is settled when every frame
// arrived and its digest matches; or when it is given up: lost, evicting us, silent for `timeout`,
// or without progress on any stream for three times that long (peer_deadlines.h).
//
// Rounds are numbered by their senders. In lock-step begin() opens the same round of all senders;
// where senders run freely, open() opens the next round of one of them, and only silence counts
// against a sender that has not begun that round yet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "multicast/frame_bitmap.h"
#include "multicast/frame_port.h"
#include "multicast/peer_deadlines.h"
#include "multicast/snapshot.h"
#include "multicast/stream_shape.h"

namespace selmcast {

struct ReceiveSettings {
  StreamShape shape;
  std::uint16_t stream = 0;
  Duration timeout{std::chrono::seconds(10)};
  std::uint64_t window_bytes = 1U << 20U;  ///< May be under way to this rank, all senders together.
  std::uint64_t sender_window_bytes = 1U << 20U;  ///< And from one sender.
  std::uint32_t senders_max = 1;
  double loss = 0.0;        ///< Share of data frames dropped on purpose.
  std::uint64_t seed = 1;   ///< For back-off and loss.
  std::uint32_t epoch = 0;  ///< Rounds of earlier epochs count as over.
  /// Rounds are opened one sender at a time by open(); window_bytes is shared by `concurrent`.
  bool free_running = false;
  std::uint32_t concurrent = 1;
  /// Of the senders, shared with the other streams' sessions, whose timeout counts then; must
  /// outlive the session. Null: its own.
  PeerDeadlines* deadlines = nullptr;
};

/// What to do with a data frame.
enum class Verdict : std::uint8_t {
  fresh,  ///< Merge its payload: it is counted as received.
  duplicate,
  stale,      ///< Of a round that is over or not begun.
  foreign,    ///< Of the current round from a rank that is not to be heard.
  malformed,  ///< Offset, length or stream does not fit.
  dropped,    ///< By the loss that was asked for.
  corrupt,    ///< The payload is not what was sent: as good as lost.
};

enum class SenderState : std::uint8_t {
  none,
  hearing,
  complete,
  evicted_us,
  silent,
  lost,
  excused  ///< enough() was called.
};

struct ReceiveCounters {
  std::uint64_t payload_bytes = 0;  ///< Fresh.
  std::uint64_t duplicates = 0;
  std::uint64_t stale = 0;
  std::uint64_t malformed = 0;
  std::uint64_t dropped = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t nacked_frames = 0;
  std::uint64_t read_frames = 0;  ///< Fresh ones that this rank read from their senders.
};

/// One thread. Allocates in the constructor only.
class ReceiveSession {
 public:
  ReceiveSession(FramePort& port, const ReceiveSettings& settings);

  /// Opens a round of `bytes` bytes, at most the settings' (the sender's round has as many): grants
  /// the first credit to each sender that is not dropped. `shards` says which part of the round's
  /// bytes each sender sends; empty = all of them.
  void begin(TimePoint now, std::uint32_t epoch, std::uint32_t round, std::span<const Rank> senders,
             std::uint64_t bytes, std::span<const Shard> shards = {}) noexcept;
  /// Before begin(): `senders` of the next round share the window, those of other streams included.
  /// `relays`: what they send depends on others, so for some timeouts from now on they may wait.
  void share(std::uint32_t senders, bool relays, TimePoint now) noexcept;
  /// free_running: opens the next round of one sender, whose last one is settled, and grants the
  /// first credit. `senders_max` counts the ranks that are ever named.
  void open(TimePoint now, Rank sender, std::uint32_t round) noexcept;
  /// The round of `sender` that was opened last, settled or not.
  std::optional<std::uint32_t> opened(Rank sender) const noexcept;
  /// free_running: the sender is known to have ended its open round without this rank.
  void supersede(Rank sender) noexcept;

  /// A data frame whose header was checked. On `fresh` the payload was, too, and lies in the cache:
  /// the caller merges it before anything else.
  Verdict on_data(const FrameHeader& header, std::span<const std::byte> payload,
                  TimePoint now) noexcept;
  /// A checked TAIL or EVICT frame of any epoch and round.
  void on_control(const FrameHeader& header, std::span<const std::byte> payload,
                  TimePoint now) noexcept;
  void note_alive(Rank from, TimePoint now) noexcept;
  void drop(Rank rank) noexcept;

  void progress(TimePoint now) noexcept;
  TimePoint next_timer() const noexcept { return next_timer_; }

  /// All frames of this sender below the result have arrived; a sender that is none: all.
  std::uint32_t arrived(Rank sender) noexcept;
  /// Senders of this round that were given up without this frame of theirs.
  std::uint32_t lacking(std::uint32_t frame) const noexcept;
  /// What senders of this part have sent is enough: those not heard to the end are let go.
  void enough(Shard part) noexcept;

  bool done() const noexcept { return unsettled_ == 0; }
  /// Senders whose open round is not settled.
  std::uint32_t unsettled() const noexcept { return unsettled_; }
  SenderState state(Rank rank) const noexcept;
  /// A sender whose frames all arrived but whose digest differs; the round has failed.
  std::optional<Rank> digest_mismatch() const noexcept { return mismatch_; }
  /// Senders of this round that are complete and whose digest matched.
  std::uint32_t matched() const noexcept { return matched_; }
  const ReceiveCounters& counters() const noexcept { return counters_; }

 private:
  struct Source {
    Rank rank = 0;
    std::uint32_t round = 0;
    SenderState state = SenderState::none;
    FrameRange range;  ///< What it sends.
    FrameBitmap bitmap;
    std::uint64_t digest = 0, tail_digest = 0;
    bool tail_final = false;
    std::optional<SnapshotLocation> location;  ///< Where the sender's round can be read.
    std::uint32_t present_at_read = 0;         ///< Frames that were there at the last pull.
    std::uint32_t reads_in_vain = 0;           ///< In a row, this round.
    std::uint32_t tail_end = 0;                ///< The sender says it sent frames [0, tail_end).
    std::uint32_t credit = 0;                  ///< Frames granted.
    bool credit_due = false;
    std::uint32_t nacked_end = 0;  ///< Gaps below were asked for already.
    TimePoint nack_at = kNever;    ///< New gaps are asked for then.
    TimePoint again_at = kNever;   ///< Everything missing is asked for again then.
    Duration patience{};           ///< Doubles with each NACK that brought nothing.
    TimePoint next_credit{};
  };
  static constexpr std::uint16_t kNoSource = 0xFFFF;

  Source* source_of(Rank rank) noexcept;
  void start(Source& source, Rank rank, std::uint32_t round, Shard shard, TimePoint now) noexcept;
  void set_window(std::size_t senders) noexcept;
  bool begun_by_sender(const Source& source) const noexcept {
    return source.bitmap.present() > 0 || source.tail_end > 0 || source.tail_final;
  }
  std::uint32_t known_end(const Source& source) const noexcept;
  void notice_gaps(Source& source, TimePoint now) noexcept;
  void send_nack(Source& source, bool all, TimePoint now) noexcept;
  bool fetch(Source& source, std::span<const NackRange> gaps, TimePoint now) noexcept;
  void grant(Source& source, TimePoint now) noexcept;
  void try_complete(Source& source) noexcept;
  void send_ack(Rank to, std::uint32_t epoch, std::uint32_t round, bool gave_up) noexcept;
  void settle(Source& source, SenderState state) noexcept;
  void answer_old_tail(const FrameHeader& header) noexcept;
  void wake_at(TimePoint t) noexcept { next_timer_ = std::min(next_timer_, t); }

  FramePort& port_;
  ReceiveSettings settings_;
  StreamShape shape_;  ///< Of the round.
  std::uint32_t epoch_ = 0;
  std::uint32_t round_ = 0;  ///< In lock-step.
  Duration credit_repeat_;
  bool begun_ = false;
  std::uint32_t sharing_ = 0;  ///< Of the next round's window; 0: its own senders.
  bool relays_ = false;
  TimePoint patient_until_{};
  std::uint32_t given_up_ = 0;       ///< Senders of this round, in lock-step.
  std::uint32_t window_frames_ = 1;  ///< Per sender, this round.
  std::vector<Source> sources_;      ///< [0, source_count_) are in use.
  std::size_t source_count_ = 0;
  std::vector<std::uint16_t> source_index_;  ///< By rank.
  PeerDeadlines own_deadlines_;              ///< Unless they are shared.
  PeerDeadlines* deadlines_;
  std::vector<std::uint8_t> dropped_ranks_;
  std::vector<std::uint32_t> gave_up_round_;  ///< By rank: last round given up, plus one.
  std::uint32_t unsettled_ = 0, matched_ = 0;
  std::optional<Rank> mismatch_;
  SplitMix64 backoff_, loss_;
  ReceiveCounters counters_;
  TimePoint next_timer_ = kNever;
};

}  // namespace selmcast
