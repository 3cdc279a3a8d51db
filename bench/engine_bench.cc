// Push-to-post and receive-to-accumulate, per frame, and the plan lookup. A round is ResNet-50-like
// in frame size but smaller, so that it is timed without the memory's limits; see bench_memory for
// those.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "bench/null_transport.h"
#include "multicast/receive_session.h"
#include "multicast/send_session.h"
#include "plan/compile.h"
#include "sync/mix/accumulator.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kPayload = 1432;
constexpr std::uint32_t kFrames = 704;  // 1 MB
constexpr std::uint32_t kJob = 7;
constexpr std::size_t kFrameBytes = kFrameHeaderBytes + kPayload;
constexpr StreamShape kShape{std::uint64_t{kFrames} * kPayload, kPayload, 44};

/// From the start of a round until all its frames are with the transport: digest, header, checksum,
/// requests, completions.
void push_to_post(benchmark::State& state) {
  NullTransport transport;
  auto port =
      FramePort::make(transport, {kJob, 0, 2, kFrameHeaderBytes + kPayload, kShape.chunk_frames});
  if (!port || !(*port)->connect(1, {})) return state.SkipWithError("no port");
  SendSession session(**port, {.shape = kShape, .wire_overhead_bytes = 42});
  const std::vector<std::byte> stream(kShape.bytes, std::byte{1});
  const std::vector<LaneSpec> lanes{{(*port)->destination(1), {1}, false, {}}};
  std::array<Completion, 64> done{};
  TimePoint now{};
  std::uint32_t round = 0;
  for (auto _ : state) {
    ++round;
    session.begin(now, 0, round, stream, 0, lanes, 1'000'000'000'000);
    session.on_control({.kind = FrameKind::credit,
                        .job = kJob,
                        .sender = 1,
                        .round = round,
                        .offset = kShape.bytes},
                       {}, now);
    for (std::uint32_t sent = 0; sent < kFrames;) {
      now += std::chrono::milliseconds(1);
      sent += session.progress(now);
      (*port)->flush();
      const std::size_t n = transport.poll(done);
      for (const Completion& c : std::span(done).first(n)) (*port)->on_send_completion(c);
    }
    session.on_control({.kind = FrameKind::ack, .job = kJob, .sender = 1, .round = round}, {}, now);
    if (!session.done()) return state.SkipWithError("the round did not end");
  }
  state.SetItemsProcessed(state.iterations() * kFrames);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kShape.bytes));
}
BENCHMARK(push_to_post)->Unit(benchmark::kMicrosecond);

/// The frames of one round of one sender as they lie in receive buffers.
std::vector<std::byte> received_from(Rank sender, std::uint32_t round) {
  std::vector<std::byte> out(std::size_t{kFrames} * kFrameBytes, std::byte{0x3C});
  for (std::uint32_t f = 0; f < kFrames; ++f) {
    const auto frame = std::span(out).subspan(f * kFrameBytes, kFrameBytes);
    encode_frame({.job = kJob,
                  .sender = sender,
                  .round = round,
                  .check = payload_check(frame.subspan(kFrameHeaderBytes)),
                  .offset = kShape.offset_of(f),
                  .length = kPayload},
                 frame.subspan(kFrameHeaderBytes), frame.data());
  }
  return out;
}

/// From a frame's bytes in a receive buffer until they are in the accumulator: parse, bitmap,
/// checksum, digest, add. Of the senders, who take turns, the first assigns and all others add.
void receive_to_accumulate(benchmark::State& state) {
  const auto senders_count = static_cast<Rank>(state.range(1));
  NullTransport transport;
  auto port =
      FramePort::make(transport, {kJob, 0, senders_count + 1, kFrameBytes, kShape.chunk_frames});
  if (!port) return state.SkipWithError("no port");
  std::vector<Rank> senders;
  for (Rank r = 1; r <= senders_count; ++r) {
    senders.push_back(r);
    if (!(*port)->connect(r, {})) return state.SkipWithError("no way to a sender");
  }
  ReceiveSession session(**port, {.shape = kShape, .senders_max = senders_count});
  Accumulator accumulator(kShape, MixKind::average, state.range(0) != 0);
  const std::vector<float> own(kShape.bytes / sizeof(float), 1.0F);
  std::vector<std::vector<std::byte>> received(senders_count);
  std::array<Completion, 64> done{};
  TimePoint now{};
  std::uint32_t round = 0;
  for (auto _ : state) {
    state.PauseTiming();
    ++round;
    for (const Rank r : senders) received[r - 1] = received_from(r, round);
    session.begin(now, 0, round, senders, kShape.bytes);
    state.ResumeTiming();
    accumulator.begin(0, senders.size() + 1, senders);
    for (std::uint32_t f = 0; f < kFrames; ++f) {
      for (const Rank r : senders) {
        const auto frame = std::span(received[r - 1]).subspan(f * kFrameBytes, kFrameBytes);
        const ParsedFrame parsed = parse_frame(frame, kJob);
        if (parsed.error != FrameError::none ||
            session.on_data(parsed.header, parsed.payload, now) != Verdict::fresh) {
          return state.SkipWithError("a frame was refused");
        }
        accumulator.add(f, r, parsed.payload, std::as_bytes(std::span(own)).data());
      }
    }
    session.progress(now);
    (*port)->flush();
    const std::size_t n = transport.poll(done);
    for (const Completion& c : std::span(done).first(n)) (*port)->on_send_completion(c);
  }
  state.SetItemsProcessed(state.iterations() * kFrames * senders_count);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kShape.bytes) *
                          senders_count);
}
BENCHMARK(receive_to_accumulate)
    ->ArgNames({"deterministic", "senders"})
    ->ArgsProduct({{0, 1}, {1, 3, 8}})
    ->Unit(benchmark::kMicrosecond);

void plan_lookup(benchmark::State& state) {
  Program program;
  program.rounds.resize(static_cast<std::size_t>(state.range(0)));
  std::uint32_t round = 0;
  for (auto _ : state) benchmark::DoNotOptimize(&program.rounds[program.slot_of(++round)]);
}
BENCHMARK(plan_lookup)->Arg(4)->Arg(64);

}  // namespace
}  // namespace selmcast
