// Header and checksum of one frame, and parsing of NACKs.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "base/wire.h"
#include "multicast/digest.h"
#include "multicast/frame.h"

namespace selmcast {
namespace {

Bytes frame_of(std::size_t payload_bytes) {
  Bytes frame(kFrameHeaderBytes + payload_bytes, std::byte{0x3C});
  const FrameHeader header{.job = 7, .length = static_cast<std::uint16_t>(payload_bytes)};
  encode_frame(header, std::span(frame).subspan(kFrameHeaderBytes), frame.data());
  return frame;
}

void frame_encode(benchmark::State& state) {
  Bytes frame = frame_of(static_cast<std::size_t>(state.range(0)));
  const std::span<const std::byte> payload = std::span(frame).subspan(kFrameHeaderBytes);
  FrameHeader header{.job = 7, .length = static_cast<std::uint16_t>(payload.size())};
  for (auto _ : state) {
    ++header.offset;
    encode_frame(header, payload, frame.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(frame.size()));
}
BENCHMARK(frame_encode)->Arg(0)->Arg(1432)->Arg(8192);

void frame_parse(benchmark::State& state) {
  const Bytes frame = frame_of(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    auto parsed = parse_frame(frame, 7);
    benchmark::DoNotOptimize(parsed);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(frame.size()));
}
BENCHMARK(frame_parse)->Arg(0)->Arg(1432)->Arg(8192);

void frame_checksum(benchmark::State& state) {
  const Bytes payload(static_cast<std::size_t>(state.range(0)), std::byte{0x3C});
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(0, payload));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(frame_checksum)->Arg(1432)->Arg(8192);

void frame_digest_hash(benchmark::State& state) {
  FrameHeader header{.check = 5, .length = 1432};
  for (auto _ : state) {
    ++header.offset;
    benchmark::DoNotOptimize(frame_digest(header));
  }
}
BENCHMARK(frame_digest_hash);

void nack_parse(benchmark::State& state) {
  std::vector<NackRange> ranges;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(state.range(0)); ++i) {
    ranges.push_back({4 * i, 2});
  }
  Bytes payload(ranges.size() * 8);
  encode_nack(ranges, payload);
  std::array<NackRange, 128> out{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(parse_nack(payload, 100'000, out));
    benchmark::ClobberMemory();
  }
}
BENCHMARK(nack_parse)->Arg(1)->Arg(128);

}  // namespace
}  // namespace selmcast
