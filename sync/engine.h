// Engine: executes the programs of one rank, round by round. Knows no policy by name.
//
// Threads. One *driver* thread calls progress() and everything marked [driver]. One *application*
// thread calls what is marked [app] (layers: see there), one *control* thread what is marked
// [control]. They share only the atomics below; the driver takes no lock and never waits for the
// others.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arena.h"
#include "multicast/puller.h"
#include "selmcast/worker.h"
#include "sync/engine_config.h"
#include "sync/epoch_mailbox.h"
#include "sync/landing_rows.h"
#include "sync/layers/layer_counts.h"

namespace selmcast {

class FreeRounds;
class LayerRounds;

class Engine {
 public:
  /// `transport` must outlive the engine.
  Engine(Transport& transport, const EngineConfig& config);
  ~Engine();

  // Set-up, by the thread that will drive, before the first progress().
  /// Before set_up().
  void set_keyed(const KeyedTail& keyed) noexcept { config_.keyed = keyed; }
  /// Why frames that could be put in place are not; empty otherwise. By any thread, after set-up.
  std::string landing_notice() const;
  void set_table(std::shared_ptr<SenderTable> table) noexcept { config_.table = std::move(table); }
  void set_layers(std::span<const std::size_t> sizes) {
    config_.layers.assign(sizes.begin(), sizes.end());
  }
  /// Connects to every other rank and registers `parameters` (a non-empty set whose size all ranks
  /// share). The memory must outlive the engine.
  Result<void> set_up(std::span<const PeerAddress> peers, std::span<float> parameters);
  /// Of all parameters as they travel: with 16-bit elements half as many bytes as they have.
  const StreamShape& shape() const noexcept { return shape_; }

  // [app]
  /// Starts the next exchange with the parameters as they are. Not before the last one has ended.
  void push() noexcept { push({0, parameters_.size()}); }
  /// The same with some of the parameters only, the same ones on all ranks of the job.
  void push(Elements part) noexcept;
  /// Exchanges that ended so far; equal to the number of push() calls when idle.
  std::uint32_t exchanges_closed() const noexcept {
    return closed_.load(std::memory_order_acquire) / config_.rounds_per_exchange;
  }
  /// Waits until the pushed exchange has ended or the engine failed.
  Result<RoundReport> wait();
  /// The report of the exchange that ended last; valid until the next push().
  const RoundReport& report() const noexcept { return report_; }
  // With free rounds push() hands over the parameters of one more step, and "closed" means that
  // they are mixed and the application's again. report() is that of the last round that ended.
  /// Instead of a last push(), once: there is no further step. Closes when all live ranks came
  /// here.
  void push_last() noexcept;
  /// Rounds of this rank that ended since the push() before; valid until the next one.
  std::span<const RoundReport> ended() const noexcept { return {ended_.data(), ended_count_}; }

  // With layers, instead of push(); wait() then waits for the last of them. Different layers may be
  // handed over and waited for by different application threads at the same time; wait() comes
  // after all push_layer() of the round have returned, and before all of the next.
  /// Hands layer `layer` over: once in a round, in any order. The first one of a round begins it;
  /// not before the last round has ended. Wait-free, but for the transport's wake().
  void push_layer(std::size_t layer) noexcept;
  /// Whether the layer is mixed and the application's again.
  bool layer_closed(std::size_t layer) const noexcept;
  /// Waits until it is, or the engine failed.
  Result<void> wait_layer(std::size_t layer);

  // [control]
  /// Offers the program of the next epoch. At most one offer is open at a time.
  void offer(std::unique_ptr<EpochState> epoch);
  /// After an offer: the first round that this rank has not begun and will not begin before
  /// activate(). Absent until the driver took the offer.
  std::optional<std::uint32_t> accepted() const noexcept;
  /// The offered epoch is committed from `round` on.
  void activate(std::uint32_t round) noexcept;
  /// True once the activated epoch is in force and the one before it has been destroyed.
  bool switched() noexcept;
  /// The rank is gone: no round waits for it any more.
  void mark_lost(Rank rank) noexcept;
  /// Ranks that this engine gave up because of a deadline, once each, with the reason.
  std::optional<std::pair<Rank, const char*>> next_suspect() noexcept;
  /// Ends the engine: wait() returns the error from now on.
  void fail(Error error);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  Error error() const;

  // [driver]
  /// Does what can be done now and returns how much that was (0 = idle).
  std::size_t progress(TimePoint now) noexcept;
  /// When progress() has something to do although no frame arrives; kNever when nothing is due.
  TimePoint next_timer() const noexcept;

 private:
  struct Totals {
    PortCounters port;
    std::uint64_t rx_payload_bytes = 0;
    std::uint64_t read_frames = 0;
    LandingCounters landing;
  };

