#include "multicast/send_session.h"

#include <algorithm>
#include <array>

#include "base/wire.h"
#include "multicast/digest.h"

namespace selmcast {

namespace {
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kTailFirst = milliseconds(2);
constexpr Duration kTailMax = milliseconds(50);
// A sender that was not scheduled may catch up by this much; more would burst into shaped queues.
constexpr Duration kCatchUp = milliseconds(4);
// While fresh data flows, repairs take at most one part in this many of the rate.
constexpr int kRepairShare = 4;
constexpr std::size_t kNackRangesMax = kControlPayloadMax / kNackRangeBytes;

bool settled(ReceiverState s) noexcept {
  return s != ReceiverState::waiting && s != ReceiverState::active;
}
}  // namespace

SendSession::SendSession(FramePort& port, const SendSettings& settings)
    : port_(port),
      settings_(settings),
      shape_(settings.shape),
      checks_(port.medium_checks() ? 0 : settings.shape.frames()),
      peers_(port.world()),
      own_deadlines_(PeerDeadlines::of_receivers(settings.deadlines == nullptr ? port.world() : 0,
                                                 settings.timeout)),
      deadlines_(settings.deadlines == nullptr ? &own_deadlines_ : settings.deadlines),
      lanes_(settings.lanes_max) {
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    auto& lane = lanes_[l];
    lane.next_send = settings.pace != nullptr ? &(*settings.pace)[l] : &lane.own_next_send;
    lane.repairs.resize(settings.shape.frames(), port.world());  // set-up:
  }
}

void SendSession::begin(TimePoint now, std::uint32_t epoch, std::uint32_t round,
                        std::uint64_t bytes, std::span<const RoundData> data,
                        std::span<const LaneSpec> lanes, Kbps wire_kbps, bool last) noexcept {
  SELMCAST_CHECK(bytes <= settings_.shape.bytes, "a round of at most the stream");
  shape_.bytes = bytes;
  flags_ = last ? frame_flag::kFinal : std::uint16_t{0};
  begun_ = true;
  epoch_ = epoch;
  round_ = round;
  wire_kbps_ = std::max<Kbps>(wire_kbps, 1);
  unsettled_ = 0;
  lane_count_ = lanes.size();
  for (Rank rank = 0; rank < peers_.size(); ++rank) {
    if (!settled(peers_[rank].state)) deadlines_->release(rank);
    peers_[rank].state = ReceiverState::none;
  }
  for (std::size_t l = 0; l < lanes.size(); ++l) {
    auto& lane = lanes_[l];
    lane.spec = &lanes[l];
    lane.range = shape_.range_of(lane.spec->shard);
    lane.data = data[lane.spec->data];
    lane.ready = lane.spec->waits ? lane.range.first : lane.range.end;
    lane.digest_lane = 0;
    while (lanes_[lane.digest_lane].range != lane.range ||
           lanes_[lane.digest_lane].data.bytes != lane.data.bytes) {
      ++lane.digest_lane;
    }
    lane.digest = 0;
    lane.next_frame = lane.digest_end = lane.range.first;
    lane.live = 0;
    // What the round before posted last may still be on its way at the planned rate.
    *lane.next_send = std::max(*lane.next_send, now);
    lane.next_repair = now;
    lane.repairs.clear();
    for (const Rank rank : lanes[l].receivers) {
      if (!expect(rank, now)) continue;
      auto& peer = peers_[rank];
      peer.lane = static_cast<std::uint32_t>(l);
      if (peer.credit_round != round) {
        peer.credit_round = round;
        peer.credit_bytes = 0;
      }
      if (peer.credit_bytes > 0) activate(rank);
      peer.first_missing = 0;
      peer.final_tail_sent = false;
      peer.tail_interval = kTailFirst;
      peer.next_tail = settings_.invites ? now : now + kTailMax;
      ++lane.live;
      ++unsettled_;
    }
  }
  if (unsettled_ > 0 && port_.readable()) {
    port_.set_tag(settings_.stream, round_tag(epoch, round));
  }
  next_timer_ = now;
}

bool SendSession::expect(Rank rank, TimePoint now) noexcept {
  auto& peer = peers_[rank];
  if (peer.dropped) {
    peer.state = ReceiverState::lost;
  } else if (deadlines_->given_up(rank, epoch_, round_)) {
    // By another stream of this round: it is not waited for once more.
    peer.state = ReceiverState::evicted;
    send_evict(rank, epoch_, round_);
  } else {
    peer.state = ReceiverState::waiting;
    deadlines_->wait_for(rank, now);
  }
  return peer.state == ReceiverState::waiting;
}

