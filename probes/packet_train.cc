#include "probes/packet_train.h"

#include <algorithm>

namespace selmcast {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kWindowStart = 4;
constexpr std::uint32_t kNobody = ~std::uint32_t{0};
/// A window grows while round trips take less than this more than the shortest one.
constexpr Duration kQueueingMost = milliseconds(10);
constexpr double kMuchFaster = 1.25;
/// More than one frame in this many lost within a round trip: the window is too large.
constexpr std::uint32_t kLossy = 10;
/// Frames that are not accounted for after so long without any sign are taken for lost.
constexpr Duration kStall = milliseconds(30);
constexpr Duration kFinSpacing = milliseconds(5);
constexpr Duration kFinSpacingMost = milliseconds(100);
constexpr std::uint32_t kAckEvery = 16;
constexpr Duration kAckDelay = milliseconds(1);

std::uint64_t stamp_of(TimePoint at) noexcept {
  return static_cast<std::uint64_t>(at.time_since_epoch().count());
}

}  // namespace

TrainSender::TrainSender(std::uint32_t world) : target_of_rank_(world, kNobody) {
  targets_.reserve(world);
}

void TrainSender::start(std::uint32_t train, std::span<const Rank> targets, Rank self,
                        std::uint32_t window_max, const TrainLimits& limits, TimePoint now) {
  std::vector<Target> before;
  before.swap(targets_);
  targets_.reserve(before.capacity());
  std::fill(target_of_rank_.begin(), target_of_rank_.end(), kNobody);
  curve_.clear();
  train_ = train;
  limits_ = limits;
  window_max_ = std::max(window_max, 2U);
  sent_ = delivered_ = delivered_bytes_ = 0;
  started_ = stopped_at_ = now;
  for (const Rank rank : targets) {
    if (rank == self) continue;
    target_of_rank_[rank] = static_cast<std::uint32_t>(targets_.size());
    Target target;
    target.rank = rank;
    target.window = std::min(kWindowStart, window_max_);
    target.last_progress = target.round_since = now;
    targets_.push_back(target);
  }
  const auto same_rank = [](const Target& a, const Target& b) { return a.rank == b.rank; };
  if (std::equal(before.begin(), before.end(), targets_.begin(), targets_.end(), same_rank)) {
    for (std::size_t t = 0; t < targets_.size(); ++t) targets_[t].window = before[t].window;
  }
  // Senders begin with different targets, or the first of them would hear all at once.
  turn_ = targets_.empty() ? 0 : self % targets_.size();
  unconfirmed_ = targets_.size();
  stopped_ = targets_.empty();
}

bool TrainSender::send_some(ProbeIo& io, Target& target, TimePoint now) noexcept {
  const std::uint32_t under_way = target.sent - target.passed;
  const std::uint32_t frames = std::clamp(target.window / 16, 1U, io.request_frames_max());
  if (under_way + frames > target.window) return false;
  const ProbePacket packet{
      .kind = ProbeKind::data, .train = train_, .sequence = target.sent, .stamp = stamp_of(now)};
  if (!io.send_data(target.rank, packet, frames)) return false;
  if (under_way == 0) target.last_progress = now;
  target.sent += frames;
  sent_ += frames;
  return true;
}

void TrainSender::take_stock(ProbeIo& io, TimePoint now) noexcept {
  const Duration elapsed = now - started_;
  const bool enough = elapsed >= limits_.time && delivered_ >= limits_.frames_min;
  stopped_ = enough || elapsed >= limits_.time_max || io.wire_bytes(sent_) >= limits_.bytes_max;
  stopped_at_ = now;
  for (Target& target : targets_) {
    const Duration patience =
        target.round_trip_min == Duration::max() ? kStall : kStall + 4 * target.round_trip_min;
    if (target.sent > target.passed && now - target.last_progress > patience) {
      target.passed = target.sent;
      target.last_progress = now;
    }
  }
}

