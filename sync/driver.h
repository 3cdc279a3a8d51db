// Driver: executes the programs of one rank, round by round, whatever their pace. Knows no policy
// by name.
//
// Threads. One *driver* thread calls progress() and next_timer(). *Application* threads call what
// is marked [app], one *control* thread what is marked [control]. They share only what HandOver and
// DriverMail hold; the driver takes no lock and never waits for the others.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "multicast/read_repair.h"
#include "sync/rounds/windows.h"

namespace selmcast {

class Driver {
 public:
  /// Connects to every other rank and registers `parameters` (a non-empty set whose size all ranks
  /// share). Transport and memory must outlive the driver. By the thread that drives, before the
  /// first progress(). Errors: what the transport refuses; no memory.
  static Result<std::unique_ptr<Driver>> make(Transport& transport, const DriverConfig& config,
                                              std::span<const PeerAddress> peers,
                                              std::span<float> parameters);
  ~Driver();

  // [app]
  /// Starts the next round with the parameters as they are. Not before the last one has ended.
  /// Under a pace of free rounds: hands over the parameters of one more step, and "closed" means
  /// that they are mixed and the application's again.
  void push() noexcept { push(all_); }
  /// The same with some of the parameters only, the same ones on all ranks of the job.
  void push(const Elements& part) noexcept;
  /// Free rounds, instead of a last push(), once: there is no further step. Closes when all live
  /// ranks came here.
  void push_last() noexcept;
  /// Rounds, or steps, that ended so far; equal to the number of push() calls when idle.
  std::uint32_t closed() const noexcept { return app_->closed().load(std::memory_order_acquire); }
  /// Waits until the pushed round has ended or the driver failed.
  Result<RoundReport> wait();
  /// The report of the round that ended last, and all that ended since the push() before; valid
  /// until the next push().
  const RoundReport& report() const noexcept { return app_->report(); }
  std::span<const RoundReport> ended() const noexcept { return app_->ended(); }

  // With layers, instead of push(); wait() then waits for the last of them. Different layers may be
  // handed over and waited for by different application threads at the same time; wait() comes
  // after all push_layer() of the round have returned, and before all of the next.
  /// Hands layer `layer` over: once in a round, in any order. The first one of a round begins it;
  /// not before the last round has ended. Wait-free, but for the transport's wake().
  void push_layer(std::size_t layer) noexcept;
  /// Whether the layer is mixed and the application's again.
  bool layer_closed(std::size_t layer) const noexcept {
    return app_->layer_closed(layer).load(std::memory_order_acquire) == app_->layer_pushed(layer);
  }
  /// Waits until it is, or the driver failed.
  Result<void> wait_layer(std::size_t layer);

  // [control]
  /// Offers the program of the next epoch. At most one offer is open at a time.
  void offer(std::unique_ptr<EpochState> epoch);
  /// After an offer: the first round that this rank has not begun and will not begin before
  /// activate(). Absent until the driver took the offer.
  std::optional<std::uint32_t> accepted() const noexcept { return mail_.epochs().accepted(); }
  /// The offered epoch is committed from `round` on.
  void activate(std::uint32_t round) noexcept;
  /// True once the activated epoch is in force and the one before it has been destroyed.
  bool switched() noexcept { return mail_.epochs().switched(); }
  /// The rank is gone: no round waits for it any more.
  void mark_lost(Rank rank) noexcept;
  /// Ranks that rounds gave up because of a deadline, once each, with the reason.
  std::optional<std::pair<Rank, const char*>> next_suspect() noexcept {
    return mail_.next_suspect();
  }
  /// Ends the driver: waits return the error from now on.
  void fail(Error error);
  bool failed() const noexcept { return mail_.failed(); }
  Error error() const { return failed() ? mail_.error() : Error(); }

  // [driver]
  /// Does what can be done now and returns how much that was (0 = idle).
  std::size_t progress(TimePoint now) noexcept;
  /// When progress() has something to do although no frame arrives; kNever when nothing is due.
  TimePoint next_timer() const noexcept { return windows_->next_timer(); }

 private:
  Driver(Transport& transport, const DriverConfig& config, const Elements& all);
  Result<void> set_up(std::span<const PeerAddress> peers, std::span<float> parameters);
  // Mail.
  std::size_t read_mail() noexcept;
  void accept(std::unique_ptr<EpochState> epoch) noexcept;
  void limit_rate(Kbps wire_kbps) noexcept;
  // Frames.
  std::size_t poll_transport(TimePoint now) noexcept;
  void on_frames(const Completion& completion, TimePoint now) noexcept;
  void on_checked(const ParsedFrame& frame, TimePoint now) noexcept;
  void on_data(const ParsedFrame& frame, TimePoint now) noexcept;
  void on_control(const ParsedFrame& frame, TimePoint now) noexcept;

  Transport& transport_;
  DriverConfig config_;
  Elements all_;
  mutable DriverMail mail_;
  std::unique_ptr<HandOver> app_;
  std::unique_ptr<FramePort> port_;
  std::unique_ptr<ReadRepair> read_repair_;  ///< Null where the transport has no reads.
  std::unique_ptr<RoundMemory> memory_;
  std::unique_ptr<RoundReports> reports_;
  std::unique_ptr<Windows> windows_;
  Kbps planned_rate_ = 0;  ///< By the latest plan.
  TimePoint last_turn_{};
  std::vector<Completion> completions_;
  std::vector<ReceiveRequest> returns_;
};

}  // namespace selmcast
