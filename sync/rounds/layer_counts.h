// Who owns a layer, and when a round of layers begins: counts that application threads and the
// driver share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace selmcast {

/// Of one layer: how often it was handed over and given back. It is the driver's while the two
/// differ. Wait-free. `Atomic` is std::atomic, or a model of it that tests every interleaving.
template <template <class> class Atomic = std::atomic>
class LayerCounts {
 public:
  // [app] Any thread; layers of a round may be handed over by different ones at the same time.
  /// False when the layer was the driver's already: a mistake of the application.
  bool push() noexcept {
    // Looks first: as soon as the layer is handed over the driver may give it back.
    // Acquire: pairs with give_back(); the thread that pushes need not be the one that waited.
    const auto given_back = closed_.load(std::memory_order_acquire);
    return pushed_.fetch_add(1, std::memory_order_release) == given_back;
  }
  /// Relaxed: for a thread that is ordered after the push(), by itself or by the application.
  std::uint32_t pushed() const noexcept { return pushed_.load(std::memory_order_relaxed); }
  /// To be parked on, and read with acquire.
  const Atomic<std::uint32_t>& closed() const noexcept { return closed_; }

  // [driver]
  /// Whether it has been handed over again after `rounds` times.
  bool ready(std::uint32_t rounds) const noexcept {
    return pushed_.load(std::memory_order_acquire) != rounds;
  }
  /// For the time number `rounds`.
  void give_back(std::uint32_t rounds) noexcept {
    closed_.store(rounds, std::memory_order_release);
  }

 private:
  /// [app] release in push() / [driver] acquire in ready(): what the application wrote to the
  /// layer. Added to, so that two threads that hand over the same layer are found out.
  Atomic<std::uint32_t> pushed_{0};
  /// [driver] release in give_back() / [app] acquire when it waits: the mixed layer.
  Atomic<std::uint32_t> closed_{0};
};

/// Of a round: which of the threads that hand over its layers begins it. Wait-free.
template <template <class> class Atomic = std::atomic>
class RoundOpening {
 public:
  /// [app] Before a layer is handed over: true for one of the `layers` of each round, the first to
  /// come. (All push() of a round are ordered before those of the next, by the application's wait.)
  bool first_of(std::size_t layers) noexcept {
    // Relaxed: only who comes first matters; what is handed over is ordered by other atomics.
    return announced_.fetch_add(1, std::memory_order_relaxed) % layers == 0;
  }

 private:
  Atomic<std::uint64_t> announced_{0};  ///< Layers since the start. 64 bits never wrap.
};

}  // namespace selmcast
