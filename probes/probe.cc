#include "probes/probe.h"

#include <algorithm>
#include <numeric>

#include "probes/arrival_curve.h"
#include "probes/gather.h"
#include "probes/packet_train.h"
#include "probes/ping.h"
#include "probes/probe_io.h"
#include "probes/report.h"
#include "probes/schedule.h"
#include "store/keys.h"

namespace selmcast {
namespace {

/// Timers of trains and looks at the store go by this tick.
constexpr Duration kTick = std::chrono::microseconds(500);
constexpr std::uint64_t kFramesMin = 64;
constexpr std::uint64_t kWindowBytesDefault = 256U << 10U;

class ProbeMachine final : public Probe {
 public:
  ProbeMachine(std::unique_ptr<ProbeIo> io, Rendezvous& rendezvous, ProbeConfig config);
  Result<bool> step(TimePoint now) override;
  TimePoint next_wakeup() const noexcept override { return next_wakeup_; }
  const std::vector<LinkEstimate>& estimates() const noexcept override { return estimates_; }

 private:
  enum class Stage { start, ready, train, rates, ping, pinged, results, drain, done };

  Result<bool> advance(TimePoint now);
  Result<void> look_at_store(TimePoint now);
  void on_packet(const ProbePacket& packet, std::uint64_t device_ns, TimePoint now);
  void enter(Stage stage, std::string stem, std::vector<Rank> ranks, TimePoint now);
  void begin_train(std::uint32_t train, TimePoint now);
  Result<bool> advance_train(TimePoint now);
  void finish_train(TimePoint now);
  Kbps rate_or_less(Kbps rate, std::uint64_t bytes, TimePoint now) const noexcept;
  Result<bool> advance_rates(TimePoint now);
  Result<bool> advance_ping(TimePoint now);
  Result<bool> advance_results(TimePoint now);

  const ProbeStep& pattern() const { return steps_[train_ / trains_per_step()]; }
  std::uint32_t trains_per_step() const noexcept { return config_.repeats + 1; }
  std::uint32_t trains() const noexcept {
    return static_cast<std::uint32_t>(steps_.size()) * trains_per_step();
  }
  bool own_part_done() const noexcept { return own_done_ || !pattern().measures(self_); }
  std::string stem(const std::string& name) const { return keys::probe(config_.tag, name); }
  Result<void> put(const std::string& name, std::span<const std::byte> value) {
    return rendezvous_.put(keys::of_rank(stem(name), self_), value);
  }
  std::string stage_text() const;
  Error fail(const std::string& text);
  Error silent(Rank rank, Duration after);

