#include "probes/ping.h"

#include <algorithm>

#include "probes/arrival_curve.h"

namespace selmcast {
namespace {

constexpr Duration kExtraTime = std::chrono::milliseconds(300);
constexpr Duration kDrain = std::chrono::milliseconds(20);
constexpr std::size_t kAnswersMax = 1024;
constexpr int kBurstMost = 4;

}  // namespace

PingPlan plan_pings(std::uint32_t pings, Duration time, std::uint32_t world, Kbps slowest,
                    std::uint64_t wire_bytes) {
  const std::uint32_t peers = std::max(world, 2U) - 1;
  const std::uint64_t wanted = std::max(1U, pings / peers);
  const Duration gentle(
      static_cast<Duration::rep>(wire_bytes * 8'000'000 * 10 / std::max<Kbps>(slowest, 1)));
  const Duration even = time / static_cast<Duration::rep>(wanted * peers);
  const Duration spacing = std::max({gentle, even, Duration(1)});
  const auto fit = static_cast<std::uint64_t>((time + kExtraTime) / (spacing * peers));
  return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fit, 1, wanted)), spacing};
}

Pinger::Pinger(std::uint32_t world, Rank self) : arrived_(world), self_(self) {
  answers_.reserve(kAnswersMax);
}

void Pinger::start(const PingPlan& plan, TimePoint now) {
  plan_ = plan;
  total_ = plan.per_peer * static_cast<std::uint32_t>(arrived_.size() - 1);
  round_trips_.reserve(total_);
  started_ = true;
  // Ranks begin spread over one spacing.
  started_at_ = last_sent_ =
      now + plan.spacing * self_ / static_cast<Duration::rep>(arrived_.size());
}

void Pinger::step(ProbeIo& io, TimePoint now) noexcept {
  while (!answers_.empty()) {
    const Answer& answer = answers_.back();
    if (!io.send_control(answer.to, {.kind = ProbeKind::pong, .stamp = answer.stamp})) return;
    answers_.pop_back();
  }
  if (!started_) return;
  for (int burst = 0; burst < kBurstMost && sent_ < total_ && next_due() <= now; ++burst) {
    const auto world = static_cast<std::uint32_t>(arrived_.size());
    const Rank to = (self_ + 1 + sent_ % (world - 1)) % world;
    const auto stamp = static_cast<std::uint64_t>(now.time_since_epoch().count());
    if (!io.send_control(to, {.kind = ProbeKind::ping, .sequence = sent_, .stamp = stamp})) return;
    ++sent_;
    last_sent_ = now;
  }
}

void Pinger::on_ping(const ProbePacket& ping) noexcept {
  ++arrived_[ping.sender];
  if (answers_.size() < kAnswersMax) answers_.push_back({ping.sender, ping.stamp});
}

void Pinger::on_pong(const ProbePacket& pong, TimePoint now) noexcept {
  const auto sent_at = TimePoint(Duration(static_cast<Duration::rep>(pong.stamp)));
  if (!started_ || sent_at < started_at_ || sent_at > now || round_trips_.size() >= total_) return;
  longest_ = std::max(longest_, now - sent_at);
  round_trips_.push_back(static_cast<std::uint64_t>((now - sent_at).count()));
}

bool Pinger::finished(TimePoint now) const noexcept {
  return started_ && sent_ == total_ && now >= last_sent_ + std::max(kDrain, 2 * longest_);
}

TimePoint Pinger::next_due() const noexcept {
  return started_ && sent_ < total_ ? started_at_ + plan_.spacing * sent_ : kNever;
}

Duration Pinger::latency() const {
  if (round_trips_.empty()) return Duration::zero();
  return Duration(static_cast<Duration::rep>(median_of(round_trips_) / 2));
}

}  // namespace selmcast