void SendSession::activate(Rank rank) noexcept {
  auto& peer = peers_[rank];
  const bool first = peer.state == ReceiverState::waiting;
  peer.state = ReceiverState::active;
  if (!first || !readable(lanes_[peer.lane])) return;
  // So that gaps can be read before the tail comes. Lost or unsent, the tail says it again.
  const FrameHeader header{.kind = FrameKind::tail,
                           .stream = settings_.stream,
                           .epoch = epoch_,
                           .round = round_,
                           .flags = frame_flag::kWhere};
  std::array<std::byte, kTailPayloadMax> payload;
  port_.send_control(rank, header, {payload.data(), tail_payload(lanes_[peer.lane], 0, payload)});
}

std::size_t SendSession::tail_payload(const Lane& lane, std::uint64_t digest,
                                      std::span<std::byte, kTailPayloadMax> out) const noexcept {
  store_le(out.data(), digest);
  if (!readable(lane)) return 8;
  encode_location(port_.location(settings_.stream, lane.data.region, lane.data.bytes),
                  out.subspan<8, kLocationBytes>());
  return kTailPayloadMax;
}

void SendSession::drop(Rank rank) noexcept {
  auto& peer = peers_[rank];
  peer.dropped = true;
  port_.disconnect(rank);
  settle(rank, ReceiverState::lost);
}

void SendSession::send_evict(Rank rank, std::uint32_t epoch, std::uint32_t round) noexcept {
  port_.send_control(
      rank,
      FrameHeader{
          .kind = FrameKind::evict, .stream = settings_.stream, .epoch = epoch, .round = round},
      {});
}

void SendSession::cut(Rank rank) noexcept {
  if (settled(peers_[rank].state)) return;
  send_evict(rank, epoch_, round_);
  settle(rank, ReceiverState::cut);
  wake_at(TimePoint());
}

void SendSession::set_rate(Kbps wire_kbps, TimePoint now) noexcept {
  const Kbps rate = std::max<Kbps>(wire_kbps, 1);
  const double stretch = static_cast<double>(wire_kbps_) / static_cast<double>(rate);
  for (std::size_t l = 0; l < lane_count_; ++l) {
    TimePoint& next = *lanes_[l].next_send;
    if (next <= now) continue;
    next = now + std::chrono::duration_cast<Duration>(stretch * (next - now));
  }
  wire_kbps_ = rate;
  wake_at(now);
}

void SendSession::set_ready(std::size_t lane, std::uint32_t end) noexcept {
  if (end <= lanes_[lane].ready) return;
  lanes_[lane].ready = std::min(end, lanes_[lane].range.end);
  wake_at(TimePoint());
}

void SendSession::abandon(std::size_t lane) noexcept {
  for (const Rank rank : lanes_[lane].spec->receivers) cut(rank);
}

void SendSession::settle(Rank rank, ReceiverState state) noexcept {
  auto& peer = peers_[rank];
  if (settled(peer.state)) return;
  peer.state = state;
  deadlines_->release(rank);
  --lanes_[peer.lane].live;
  --unsettled_;
  // One that gave up has said that it reads nothing more; one that was cut out is sent copies.
  if (state == ReceiverState::evicted || state == ReceiverState::lost) port_.withdraw(rank);
  // The data may change from now on, and what is read of it is no round's.
  if (unsettled_ == 0 && port_.readable()) port_.set_tag(settings_.stream, 0);
}

void SendSession::on_credit(const FrameHeader& header, TimePoint now) noexcept {
  auto& peer = peers_[header.sender];
  if (settings_.invites && begun_ && header.round <= round_) {
    // Of a round that went on without the receiver, or is over: its EVICT was lost.
    const bool over = header.round < round_ || peer.state == ReceiverState::cut;
    if (over) return send_evict(header.sender, header.epoch, header.round);
  }
  const bool ahead = !begun_ || header.round > round_;
  const bool news = header.round > peer.credit_round ||
                    (header.round == peer.credit_round && header.offset > peer.credit_bytes);
  if (ahead || !news) {
    // The receiver waits and asks: it must not take this rank for dead.
    port_.send_control(header.sender,
                       FrameHeader{.kind = FrameKind::alive,
                                   .stream = settings_.stream,
                                   .epoch = header.epoch,
                                   .round = header.round},
                       {});
  }
  if (!news) return;
  // Credit that comes before begin() is kept until its round.
  peer.credit_round = header.round;
  peer.credit_bytes = header.offset;
  if (header.round != round_ || settled(peer.state)) return;
  activate(header.sender);
  deadlines_->progressed(header.sender, now);
  peer.tail_interval = kTailFirst;
  peer.next_tail = now + kTailFirst;
  wake_at(now);
}

