// Bookkeeping of what arrived and what is owed. Times are per frame of a round.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "base/random.h"
#include "multicast/frame_bitmap.h"
#include "multicast/repair_queue.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kFrames = 71'500;  // ResNet-50 in float32 at MTU 1500.

/// Frames that arrive when each is lost with this chance.
std::vector<std::uint32_t> arrivals(double loss) {
  SplitMix64 random(1);
  std::vector<std::uint32_t> frames;
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    if (!random.chance(loss)) frames.push_back(f);
  }
  return frames;
}

/// Argument: loss in percent.
void bitmap_insert(benchmark::State& state) {
  const auto frames = arrivals(static_cast<double>(state.range(0)) / 100);
  FrameBitmap bitmap;
  bitmap.resize(kFrames);
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bitmap.insert(frames[next]));
    if (++next == frames.size()) {
      next = 0;
      bitmap.clear();
    }
  }
}
BENCHMARK(bitmap_insert)->Arg(0)->Arg(5);

/// All gaps of a round with 1 % loss, 128 at a time would be one NACK; per call.
void bitmap_gaps(benchmark::State& state) {
  FrameBitmap bitmap;
  bitmap.resize(kFrames);
  for (const std::uint32_t f : arrivals(0.01)) bitmap.insert(f);
  std::array<NackRange, 128> out{};
  for (auto _ : state) benchmark::DoNotOptimize(bitmap.gaps_below(kFrames, out));
}
BENCHMARK(bitmap_gaps);

/// A frame asked for by `range` receivers and taken again; per frame.
void repair_request_take(benchmark::State& state) {
  RepairQueue queue;
  queue.resize(kFrames, 8);
  SplitMix64 random(1);
  for (auto _ : state) {
    const auto frame = static_cast<std::uint32_t>(random.below(kFrames));
    for (std::uint32_t r = 0; r < static_cast<std::uint32_t>(state.range(0)); ++r) {
      queue.request(r, {frame, 1});
    }
    benchmark::DoNotOptimize(queue.take(44));
  }
}
BENCHMARK(repair_request_take)->Arg(1)->Arg(8);

}  // namespace
}  // namespace selmcast