void TrainSender::send_fins(ProbeIo& io, TimePoint now) noexcept {
  for (Target& target : targets_) {
    if (target.confirmed || now < target.next_fin) continue;
    const ProbePacket fin{.kind = ProbeKind::fin, .train = train_, .sequence = target.sent};
    if (!io.send_control(target.rank, fin)) return;
    target.fin_spacing = std::clamp(2 * target.fin_spacing, kFinSpacing, kFinSpacingMost);
    target.next_fin = now + target.fin_spacing;
  }
}

void TrainSender::step(ProbeIo& io, TimePoint now) noexcept {
  if (targets_.empty()) return;
  if (!stopped_) take_stock(io, now);
  if (stopped_) return send_fins(io, now);
  // One request per target and turn, until no target takes any more.
  std::size_t refused = 0;
  while (refused < targets_.size() && io.wire_bytes(sent_) < limits_.bytes_max) {
    refused = send_some(io, targets_[turn_], now) ? 0 : refused + 1;
    turn_ = (turn_ + 1) % targets_.size();
  }
}

void TrainSender::grow(Target& target, std::uint32_t newly, Duration round_trip,
                       TimePoint now) noexcept {
  const bool quick = round_trip < kQueueingMost + 2 * target.round_trip_min;
  if (quick || target.faster) target.window = std::min(window_max_, target.window + newly);
  if (target.passed < target.round_end) return;
  const double ms = std::chrono::duration<double, std::milli>(now - target.round_since).count();
  const double per_ms = ms > 0 ? (target.passed - target.round_begin) / ms : 0;
  target.faster = per_ms > kMuchFaster * target.best_per_ms;
  target.best_per_ms = std::max(target.best_per_ms, per_ms);
  const std::uint32_t passed = target.passed - target.round_begin;
  const std::uint32_t arrived = target.delivered - target.round_delivered;
  if (arrived < passed && passed - arrived > passed / kLossy) {
    target.window = std::max(std::min(kWindowStart, window_max_), target.window / 2);
    target.faster = false;
  }
  target.round_begin = target.passed;
  target.round_delivered = target.delivered;
  target.round_end = target.sent;
  target.round_since = now;
}

void TrainSender::on_ack(const ProbePacket& ack, const ProbeIo& io, TimePoint now) noexcept {
  if (ack.train != train_ || target_of_rank_[ack.sender] == kNobody) return;
  Target& target = targets_[target_of_rank_[ack.sender]];
  if (ack.sequence > target.sent || ack.count > target.sent) return;
  if (ack.count > target.delivered) {
    delivered_ += ack.count - target.delivered;
    target.delivered = ack.count;
    delivered_bytes_ = io.wire_bytes(delivered_);
    curve_.add(now, delivered_bytes_);
  }
  if (ack.sequence > target.passed) {
    const std::uint32_t newly = ack.sequence - target.passed;
    target.passed = ack.sequence;
    target.last_progress = now;
    const auto sent_at = TimePoint(Duration(static_cast<Duration::rep>(ack.stamp)));
    if (sent_at >= started_ && sent_at <= now) {
      const Duration round_trip = now - sent_at;
      target.round_trip_min = std::min(target.round_trip_min, round_trip);
      grow(target, newly, round_trip, now);
    }
  }
  if ((ack.flags & probe_flag::kFinSeen) != 0 && stopped_ && !target.confirmed) {
    target.confirmed = true;
    --unconfirmed_;
  }
}

std::optional<Rank> TrainSender::silent_target() const noexcept {
  const auto at =
      std::find_if(targets_.begin(), targets_.end(), [](const Target& t) { return !t.confirmed; });
  if (at == targets_.end()) return std::nullopt;
  return at->rank;
}

Kbps TrainSender::delivered_rate() const noexcept {
  return curve_.steady_rate(started_, stopped_at_).value_or(0);
}

TrainReceiver::TrainReceiver(std::uint32_t world) : sources_(world) {}

