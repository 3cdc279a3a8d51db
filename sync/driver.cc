#include "sync/driver.h"

#include <algorithm>
#include <array>
#include <new>

#include "multicast/received_frames.h"
#include "multicast/selection_frame.h"
#include "sync/free/free_windows.h"
#include "sync/rounds/lock_step.h"
#include "sync/rounds/parker.h"

namespace selmcast {

namespace {
constexpr std::uint32_t kChunkFramesMax = 44;
constexpr std::size_t kPollBatch = 64;
// Bounds a lost wake-up only: the driver bounds every round by its deadlines.
constexpr Duration kLostWakeUp = std::chrono::milliseconds(100);

// set-up: refuses what its frames have no room for.
Result<void> check_frames(const DriverConfig& config) {
  const std::uint32_t members_max = selection_members_max(config.frame_bytes);
  if (!config.free || !config.free->online || config.world <= members_max) return {};
  return bad_input(
      "rank " + std::to_string(config.self) +
      ": with eta in pace=ssp:s,eta a request lists all workers in one frame. Frames of " +
      std::to_string(config.frame_bytes) + " bytes have room for " + std::to_string(members_max) +
      ", but the job has " + std::to_string(config.world) + " and needs frames of " +
      std::to_string(kFrameHeaderBytes + 2 * config.world) +
      " bytes; use a larger MTU on all hosts, fewer workers, or drop eta");
}

StreamShape shape_of(const Transport& transport, const DriverConfig& config, std::size_t elements) {
  const auto& caps = transport.capabilities();
  SELMCAST_CHECK(config.frame_bytes <= caps.max_frame_bytes, "frames exceed the transport's");
  const std::uint32_t chunk = std::min(
      {kChunkFramesMax, caps.max_request_bytes / config.frame_bytes, caps.max_request_slices / 2});
  StreamShape out{elements * bytes_of(config.element),
                  (config.frame_bytes - kFrameHeaderBytes) / 8 * 8, std::max(chunk, 1U)};
  if (config.free && config.free->online) {
    // A new rate holds from the next chunk on, so a short round needs short ones.
    constexpr std::uint32_t kChunksLeast = 32;
    out.chunk_frames = std::clamp(out.frames() / kChunksLeast, 1U, out.chunk_frames);
  }
  return out;
}
}  // namespace

DriverConfig driver_config(const Policy& policy) {
  DriverConfig config;
  config.mix = policy.round_mix();
  config.gamma = policy.mix.gamma;
  config.order = policy.order.kind;
  config.element = policy.codec.element;
  if (policy.free()) {
    config.free =
        FreePace{policy.has(Trait::bounded), policy.pace.slack, policy.has(Trait::online)};
  }
  return config;
}

// --- set-up --------------------------------------------------------------------------------------

// set-up: all memory that a driver owns is taken here and in the two functions below.
Driver::Driver(Transport& transport, const DriverConfig& config, const Elements& all)
    : transport_(transport),
      config_(config),
      all_(all),
      mail_(config.world),
      app_(std::make_unique<HandOver>(std::max<std::size_t>(config.layers.size(), 1), all,
                                      config.world)),
      completions_(kPollBatch),
      returns_(kPollBatch) {}

Driver::~Driver() = default;

// set-up: as above.
Result<std::unique_ptr<Driver>> Driver::make(Transport& transport, const DriverConfig& config,
                                             std::span<const PeerAddress> peers,
                                             std::span<float> parameters) {
  std::unique_ptr<Driver> out(new Driver(transport, config, {0, parameters.size()}));
  if (auto ok = out->set_up(peers, parameters); !ok) return std::move(ok).error();
  return out;
}

// set-up: as above.
Result<void> Driver::set_up(std::span<const PeerAddress> peers, std::span<float> parameters) {
  if (auto fits = check_frames(config_); !fits) return fits;
  const StreamShape shape = shape_of(transport_, config_, parameters.size());
  const auto streams = static_cast<std::uint32_t>(app_->layers()) * config_.phases_max;
  auto port = FramePort::make(transport_, {config_.job, config_.self, config_.world,
                                           config_.frame_bytes, shape.chunk_frames, streams});
  if (!port) return std::move(port).error();
  port_ = std::move(port).value();
  auto read_repair = ReadRepair::make(*port_, shape.frame_payload);
  if (!read_repair) return std::move(read_repair).error();
  read_repair_ = std::move(read_repair).value();
  port_->set_read_repair(read_repair_.get());
  for (Rank rank = 0; rank < config_.world; ++rank) {
    if (rank == config_.self) continue;
    if (auto ok = port_->connect(rank, peers[rank]); !ok) return ok;
  }
  auto memory = RoundMemory::make(transport_, config_, shape, parameters);
  if (!memory) return std::move(memory).error();
  memory_ = std::move(memory).value();
  reports_ = std::make_unique<RoundReports>(*port_, config_, shape.frame_payload);
  const RoundContext context{*port_, config_, *memory_, *reports_, *app_, mail_};
  if (config_.free) {
    windows_ = std::make_unique<FreeWindows>(context);
  } else {
    windows_ = std::make_unique<LockStep>(context);
  }
  return {};
}

// --- application ---------------------------------------------------------------------------------

void Driver::push(const Elements& part) noexcept {
  SELMCAST_CHECK(part.count > 0 && part.first + part.count <= all_.count,
                 "a round is of some of the registered parameters");
  app_->push(part);
  transport_.wake();
}

void Driver::push_last() noexcept {
  app_->say_last();
  push();
}

void Driver::push_layer(std::size_t layer) noexcept {
  SELMCAST_CHECK(layer < app_->layers(), "a layer that was registered");
  app_->push_layer(layer);
  // Whichever thread's news the driver missed before it went to sleep, that thread wakes it.
  transport_.wake();
}

Result<RoundReport> Driver::wait() {
  const std::uint32_t want = app_->pushed();
  for (;;) {
    const std::uint32_t now = closed();
    if (now == want) return report();
    if (failed()) return mail_.error();
    park(app_->closed(), now, kLostWakeUp);
  }
}

Result<void> Driver::wait_layer(std::size_t layer) {
  // Of one layer nobody is woken but by the end of the round.
  if (app_->layers() == 1) {
    auto closed = wait();
    return closed ? Result<void>() : Result<void>(std::move(closed).error());
  }
  while (!layer_closed(layer)) {
    if (failed()) return mail_.error();
    park(app_->layer_closed(layer), app_->layer_pushed(layer) - 1, kLostWakeUp);
  }
  return {};
}

// --- control -------------------------------------------------------------------------------------

void Driver::offer(std::unique_ptr<EpochState> epoch) {
  mail_.epochs().offer(std::move(epoch));
  transport_.wake();
}

void Driver::activate(std::uint32_t round) noexcept {
  mail_.epochs().activate(round);
  transport_.wake();
}

void Driver::mark_lost(Rank rank) noexcept {
  if (mail_.mark_lost(rank)) transport_.wake();
}

void Driver::fail(Error error) {
  if (!mail_.fail(std::move(error))) return;
  app_->wake_all();
  transport_.wake();
}

// --- driver: mail --------------------------------------------------------------------------------

std::size_t Driver::read_mail() noexcept {
  std::size_t done = 0;
  if (mail_.losses_changed()) {
    for (Rank rank = 0; rank < config_.world; ++rank) {
      if (mail_.lost(rank)) windows_->lose(rank);
    }
    ++done;
  }
  if (!windows_->offered()) {
    if (auto offer = mail_.epochs().take()) {
      accept(std::move(offer));
      ++done;
    }
  }
  if (windows_->read_mail() > 0) {
    limit_rate(planned_rate_);  // set-up: a change of plan
    ++done;
  }
  return done;
}

void Driver::limit_rate(Kbps wire_kbps) noexcept {
  if (Pacing* const pacing = transport_.abilities().pacing) pacing->limit_rate(wire_kbps);
}

void Driver::accept(std::unique_ptr<EpochState> epoch) noexcept {
  try {
    if (auto ok = prepare(*epoch, *port_, config_, *memory_); !ok) {
      return fail(std::move(ok).error());
    }
    for (Rank rank = 0; rank < config_.world; ++rank) {
      if (mail_.lost(rank)) epoch->drop(rank);
    }
    // The rounds of two epochs may overlap.
    const Kbps planned = selmcast::planned_rate(*epoch, config_.self);
    limit_rate(std::max(planned, planned_rate_));
    planned_rate_ = planned;
    mail_.epochs().accept(windows_->offer(std::move(epoch)));
  } catch (const std::bad_alloc&) {
    // failure: the job ends.
    fail(unavailable("no memory for the bookkeeping of " +
                     std::to_string(memory_->parameters().size_bytes()) +
                     " bytes of parameters; use fewer ranks on this host"));
  }
}

// --- driver: frames ------------------------------------------------------------------------------

std::size_t Driver::progress(TimePoint now) noexcept {
  if (mail_.failed()) {
    port_->withdraw_all();  // The application may do with its parameters what it likes.
    return 0;
  }
  // A turn comes every few milliseconds unless the whole process is stopped.
  const Duration gap = now - std::exchange(last_turn_, now);
  std::size_t done = read_mail();
  done += poll_transport(now);
  if (mail_.failed()) return done;
  if (gap > config_.timeout / 4) windows_->start_deadlines_anew(now);
  done += windows_->progress(now);
  port_->flush();
  if (port_->broken()) {
    // failure: the job ends.
    fail(selmcast::failed("rank " + std::to_string(config_.self) +
                          " cannot send: " + transport_.last_error()));
  }
  return done;
}

std::size_t Driver::poll_transport(TimePoint now) noexcept {
  const std::size_t count = transport_.poll(completions_);
  std::size_t lent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Completion& completion = completions_[i];
    if (completion.kind == Completion::Kind::send) {
      port_->on_send_completion(completion);
    } else if (completion.kind == Completion::Kind::receive) {
      on_frames(completion, now);
      returns_[lent++] = ReceiveRequest{completion.token};
    } else if (completion.kind == Completion::Kind::read) {
      read_repair_->on_completion(completion);
    }
    // A `lost` completion only tells early what the store tells all ranks alike.
  }
  if (lent > 0 && transport_.post_receives({returns_.data(), lent}).state == PostState::broken) {
    const auto self = std::to_string(config_.self);  // failure: ends the job
    fail(selmcast::failed("rank " + self + ": " + transport_.last_error() +
                          "; it stood still for longer than the timeout"));
  }
  if (read_repair_ != nullptr) {
    read_repair_->deliver([&](const ParsedFrame& frame) { on_checked(frame, now); });
  }
  return count;
}