  std::unique_ptr<ProbeIo> io_;
  Rendezvous& rendezvous_;
  ProbeConfig config_;
  Rank self_;
  std::uint32_t world_;
  std::vector<ProbeStep> steps_;
  std::vector<Rank> everyone_;
  TrainSender sender_;
  TrainReceiver receiver_;
  Pinger pinger_;
  Gather gather_;
  RankReport report_;
  std::vector<LinkEstimate> estimates_;
  Stage stage_ = Stage::start;
  std::uint32_t train_ = 0;
  bool own_done_ = false;
  TimePoint stage_since_{}, next_look_{}, next_wakeup_{};
  std::optional<Error> failure_;
};

ProbeMachine::ProbeMachine(std::unique_ptr<ProbeIo> io, Rendezvous& rendezvous, ProbeConfig config)
    : io_(std::move(io)),
      rendezvous_(rendezvous),
      config_(std::move(config)),
      self_(rendezvous.rank()),
      world_(rendezvous.world()),
      steps_(probe_schedule(config_.host_of_rank)),
      everyone_(world_),
      sender_(world_),
      receiver_(world_),
      pinger_(world_, self_),
      estimates_(world_) {
  std::iota(everyone_.begin(), everyone_.end(), Rank{0});
}

Result<bool> ProbeMachine::step(TimePoint now) {
  if (failure_) return *failure_;
  if (stage_ == Stage::done) return true;
  if (world_ == 1) return true;
  if (auto seen = look_at_store(now); !seen) return seen.error();
  io_->poll([&](const ProbePacket& packet, std::uint64_t device_ns) {
    on_packet(packet, device_ns, now);
  });
  if (io_->lost_peer()) {
    return fail("rank " + std::to_string(*io_->lost_peer()) + " was lost, says the transport, in " +
                stage_text());
  }
  if (io_->broken()) {
    return fail("rank " + std::to_string(self_) + " can send no more in " + stage_text() + ": " +
                io_->last_error());
  }
  auto done = advance(now);
  if (!done) return done;
  receiver_.step(*io_, now);
  sender_.step(*io_, now);
  pinger_.step(*io_, now);
  next_wakeup_ = std::min(now + kTick, std::max(pinger_.next_due(), now));
  return done;
}

Result<void> ProbeMachine::look_at_store(TimePoint now) {
  if (now < next_look_) return {};
  next_look_ = now + kTick;
  auto updated = rendezvous_.update(Duration::zero());
  if (!updated) {
    failure_ = updated.error();
    return *failure_;
  }
  if (const auto text = rendezvous_.try_get(stem("failed"))) {
    failure_ = failed(one_line(*text));
    return *failure_;
  }
  for (Rank rank = 0; rank < world_; ++rank) {
    if (rank != self_ && rendezvous_.lost(rank)) {
      return fail("rank " + std::to_string(rank) + " was lost in " + stage_text());
    }
  }
  return {};
}

void ProbeMachine::on_packet(const ProbePacket& packet, std::uint64_t device_ns, TimePoint now) {
  switch (packet.kind) {
    case ProbeKind::ping:
      return pinger_.on_ping(packet);
    case ProbeKind::pong:
      return pinger_.on_pong(packet, now);
    case ProbeKind::ack:
      return sender_.on_ack(packet, *io_, now);
    case ProbeKind::data:
    case ProbeKind::fin:
      break;
  }
  // Whoever sends a later train has seen that this one is over; the store only was slower here.
  const bool before_first = stage_ == Stage::ready && packet.train == 0;
  const bool over = stage_ == Stage::train && packet.train > train_ && own_part_done();
  if ((before_first || over) && packet.train < trains()) begin_train(packet.train, now);
  if (stage_ != Stage::train) return;
  if (packet.kind == ProbeKind::data) {
    receiver_.on_data(packet, *io_, {now, device_ns});
  } else {
    receiver_.on_fin(packet);
  }
}

void ProbeMachine::enter(Stage stage, std::string name, std::vector<Rank> ranks, TimePoint now) {
  stage_ = stage;
  stage_since_ = now;
  gather_.start(stem(name), std::move(ranks));
}

void ProbeMachine::begin_train(std::uint32_t train, TimePoint now) {
  train_ = train;
  own_done_ = false;
  const ProbeStep& step = pattern();
  std::vector<Rank> subjects;
  std::copy_if(everyone_.begin(), everyone_.end(), std::back_inserter(subjects),
               [&](Rank rank) { return step.measures(rank); });
  enter(Stage::train, "train" + std::to_string(train), std::move(subjects), now);
  const std::uint64_t window_bytes = io_->capabilities().receive_window_bytes == 0
                                         ? kWindowBytesDefault
                                         : io_->capabilities().receive_window_bytes;
  const auto window = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(window_bytes / step.senders.size() / io_->wire_bytes(1), 1U << 16U));
  const TrainLimits limits{.time = config_.train_time,
                           .time_max = config_.train_time_max,
                           .bytes_max = config_.train_bytes_max,
                           .frames_min = kFramesMin};
  const std::vector<Rank> nobody;
  sender_.start(train, step.sends(self_) ? step.receivers : nobody, self_, window, limits, now);
  receiver_.start(train, step.receives(self_) ? step.senders : nobody, self_);
}

Result<bool> ProbeMachine::advance(TimePoint now) {
  const Stage before = stage_;
  const Duration waited = now - stage_since_;
  const auto next = [&](Stage stage, const std::string& name) {
    enter(stage, name, everyone_, now);
    return false;
  };
  switch (stage_) {
    case Stage::start:
      if (auto ok = put("ready", {}); !ok) return ok.error();
      return next(Stage::ready, "ready");
    case Stage::ready:
      if (gather_.poll(rendezvous_)) begin_train(0, now);
      break;
    case Stage::train:
      return advance_train(now);
    case Stage::rates:
      return advance_rates(now);
    case Stage::ping:
      return advance_ping(now);
    case Stage::pinged:
      if (!gather_.poll(rendezvous_)) break;
      report_.latency = pinger_.latency();
      report_.pings_arrived = pinger_.arrived();
      if (auto ok = put("result", serialize(report_)); !ok) return ok.error();
      return next(Stage::results, "result");
    case Stage::results:
      return advance_results(now);
    case Stage::drain:
      // What is in flight holds nobody up; ~ProbeIo waits for the rest.
      if (!io_->sends_in_flight() || waited > config_.timeout) stage_ = Stage::done;
      break;
    case Stage::done:
      return true;
  }
  const bool waits_for_keys = stage_ == Stage::ready || stage_ == Stage::pinged;
  if (stage_ == before && waits_for_keys && waited > config_.timeout) {
    return silent(gather_.missing(), waited);
  }
  return stage_ == Stage::done;
}

Result<bool> ProbeMachine::advance_train(TimePoint now) {
  const ProbeStep& step = pattern();
  const Duration waited = now - stage_since_;
  if (!own_part_done()) {
    const bool sent = !step.measures_transmit || !step.sends(self_) || sender_.finished();
    const bool received = !step.measures_receive || !step.receives(self_) || receiver_.finished();
    if (sent && received) {
      finish_train(now);
      if (auto ok = rendezvous_.put(gather_.key(self_), {}); !ok) return ok.error();
    } else if (waited > config_.timeout / 2) {
      // Half, so that the rank that knows the culprit speaks before those that wait for this one.
      return silent(*(sent ? receiver_.silent_sender() : sender_.silent_target()), waited);
    }
  }
  if (own_part_done() && gather_.poll(rendezvous_)) {
    if (train_ + 1 < trains()) {
      begin_train(train_ + 1, now);
      return false;
    }
    if (median_of(report_.transmit) == 0 || median_of(report_.receive) == 0) {
      return fail("rank " + std::to_string(self_) + ": the frames of most trains did not arrive; " +
                  "check that the network passes full frames between the ranks, or state the " +
                  "rates with --links");
    }
    if (auto ok = put("rate", serialize(report_)); !ok) return ok.error();
    enter(Stage::rates, "rate", everyone_, now);
    return false;
  }
  if (own_part_done() && waited > config_.timeout) return silent(gather_.missing(), waited);
  return false;
}

void ProbeMachine::finish_train(TimePoint now) {
  own_done_ = true;
  if (train_ % trains_per_step() == 0) return;  // Warm-up.
  const ProbeStep& step = pattern();
  if (step.measures_transmit && step.sends(self_)) {
    report_.transmit.push_back(
        rate_or_less(sender_.delivered_rate(), sender_.delivered_bytes(), now));
  }
  if (step.measures_receive && step.receives(self_)) {
    report_.receive.push_back(
        rate_or_less(receiver_.arrival_rate(), receiver_.arrived_bytes(), now));
  }
}

Kbps ProbeMachine::rate_or_less(Kbps rate, std::uint64_t bytes, TimePoint now) const noexcept {
  // On a machine that is busy with other things a whole train may look like one instant. The time
  // of the whole step then gives a rate that is too low, but no failure.
  if (rate > 0 || bytes == 0) return rate;
  return rate_of(bytes, std::max<Duration>(now - stage_since_, std::chrono::microseconds(1)));
}

Result<bool> ProbeMachine::advance_rates(TimePoint now) {
  if (!gather_.poll(rendezvous_)) {
    if (now - stage_since_ > config_.timeout) return silent(gather_.missing(), now - stage_since_);
    return false;
  }
  auto reports = parse_reports(gather_.values());
  if (!reports) return fail(reports.error().message);
  Kbps slowest = ~Kbps{0};
  for (const RankReport& report : *reports) {
    slowest = std::min({slowest, median_of(report.transmit), median_of(report.receive)});
  }
  const PingPlan plan =
      plan_pings(config_.pings, config_.ping_time, world_, slowest, io_->control_wire_bytes(1));
  report_.pings_per_peer = plan.per_peer;
  pinger_.start(plan, now);
  enter(Stage::ping, "pinged", everyone_, now);
  return false;
}

Result<bool> ProbeMachine::advance_ping(TimePoint now) {
  if (!pinger_.finished(now)) {
    if (now - stage_since_ < config_.timeout) return false;
    return fail("rank " + std::to_string(self_) + ": its transport takes no more pings");
  }
  if (auto ok = put("pinged", {}); !ok) return ok.error();
  enter(Stage::pinged, "pinged", everyone_, now);
  return false;
}

Result<bool> ProbeMachine::advance_results(TimePoint now) {
  if (!gather_.poll(rendezvous_)) {
    if (now - stage_since_ > config_.timeout) return silent(gather_.missing(), now - stage_since_);
    return false;
  }
  auto reports = parse_reports(gather_.values());
  if (!reports) return fail(reports.error().message);
  estimates_ = estimates_of(*reports, now);
  stage_ = Stage::drain;
  stage_since_ = now;
  return false;
}

std::string ProbeMachine::stage_text() const {
  switch (stage_) {
    case Stage::start:
    case Stage::ready:
      return "the start of the probe";
    case Stage::train:
      return "the probe, " + pattern().what;
    default:
      return "the probe, latency and loss";
  }
}

Error ProbeMachine::fail(const std::string& text) {
  failure_ = failed("probe: " + text);
  // Whoever still reaches the store learns the cause instead of running into a deadline of its own.
  static_cast<void>(
      rendezvous_.create(stem("failed"), std::as_bytes(std::span(failure_->message))));
  return *failure_;
}

Error ProbeMachine::silent(Rank rank, Duration after) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(after).count();
  return fail("rank " + std::to_string(rank) + " gave no sign for " + std::to_string(ms) +
              " ms in " + stage_text() +
              "; check that it runs and that the network passes its frames");
}