void TrainReceiver::start(std::uint32_t train, std::span<const Rank> senders, Rank self) {
  train_ = train;
  std::fill(sources_.begin(), sources_.end(), Source{});
  curve_.clear();
  first_ = {};
  first_arrival_ = last_arrival_ = {};
  arrived_bytes_ = 0;
  fins_missing_ = 0;
  for (const Rank rank : senders) {
    if (rank == self) continue;
    sources_[rank].expected = true;
    ++fins_missing_;
  }
}

/// On the own clock as if the first stamped one had been seen at once: of the device's clock only
/// differences are used. Completions of several queues may overtake one another; time does not.
TimePoint TrainReceiver::time_of(const Arrival& arrival) noexcept {
  if (arrival.device_ns == 0) return std::max(arrival.seen, last_arrival_);
  if (first_.device_ns == 0) first_ = arrival;
  const auto since = static_cast<Duration::rep>(arrival.device_ns - first_.device_ns);
  return std::max(first_.seen + Duration(since), last_arrival_);
}

void TrainReceiver::on_data(const ProbePacket& packet, const ProbeIo& io,
                            const Arrival& arrival) noexcept {
  Source& source = sources_[packet.sender];
  if (packet.train != train_ || !source.expected) return;
  const TimePoint at = time_of(arrival);
  if (arrived_bytes_ == 0) first_arrival_ = at;
  arrived_bytes_ += io.wire_bytes(1);
  last_arrival_ = source.last_arrival = at;
  curve_.add(at, arrived_bytes_);
  ++source.frames;
  if (packet.sequence >= source.highest) {
    source.highest = packet.sequence + 1;
    source.last_stamp = packet.stamp;
  }
  if (source.unacked++ == 0) source.unacked_since = arrival.seen;
  source.ack_now = source.ack_now || (packet.flags & probe_flag::kAckNow) != 0;
}

void TrainReceiver::on_fin(const ProbePacket& packet) noexcept {
  Source& source = sources_[packet.sender];
  if (packet.train != train_ || !source.expected) return;
  if (!source.fin_seen) --fins_missing_;
  source.fin_seen = source.ack_now = true;
}

void TrainReceiver::step(ProbeIo& io, TimePoint now) noexcept {
  for (Rank rank = 0; rank < sources_.size(); ++rank) {
    Source& source = sources_[rank];
    const bool due = source.ack_now || source.unacked >= kAckEvery ||
                     (source.unacked > 0 && now - source.unacked_since >= kAckDelay);
    if (!due) continue;
    const std::uint16_t flags = source.fin_seen ? probe_flag::kFinSeen : std::uint16_t{0};
    const ProbePacket ack{.kind = ProbeKind::ack,
                          .train = train_,
                          .sequence = source.highest,
                          .count = std::min(source.frames, source.highest),
                          .stamp = source.last_stamp,
                          .flags = flags};
    if (!io.send_control(rank, ack)) return;
    source.ack_now = false;
    source.unacked = 0;
  }
}

std::optional<Rank> TrainReceiver::silent_sender() const noexcept {
  const auto at = std::find_if(sources_.begin(), sources_.end(),
                               [](const Source& s) { return s.expected && !s.fin_seen; });
  if (at == sources_.end()) return std::nullopt;
  return static_cast<Rank>(at - sources_.begin());
}

Kbps TrainReceiver::arrival_rate() const noexcept {
  if (arrived_bytes_ == 0) return 0;
  TimePoint end = last_arrival_;
  for (const Source& source : sources_) {
    if (source.frames > 0) end = std::min(end, source.last_arrival);
  }
  // One sender that broke off early must not leave too short a time to judge by.
  if (end - first_arrival_ < (last_arrival_ - first_arrival_) / 3) end = last_arrival_;
  return curve_.steady_rate(first_arrival_, end).value_or(0);
}

}  // namespace selmcast