void SendSession::on_nack(Rank rank, std::span<const std::byte> payload, TimePoint now) noexcept {
  auto& peer = peers_[rank];
  auto& lane = lanes_[peer.lane];
  std::array<NackRange, kNackRangesMax> ranges;
  const int count = parse_nack(payload, shape_.frames(), ranges);
  for (int i = 0; i < count; ++i) {
    auto range = ranges[static_cast<std::size_t>(i)];
    if (range.first >= lane.next_frame) continue;  // Not sent yet: it will come by itself.
    range.count = std::min(range.count, lane.next_frame - range.first);
    if (range.first < lane.range.first) continue;  // Never was of this lane: a broken receiver.
    lane.repairs.request(rank, range);
  }
  if (count > 0 && ranges[0].first > peer.first_missing) {
    peer.first_missing = ranges[0].first;
    deadlines_->progressed(rank, now);
  }
  peer.next_tail = now + peer.tail_interval;
  wake_at(now);
}

void SendSession::on_control(const FrameHeader& header, std::span<const std::byte> payload,
                             TimePoint now) noexcept {
  if (header.kind == FrameKind::credit) return on_credit(header, now);
  const bool current = header.epoch == epoch_ && header.round == round_;
  const ReceiverState from = peers_[header.sender].state;
  if (current && from == ReceiverState::cut && header.kind == FrameKind::nack) {
    return send_evict(header.sender, epoch_, round_);
  }
  if (!current || settled(from)) return;
  if (header.kind == FrameKind::ack) {
    const bool gave_up = (header.flags & frame_flag::kGaveUp) != 0;
    if (!gave_up) deadlines_->progressed(header.sender, now);
    settle(header.sender, gave_up ? ReceiverState::gave_up : ReceiverState::acked);
    wake_at(now);
  } else if (header.kind == FrameKind::nack) {
    on_nack(header.sender, payload, now);
  }
}

Duration SendSession::wire_time(std::uint32_t first, std::uint32_t count) const noexcept {
  const auto& shape = shape_;
  const std::uint64_t payload =
      std::min(shape.offset_of(first + count), shape.bytes) - shape.offset_of(first);
  const std::uint64_t around = kFrameHeaderBytes + settings_.wire_overhead_bytes;
  return transmission_time(payload + count * around, wire_kbps_);
}

std::uint32_t SendSession::credit_of(const Peer& peer) const noexcept {
  return std::min(shape_.frame_at(peer.credit_bytes), shape_.frames());
}

std::uint32_t SendSession::credit_of(const Lane& lane) const noexcept {
  std::uint32_t credit = lane.ready;
  for (const Rank rank : lane.spec->receivers) {
    const auto& peer = peers_[rank];
    if (!settled(peer.state)) credit = std::min(credit, credit_of(peer));
  }
  return credit;
}

void SendSession::extend_digest(Lane& lane, std::uint32_t end) noexcept {
  for (; lane.digest_end < end; ++lane.digest_end) {
    const std::uint32_t frame = lane.digest_end;
    FrameHeader header{.offset = shape_.offset_of(frame),
                       .length = static_cast<std::uint16_t>(shape_.length_of(frame))};
    if (!checks_.empty()) {
      header.check = checks_[frame] =
          payload_check({lane.data.bytes + header.offset, header.length});
    }
    lane.digest += frame_digest(header);
  }
}

FrameRun SendSession::run_of(const Lane& lane, std::uint16_t flags, std::uint32_t first,
                             std::uint32_t count) const noexcept {
  return {.epoch = epoch_,
          .round = round_,
          .stream = settings_.stream,
          .flags = static_cast<std::uint16_t>(flags_ | flags),
          .first = first,
          .count = count,
          .data = lane.data.bytes,
          .region = lane.data.region,
          .weights = lane.data.weights,
          .checks = checks_.empty() ? nullptr : checks_.data()};
}

std::uint32_t SendSession::send_fresh(Lane& lane, TimePoint now) noexcept {
  const auto& shape = shape_;
  if (lane.live == 0 || lane.next_frame >= lane.range.end) return 0;
  const std::uint32_t credit = credit_of(lane);
  std::uint32_t sent = 0;
  while (lane.next_frame < credit && *lane.next_send <= now) {
    const std::uint32_t count = std::min(shape.chunk_frames, credit - lane.next_frame);
    if (!port_.data_slot_free()) return sent;
    // First, since the frames carry what it finds; once for all lanes of this range.
    extend_digest(lanes_[lane.digest_lane], lane.next_frame + count);
    const auto flags = lane.spec->patch ? frame_flag::kPatch : std::uint16_t{0};
    // Cannot be refused, with a slot free.
    static_cast<void>(port_.send_frames(lane.spec->destination, shape,
                                        run_of(lane, flags, lane.next_frame, count)));
    *lane.next_send = std::max(*lane.next_send, now - kCatchUp) + wire_time(lane.next_frame, count);
    lane.next_frame += count;
    sent += count;
  }
  if (lane.next_frame < credit) wake_at(*lane.next_send);
  return sent;
}

