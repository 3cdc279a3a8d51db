// What the application's threads and the driver's share: whose the parameters are, and what became
// of the rounds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "selmcast/worker.h"
#include "sync/rounds/layer_counts.h"
#include "sync/rounds/round_memory.h"

namespace selmcast {

/// [app] calls by application threads, [driver] calls by the driver. Neither waits in here, and the
/// driver takes no lock. Allocates in its constructor only.
class HandOver {
 public:
  /// Rounds that end between two closes at most.
  static constexpr std::size_t kEndedMax = 4;

  HandOver(std::size_t layers, const Elements& all, std::uint32_t world);

  // [app]
  /// Hands all layers over: the next round is of this part of the parameters. Not before the last
  /// one has closed.
  void push(const Elements& part) noexcept;
  /// Hands one layer over, once in a round; the first one begins it.
  void push_layer(std::size_t layer) noexcept;
  /// The next push() is the last one.
  void say_last() noexcept { last_.store(true, std::memory_order_relaxed); }
  std::uint32_t pushed() const noexcept { return pushed_.load(std::memory_order_relaxed); }
  /// To be parked on, and read with acquire.
  const std::atomic<std::uint32_t>& closed() const noexcept { return closed_; }
  std::uint32_t layer_pushed(std::size_t layer) const noexcept { return layers_[layer].pushed(); }
  const std::atomic<std::uint32_t>& layer_closed(std::size_t layer) const noexcept {
    return layers_[layer].closed();
  }
  /// The report of the round that ended last, and those that ended since the close before; valid
  /// until the next push().
  const RoundReport& report() const noexcept { return report_; }
  std::span<const RoundReport> ended() const noexcept { return {ended_.data(), ended_count_}; }

  // [driver]
  /// Something was handed over that is not closed.
  bool open() const noexcept {
    return pushed_.load(std::memory_order_acquire) != closed_.load(std::memory_order_relaxed);
  }
  bool last() const noexcept { return last_.load(std::memory_order_relaxed); }
  const Elements& part() const noexcept { return part_; }
  std::size_t layers() const noexcept { return layer_count_; }
  bool layer_ready(std::size_t layer, std::uint32_t rounds) const noexcept {
    return layers_[layer].ready(rounds);
  }
  /// For the time number `rounds`.
  void give_back_layer(std::size_t layer, std::uint32_t rounds) noexcept;
  /// The next report, to be filled; told by close().
  RoundReport& next_report() noexcept;
  /// The parameters are mixed and the application's again.
  void close() noexcept;
  /// Wakes whoever waits, to look for a failure.
  void wake_all() noexcept;

 private:
  std::size_t layer_count_;
  std::unique_ptr<LayerCounts<>[]> layers_;
  Elements part_;  ///< Ordered by pushed_.
  /// Which application thread adds to pushed_.
  RoundOpening<> opening_;
  /// Rounds. [app] release in push_layer() / [driver] acquire in open(): what the application wrote
  /// to the parameters and part_.
  std::atomic<std::uint32_t> pushed_{0};
  /// [app] relaxed in say_last() / [driver] relaxed; ordered by pushed_.
  std::atomic<bool> last_{false};
  /// Rounds. [driver] release in close() / [app] acquire when it waits: the reports and the mixed
  /// parameters.
  std::atomic<std::uint32_t> closed_{0};
  RoundReport report_;  ///< Ordered by closed_ and pushed_, as are those below.
  std::array<RoundReport, kEndedMax> ended_;
  std::size_t ended_count_ = 0;
  std::array<RoundReport, kEndedMax> next_;  ///< [driver]
  std::size_t next_count_ = 0;
};

}  // namespace selmcast