void Driver::on_frames(const Completion& completion, TimePoint now) noexcept {
  each_frame(completion, config_.job, [&](const ParsedFrame& frame) {
    if (frame.error != FrameError::none || frame.header.sender >= config_.world) return;
    // A group that this rank both sends to and hears may loop its own frames back.
    if (frame.header.sender != config_.self) on_checked(frame, now);
  });
}

void Driver::on_checked(const ParsedFrame& frame, TimePoint now) noexcept {
  windows_->note_alive(frame.header, now);
  switch (frame.header.kind) {
    case FrameKind::data:
      return on_data(frame, now);
    case FrameKind::credit:
    case FrameKind::nack:
    case FrameKind::ack:
    case FrameKind::tail:
    case FrameKind::evict:
      return on_control(frame, now);
    case FrameKind::clock:
    case FrameKind::request:
    case FrameKind::plan:
      return windows_->on_news(frame, now);
    case FrameKind::alive:
      return;  // note_alive() above is all it is for.
  }
}

void Driver::on_control(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  const bool from_sender = header.kind == FrameKind::tail || header.kind == FrameKind::evict;
  EpochState* epoch = windows_->find(header.epoch);
  if (epoch != nullptr && from_sender) windows_->learn(*epoch, header, now);
  if (epoch == nullptr) epoch = windows_->fallback();
  if (epoch == nullptr || header.stream >= epoch->streams.size()) return;
  auto& stream = epoch->streams[header.stream];
  if (from_sender) return stream.receiver->on_control(header, frame.payload, now);
  stream.sender->on_control(header, frame.payload, now);
}

void Driver::on_data(const ParsedFrame& frame, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  EpochState* const epoch = windows_->find(header.epoch);
  if (epoch == nullptr) return reports_->count_stray(/*transition=*/true);
  if (header.stream >= epoch->streams.size()) return;
  windows_->learn(*epoch, header, now);
  const Verdict verdict =
      epoch->streams[header.stream].receiver->on_data(header, frame.payload, now);
  if (verdict == Verdict::foreign || verdict == Verdict::stale) {
    const auto stray = windows_->stray(*epoch, header, verdict);
    if (stray == Windows::Stray::late) return;
    return reports_->count_stray(stray == Windows::Stray::transition);
  }
  const std::size_t layer = epoch->layer_of(header.stream);
  if (verdict != Verdict::fresh || !windows_->merges(*epoch, layer, header)) return;
  auto& memory = memory_->layers()[layer];
  memory_->take(memory, epoch->ways_of(header.round, epoch->phase_of(header.stream)).combine,
                frame);
  windows_->merged(header, memory.shape.frame_at(header.offset));
}

}  // namespace selmcast