Result<void> check(const ProbeConfig& config, std::size_t peers, const Rendezvous& rendezvous) {
  const std::string world = std::to_string(rendezvous.world());
  if (config.host_of_rank.size() != rendezvous.world()) {
    return bad_input("probe: host_of_rank has " + std::to_string(config.host_of_rank.size()) +
                     " entries, but the job has " + world + " ranks");
  }
  if (peers != rendezvous.world()) {
    return bad_input("probe: " + std::to_string(peers) + " endpoints for " + world + " ranks");
  }
  if (config.repeats == 0 || config.repeats > 1000) {
    return bad_input("probe: repeats is " + std::to_string(config.repeats) +
                     ", allowed is 1 to 1000");
  }
  const bool times = config.train_time > Duration::zero() &&
                     config.train_time_max >= config.train_time &&
                     config.ping_time > Duration::zero() && config.timeout > Duration::zero();
  if (!times || config.train_bytes_max == 0) {
    return bad_input("probe: times and train_bytes_max must be above 0, train_time_max at least " +
                     std::string("train_time"));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Probe>> Probe::create(Transport& transport, Rendezvous& rendezvous,
                                             std::span<const EndpointId> peers,
                                             ProbeConfig config) {
  if (auto ok = check(config, peers.size(), rendezvous); !ok) return ok.error();
  auto io = ProbeIo::create(transport, {peers.begin(), peers.end()}, rendezvous.rank(), config.job);
  if (!io) return std::move(io).error();
  return std::unique_ptr<Probe>(
      std::make_unique<ProbeMachine>(std::move(io).value(), rendezvous, std::move(config)));
}

Result<std::vector<LinkEstimate>> run_probe(Probe& probe, Transport& transport,
                                            const Clock& clock) {
  while (true) {
    const auto done = probe.step(clock.now());
    if (!done) return done.error();
    if (*done) return probe.estimates();
    const Duration idle = probe.next_wakeup() - clock.now();
    if (idle > Duration::zero()) transport.wait(idle);
  }
}

}  // namespace selmcast
