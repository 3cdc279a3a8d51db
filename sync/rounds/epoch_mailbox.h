// How a plan gets from the control thread to the driver and back: publish, read, retire.
//
// One control thread and one driver. A plan (State) is owned by exactly one side at any time:
//
//   control: offer(s) ──▶ driver: take() prepares it, accept(r) promises not to begin a round
//   beyond r ──▶ control: accepted() .. activate(round) ──▶ driver: activated(), from that round on
//   it uses s, and retire(old) ──▶ control: switched() destroys the old plan.
//
// The driver's data path reads the plan in force through a plain pointer of its own: take() is one
// acquire load when there is nothing new. Nobody waits here, locks or frees memory on the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/check.h"

namespace selmcast {

/// `Atomic` is std::atomic, or a model of it that tests every interleaving.
template <class State, template <class> class Atomic = std::atomic>
class EpochMailbox {
 public:
  EpochMailbox() = default;
  EpochMailbox(const EpochMailbox&) = delete;
  EpochMailbox& operator=(const EpochMailbox&) = delete;
  /// When both threads have ended: destroys what is on its way.
  ~EpochMailbox() {
    delete offered_.exchange(nullptr, std::memory_order_acquire);
    delete retired_.exchange(nullptr, std::memory_order_acquire);
  }

  // [control]
  /// Publishes. The offer before must have been switched to.
  void offer(std::unique_ptr<State> state) {
    SELMCAST_CHECK(offered_.load(std::memory_order_relaxed) == nullptr, "an offer is open already");
    // The driver looks at these only after it has taken the offer, hence after the release below.
    accepted_.store(0, std::memory_order_relaxed);
    activated_.store(0, std::memory_order_relaxed);
    switched_.store(false, std::memory_order_relaxed);
    offered_.store(state.release(), std::memory_order_release);
  }
  /// What the driver said in accept(); absent until then.
  std::optional<std::uint32_t> accepted() const noexcept {
    const auto value = accepted_.load(std::memory_order_acquire);
    if (value == 0) return std::nullopt;
    return static_cast<std::uint32_t>(value - 1);
  }
  /// The offer is in force from `round` on.
  void activate(std::uint32_t round) noexcept {
    activated_.store(std::uint64_t{round} + 1, std::memory_order_release);
  }
  /// True once the driver uses the offer; the plan before has been destroyed then, here.
  bool switched() noexcept {
    if (!switched_.load(std::memory_order_acquire)) return false;
    delete retired_.exchange(nullptr, std::memory_order_acquire);
    return true;
  }

  // [driver]
  /// The offer, once.
  std::unique_ptr<State> take() noexcept {
    if (offered_.load(std::memory_order_acquire) == nullptr) return nullptr;
    // Nobody else writes while an offer is open, so an exchange would tell nothing more.
    std::unique_ptr<State> state(offered_.load(std::memory_order_relaxed));
    offered_.store(nullptr, std::memory_order_relaxed);
    return state;
  }
  void accept(std::uint32_t round) noexcept {
    accepted_.store(std::uint64_t{round} + 1, std::memory_order_release);
  }
  /// The round from which the taken offer is in force, once it is known.
  std::optional<std::uint32_t> activated() const noexcept {
    const auto value = activated_.load(std::memory_order_acquire);
    if (value == 0) return std::nullopt;
    return static_cast<std::uint32_t>(value - 1);
  }
  /// The taken offer is in use; `old` is not read any more.
  void retire(std::unique_ptr<State> old) noexcept {
    retired_.store(old.release(), std::memory_order_relaxed);
    switched_.store(true, std::memory_order_release);
  }

 private:
  /// [control] release in offer() / [driver] acquire in take(): the State pointed to.
  Atomic<State*> offered_{nullptr};
  /// [driver] release in accept() / [control] acquire in accepted(): the offer was taken.
  Atomic<std::uint64_t> accepted_{0};
  /// [control] release in activate() / [driver] acquire in activated(): 1 + the first round.
  Atomic<std::uint64_t> activated_{0};
  /// [driver] release in retire() / [control] acquire in switched(): retired_ and all reads of it.
  Atomic<bool> switched_{false};
  Atomic<State*> retired_{nullptr};  ///< Ordered by switched_.
};

}  // namespace selmcast