  // Mailboxes.
  std::size_t read_mail() noexcept;
  void accept_offer(std::unique_ptr<EpochState> epoch) noexcept;
  Result<void> prepare(EpochState& epoch);
  LaneSpec unicast_lane(Rank to, bool patch) const;
  Result<MembershipId> join(EpochState& epoch, std::uint32_t group, JoinAs as, bool lands = false);
  // Frames put in place (engine_landing.cc).
  void set_up_landing();
  std::vector<std::uint32_t> reserve_landing(const Program& program);
  std::uint64_t landing_window() const noexcept;
  LandingQueue* landing_queue_of(const Completion& completion) noexcept {
    return landing_ == nullptr ? nullptr : landing_->queue_of(completion);
  }
  void on_landed(LandingQueue& queue, const Completion& completion, TimePoint now) noexcept;
  bool close_landing(Rank sender) noexcept;
  void switch_epoch(std::uint32_t first_round) noexcept;
  // Groups that only some rounds need: system calls and memory, under a join budget only.
  void join_for_next() noexcept;
  void leave_groups() noexcept;
  bool in_group_of(Rank sender) const noexcept;
  // Frames.
  std::size_t poll_transport(TimePoint now) noexcept;
  void on_frames(const Completion& completion, TimePoint now) noexcept;
  void on_parsed(const ParsedFrame& frame, TimePoint now) noexcept;
  void on_checked(const ParsedFrame& frame, TimePoint now) noexcept;
  void on_data(const ParsedFrame& frame, TimePoint now) noexcept;
  EpochState* epoch_of(std::uint32_t epoch) noexcept;
  // Rounds.
  bool may_begin() const noexcept;
  bool lacks_server() const noexcept;
  void begin_round(TimePoint now) noexcept;
  void close_round(TimePoint now) noexcept;
  void end_round() noexcept;
  Kbps wire_rate(const RoundPlan& plan) const noexcept;
  void replace(std::uint64_t offset, std::span<const std::byte> payload) noexcept;
  void finish_mix() noexcept;
  void fill_report(TimePoint now) noexcept;
  void report_peers() noexcept;
  void suspect(Rank rank, const char* why) noexcept;
  void fail_mismatch(Rank bad) noexcept;
  void fail_broken() noexcept;
  Totals totals() const noexcept;
  void drop_everywhere(Rank rank) noexcept;
  // Free rounds (engine_free_datapath.cc).
  void set_up_free();
  ReceiveSettings receive_settings(const Program& program) const;
  std::size_t read_free_mail() noexcept;
  std::size_t progress_free(TimePoint now) noexcept;
  void close_boundary() noexcept;
  // Layers (engine_layers.cc).
  void set_up_layers();
  std::size_t progress_layers(TimePoint now) noexcept;

  Transport& transport_;
  EngineConfig config_;
  StreamShape shape_;
  std::span<float> parameters_;
  Elements part_;  ///< Of the exchange; [app] before pushed_, [driver] after it.
  Arena encoded_memory_;
  std::span<std::byte> encoded_;       ///< The parameters as a round sends them; empty with f32.
  std::span<const std::byte> stream_;  ///< What is sent: encoded_ or, in place, the parameters.
  // Of the running round:
  std::span<float> own_;
  std::span<const std::byte> sent_;
  Region stream_region_;
  std::unique_ptr<FramePort> port_;
  Kbps planned_rate_ = 0;           ///< By the latest plan.
  std::unique_ptr<Puller> puller_;  ///< Null where the transport has no reads.
  std::unique_ptr<Accumulator> accumulator_;
  std::string landing_refused_;  ///< Constant after set-up.
  /// Of the newest view, groups that found no landing queue. Relaxed, in prepare() and
  /// landing_notice(): a number that says nothing of other memory.
  std::atomic<std::uint32_t> groups_refused_{0};
  std::unique_ptr<LandingRows> landing_;  ///< Null where every frame is put where it belongs by us.
  std::uint64_t table_bytes_ = 0;         ///< Put into the table by us.
  std::vector<Completion> completions_;
  std::vector<ReceiveRequest> returns_;

  // Driver only.
  std::unique_ptr<LayerRounds> layers_;  ///< Null where everything is handed over together.
  std::unique_ptr<FreeRounds> free_;     ///< Null in lock-step; otherwise it has the epochs.
  bool at_boundary_ = false;             ///< It was told of the push() that is not closed yet.
  std::unique_ptr<EpochState> current_, pending_;
  std::uint32_t round_ = 0;  ///< Running round, or the next one to begin.
  bool running_ = false;
  bool joined_next_ = false;  ///< What the next round needs more than this one.
  TimePoint round_begun_{};
  Totals at_begin_;
  std::uint64_t foreign_frames_ = 0, transition_frames_ = 0;  ///< Since the last report.
  std::optional<std::uint32_t> switched_in_;  ///< First round of an epoch that replaced another.
  std::uint32_t lost_seen_ = 0;
  std::uint32_t membership_changes_ = 0;

  // Atomics. Writer and reader of each, and what the pair orders:
  /// Rounds. [app] release in push() / [driver] acquire: what the application wrote to the
  /// parameters and part_.
  std::atomic<std::uint32_t> pushed_{0};
  /// With layers: which application thread adds to pushed_.
  RoundOpening<> round_opening_;
  /// [app] relaxed in push_last() / [driver] relaxed; ordered by pushed_.
  std::atomic<bool> pushed_last_{false};
  /// Rounds. [driver] release in close_round() / [app] acquire in wait(): report_ and the mixed
  /// parameters.
  std::atomic<std::uint32_t> closed_{0};
  /// The next epoch's program, on its way between [control] and [driver].
  EpochMailbox<EpochState> mailbox_;
  /// [control] release in mark_lost() / [driver] acquire: lost_ flags up to this count of changes.
  std::atomic<std::uint32_t> lost_changes_{0};
  std::vector<std::atomic<std::uint8_t>> lost_;  ///< Relaxed; ordered by lost_changes_.
  /// [driver] release in suspect() / [control] acquire: a pointer to a literal.
  std::vector<std::atomic<const char*>> suspects_;
  std::vector<std::uint8_t> suspects_told_;  ///< [control]
  /// Whoever wins the claim writes error_, then sets failed_ (release); readers acquire failed_.
  std::atomic<bool> failure_claimed_{false};
  std::atomic<bool> failed_{false};
  Error error_;

  RoundReport report_;  ///< Ordered by closed_ and pushed_, as are these:
  std::array<RoundReport, 4> ended_;
  std::size_t ended_count_ = 0;
};

}  // namespace selmcast
