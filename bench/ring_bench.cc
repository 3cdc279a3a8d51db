// The single-producer ring of transport/shm: both ends in one thread, and across two threads.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "transport/shm/shm_ring.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kCapacity = shm::kRingBytesMin;

struct Ring {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  shm::RingControl control{};
  std::vector<Line> memory{kCapacity / sizeof(Line)};
  shm::RingProducer producer{&control, memory.front().bytes, kCapacity};
  shm::RingConsumer consumer{&control, memory.front().bytes, kCapacity};
};

/// Put and take one record of `range` bytes, its content not touched.
void ring_put_take(benchmark::State& state) {
  const auto ring = std::make_unique<Ring>();
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  shm::Record record;
  for (auto _ : state) {
    if (!ring->producer.has_room(bytes)) {
      state.SkipWithError("the ring is full although all was taken");
      break;
    }
    benchmark::DoNotOptimize(ring->producer.begin(bytes, bytes, 0));
    ring->producer.commit();
    benchmark::DoNotOptimize(ring->consumer.take(record));
    ring->consumer.release_to(record.end);
  }
}
BENCHMARK(ring_put_take)->Arg(64)->Arg(1472);

/// One thread puts, this one takes; per record. Both spin, so it needs two free cores.
void ring_across_threads(benchmark::State& state) {
  const auto ring = std::make_unique<Ring>();
  const auto bytes = static_cast<std::uint32_t>(state.range(0));
  // Only says when to end; nothing is published by it, so relaxed on both sides.
  std::atomic<bool> stop{false};
  std::thread producer([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (!ring->producer.has_room(bytes)) {
        std::this_thread::yield();
        continue;
      }
      std::memset(ring->producer.begin(bytes, bytes, 0), 1, bytes);
      ring->producer.commit();
    }
  });
  shm::Record record;
  for (auto _ : state) {
    while (ring->consumer.take(record) != shm::RingConsumer::Take::record) {
      std::this_thread::yield();
    }
    ring->consumer.release_to(record.end);
  }
  stop.store(true, std::memory_order_relaxed);
  producer.join();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(ring_across_threads)->Arg(64)->Arg(1472)->UseRealTime();

}  // namespace
}  // namespace selmcast