std::uint32_t SendSession::send_repairs(Lane& lane, TimePoint now) noexcept {
  const bool fresh_left = lane.next_frame < lane.range.end;
  std::uint32_t sent = 0;
  while (!lane.repairs.empty() && lane.next_repair <= now && port_.data_slot_free()) {
    const auto run = lane.repairs.take(settings_.shape.chunk_frames);
    if (!run) break;
    if (!run->several && settled(peers_[run->receiver].state)) continue;
    const Destination to = run->several ? lane.spec->destination : port_.destination(run->receiver);
    // Cannot be refused: a slot is free, and nothing else lets it say no.
    static_cast<void>(
        port_.send_frames(to, shape_, run_of(lane, frame_flag::kRepair, run->first, run->count)));
    const int share = fresh_left ? kRepairShare : 1;
    lane.next_repair =
        std::max(lane.next_repair, now - kCatchUp) + wire_time(run->first, run->count) * share;
    sent += run->count;
  }
  if (!lane.repairs.empty()) wake_at(std::max(lane.next_repair, now + microseconds(50)));
  return sent;
}

void SendSession::send_tail(Rank rank, Peer& peer, const Lane& lane, TimePoint now) noexcept {
  const bool final = lane.next_frame == lane.range.end;
  const FrameHeader header{.kind = FrameKind::tail,
                           .stream = settings_.stream,
                           .epoch = epoch_,
                           .round = round_,
                           .offset = std::min(shape_.offset_of(lane.next_frame), shape_.bytes),
                           .flags = final ? frame_flag::kFinal : std::uint16_t{0}};
  std::array<std::byte, kTailPayloadMax> payload;
  const std::uint64_t digest = final ? lanes_[lane.digest_lane].digest : 0;
  const std::size_t bytes = tail_payload(lane, digest, payload);
  if (!port_.send_control(rank, header, {payload.data(), bytes})) {
    wake_at(now + microseconds(100));
    return;
  }
  peer.final_tail_sent = final;
  peer.next_tail = now + peer.tail_interval;
  peer.tail_interval = std::min(peer.tail_interval * 2, kTailMax);
}

void SendSession::send_tails(TimePoint now) noexcept {
  for (std::size_t l = 0; l < lane_count_; ++l) {
    const Lane& lane = lanes_[l];
    if (lane.live == 0) continue;
    const bool finished = lane.next_frame == lane.range.end;
    for (const Rank rank : lane.spec->receivers) {
      auto& peer = peers_[rank];
      if (settled(peer.state)) continue;
      const bool stalled = !finished && lane.next_frame >= credit_of(peer);
      if (finished && !peer.final_tail_sent) {
        deadlines_->progressed(rank, now);
        peer.next_tail = now;
      } else if (!finished && !stalled) {
        // The lane waits for its pace or for another receiver, not for this one.
        deadlines_->progressed(rank, now);
        peer.next_tail = std::max(peer.next_tail, now + kTailFirst);
        continue;
      }
      if (peer.next_tail <= now) send_tail(rank, peer, lane, now);
      wake_at(peer.next_tail);
    }
  }
}

void SendSession::check_deadlines(TimePoint now) noexcept {
  for (std::size_t l = 0; l < lane_count_; ++l) {
    for (const Rank rank : lanes_[l].spec->receivers) {
      if (settled(peers_[rank].state)) continue;
      const TimePoint expires = deadlines_->expires(rank);
      if (expires <= now) {
        const bool silent = deadlines_->silent(rank, now);
        deadlines_->give_up(rank, epoch_, round_);
        send_evict(rank, epoch_, round_);
        settle(rank, ReceiverState::evicted);
        if (silent) port_.disconnect(rank);
      } else {
        wake_at(expires);
      }
    }
  }
}

std::uint32_t SendSession::progress(TimePoint now) noexcept {
  if (unsettled_ == 0) {
    next_timer_ = kNever;
    return 0;
  }
  next_timer_ = kNever;
  std::uint32_t sent = 0;
  for (std::size_t l = 0; l < lane_count_; ++l) {
    sent += send_fresh(lanes_[l], now);
    sent += send_repairs(lanes_[l], now);
  }
  send_tails(now);
  check_deadlines(now);
  return sent;
}

}  // namespace selmcast
