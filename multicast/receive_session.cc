#include "multicast/receive_session.h"

#include <algorithm>

#include "base/check.h"
#include "base/wire.h"
#include "multicast/digest.h"
#include "multicast/read_repair.h"

namespace selmcast {

namespace {
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kBackoff = microseconds(300);  // At least; twice that at most.
constexpr Duration kPatienceFirst = milliseconds(10);
constexpr Duration kPatienceMax = milliseconds(200);
// Credit is repeated after so long a silence: it may have been lost, and the answer shows life.
constexpr Duration kCreditRepeat = milliseconds(20);
// Reads that bring nothing so often in a row are given up for the round: NACKs take over.
constexpr std::uint32_t kReadsInVain = 6;
// As long as whoever waits for a sender that stalls takes to give it up (peer_deadlines.h): until
// then nobody behind the two is to blame.
constexpr int kRelayPatience = 3;
constexpr std::size_t kRangesMax = kControlPayloadMax / kNackRangeBytes;
}  // namespace

ReceiveSession::ReceiveSession(FramePort& port, const ReceiveSettings& settings)
    : port_(port),
      settings_(settings),
      shape_(settings.shape),
      epoch_(settings.epoch),
      credit_repeat_(settings.free_running ? std::max(kCreditRepeat, settings.timeout / 16)
                                           : kCreditRepeat),
      sources_(settings.senders_max),
      source_index_(port.world(), kNoSource),
      own_deadlines_(PeerDeadlines::of_senders(settings.deadlines == nullptr ? port.world() : 0,
                                               settings.timeout)),
      deadlines_(settings.deadlines == nullptr ? &own_deadlines_ : settings.deadlines),
      dropped_ranks_(port.world(), 0),
      gave_up_round_(port.world(), 0),
      backoff_(mix_seed(settings.seed ^ port.self())),
      loss_(mix_seed(settings.seed ^ (std::uint64_t{port.self()} << 32U) ^ 0x1055)) {
  for (auto& source : sources_) source.bitmap.resize(settings.shape.frames());  // set-up:
  if (settings.free_running) {
    begun_ = true;
    set_window(settings.concurrent);
  }
}

void ReceiveSession::set_window(std::size_t senders) noexcept {
  const std::uint64_t share =
      std::min<std::uint64_t>(settings_.window_bytes / std::max<std::size_t>(senders, 1),
                              settings_.sender_window_bytes) /
      (settings_.shape.frame_payload + kFrameHeaderBytes);
  window_frames_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, 2, 1U << 30U));
}

void ReceiveSession::begin(TimePoint now, std::uint32_t epoch, std::uint32_t round,
                           std::span<const Rank> senders, std::uint64_t bytes,
                           std::span<const Shard> shards) noexcept {
  SELMCAST_CHECK(bytes <= settings_.shape.bytes, "a round of at most the stream");
  shape_.bytes = bytes;
  epoch_ = epoch;
  round_ = round;
  begun_ = true;
  mismatch_.reset();
  for (const auto& source : std::span(sources_).first(source_count_)) {
    if (source.state == SenderState::hearing) deadlines_->release(source.rank);
  }
  std::fill(source_index_.begin(), source_index_.end(), kNoSource);
  source_count_ = senders.size();
  unsettled_ = matched_ = given_up_ = 0;
  set_window(sharing_ > 0 ? sharing_ : senders.size());
  next_timer_ = now;
  for (std::size_t s = 0; s < senders.size(); ++s) {
    source_index_[senders[s]] = static_cast<std::uint16_t>(s);
    start(sources_[s], senders[s], round, shards.empty() ? Shard() : shards[s], now);
  }
}

void ReceiveSession::share(std::uint32_t senders, bool relays, TimePoint now) noexcept {
  sharing_ = senders;
  relays_ = relays;
  patient_until_ = now + kRelayPatience * settings_.timeout;
}

std::uint32_t ReceiveSession::arrived(Rank sender) noexcept {
  Source* source = source_of(sender);
  return source == nullptr ? shape_.frames() : source->bitmap.first_gap();
}

std::uint32_t ReceiveSession::lacking(std::uint32_t frame) const noexcept {
  if (given_up_ == 0) return 0;
  std::uint32_t out = 0;
  for (std::size_t s = 0; s < source_count_; ++s) {
    const Source& source = sources_[s];
    const bool over = source.state != SenderState::hearing && source.state != SenderState::complete;
    const bool its = frame >= source.range.first && frame < source.range.end;
    out += over && its && !source.bitmap.contains(frame) ? 1 : 0;
  }
  return out;
}

void ReceiveSession::enough(Shard part) noexcept {
  for (std::size_t s = 0; s < source_count_; ++s) {
    Source& source = sources_[s];
    if (source.state != SenderState::hearing || source.range != shape_.range_of(part)) continue;
    source.state = SenderState::excused;
    deadlines_->release(source.rank);
    --unsettled_;
    send_ack(source.rank, epoch_, source.round, false);
  }
}

void ReceiveSession::open(TimePoint now, Rank sender, std::uint32_t round) noexcept {
  if (source_index_[sender] == kNoSource) {
    SELMCAST_CHECK(source_count_ < sources_.size(), "more senders than senders_max");
    source_index_[sender] = static_cast<std::uint16_t>(source_count_++);
  }
  auto& source = sources_[source_index_[sender]];
  SELMCAST_CHECK(source.state != SenderState::hearing, "the sender's last round is not settled");
  start(source, sender, round, {}, now);
  wake_at(now);
}

std::optional<std::uint32_t> ReceiveSession::opened(Rank sender) const noexcept {
  const std::uint16_t index = source_index_[sender];
  return index == kNoSource ? std::nullopt : std::optional(sources_[index].round);
}

void ReceiveSession::supersede(Rank sender) noexcept {
  if (Source* source = source_of(sender)) settle(*source, SenderState::evicted_us);
}

void ReceiveSession::start(Source& source, Rank rank, std::uint32_t round, Shard shard,
                           TimePoint now) noexcept {
  source.rank = rank;
  source.round = round;
  source.range = shape_.range_of(shard);
  source.bitmap.begin(source.range.first, source.range.end);
  source.digest = source.tail_digest = 0;
  source.tail_final = source.credit_due = false;
  source.location.reset();
  source.present_at_read = ~std::uint32_t{0};
  source.reads_in_vain = 0;
  source.tail_end = source.credit = source.nacked_end = source.range.first;
  source.nack_at = source.again_at = kNever;
  source.patience = kPatienceFirst;
  source.state = dropped_ranks_[rank] != 0 ? SenderState::lost : SenderState::hearing;
  if (source.state != SenderState::hearing) {
    gave_up_round_[rank] = round + 1;
    ++given_up_;
    return;
  }
  ++unsettled_;
  deadlines_->wait_for(rank, now);
  grant(source, now);
}

ReceiveSession::Source* ReceiveSession::source_of(Rank rank) noexcept {
  const std::uint16_t index = source_index_[rank];
  return index == kNoSource ? nullptr : &sources_[index];
}

SenderState ReceiveSession::state(Rank rank) const noexcept {
  const std::uint16_t index = source_index_[rank];
  return index == kNoSource ? SenderState::none : sources_[index].state;
}

void ReceiveSession::note_alive(Rank from, TimePoint now) noexcept {
  deadlines_->note_alive(from, now);
  Source* source = source_of(from);
  if (source == nullptr) return;
  source->next_credit = now + credit_repeat_;
  const bool waits =
      relays_ ? now < patient_until_ : settings_.free_running && !begun_by_sender(*source);
  if (waits) deadlines_->progressed(from, now);
}

void ReceiveSession::settle(Source& source, SenderState state) noexcept {
  if (source.state != SenderState::hearing) return;
  source.state = state;
  deadlines_->release(source.rank);
  --unsettled_;
  if (state == SenderState::complete) return;
  ++given_up_;
  gave_up_round_[source.rank] = source.round + 1;
}

void ReceiveSession::drop(Rank rank) noexcept {
  dropped_ranks_[rank] = 1;
  if (Source* source = source_of(rank)) settle(*source, SenderState::lost);
}

void ReceiveSession::grant(Source& source, TimePoint now) noexcept {
  const std::uint32_t frames = source.range.end;
  const std::uint32_t limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      frames, std::uint64_t{std::max(source.bitmap.horizon(), source.tail_end)} + window_frames_));
  const FrameHeader header{.kind = FrameKind::credit,
                           .stream = settings_.stream,
                           .epoch = epoch_,
                           .round = source.round,
                           .offset = std::min(shape_.offset_of(limit), shape_.bytes)};
  source.credit_due = !port_.send_control(source.rank, header, {});
  if (!source.credit_due) source.credit = limit;
  source.next_credit = now + credit_repeat_;
}

Verdict ReceiveSession::on_data(const FrameHeader& header, std::span<const std::byte> payload,
                                TimePoint now) noexcept {
  const auto& shape = shape_;
  Source* source = source_of(header.sender);
  if (!begun_ || header.epoch != epoch_ ||
      header.round != (source != nullptr ? source->round : round_)) {
    ++counters_.stale;
    return Verdict::stale;
  }
  if (source == nullptr) return Verdict::foreign;
  if (source->state != SenderState::hearing) {
    ++counters_.duplicates;
    return Verdict::duplicate;
  }
  if (header.stream != settings_.stream || header.offset >= shape.bytes ||
      header.offset % shape.frame_payload != 0 ||
      header.length != shape.length_of(shape.frame_at(header.offset))) {
    ++counters_.malformed;
    return Verdict::malformed;
  }
  const std::uint32_t frame = shape.frame_at(header.offset);
  if (frame < source->range.first || frame >= source->range.end) {
    ++counters_.malformed;
    return Verdict::malformed;
  }
  if (settings_.loss > 0 && loss_.chance(settings_.loss)) {
    ++counters_.dropped;
    return Verdict::dropped;
  }
  if (source->bitmap.contains(frame)) {
    ++counters_.duplicates;
    return Verdict::duplicate;
  }
  // Last, so that nothing is read in vain; and before the merge, which cannot be taken back.
  if (!port_.medium_checks() && payload_check(payload) != header.check) {
    ++counters_.corrupt;
    return Verdict::corrupt;
  }
  source->bitmap.insert(frame);
  counters_.payload_bytes += payload.size();
  source->digest += frame_digest(header);
  deadlines_->note_alive(source->rank, now);
  deadlines_->progressed(source->rank, now);
  if ((header.flags & frame_flag::kRead) != 0) ++counters_.read_frames;
  if ((header.flags & frame_flag::kRepair) != 0) {
    source->patience = kPatienceFirst;
    source->again_at = now + source->patience;
  }
  const std::uint32_t horizon = source->bitmap.horizon();
  if (!source->bitmap.whole_below(horizon)) notice_gaps(*source, now);
  if (source->credit < source->range.end && source->credit < horizon + window_frames_ / 2 + 1) {
    source->credit_due = true;
    wake_at(now);
  }
  if (source->bitmap.complete()) try_complete(*source);
  return Verdict::fresh;
}

std::uint32_t ReceiveSession::known_end(const Source& source) const noexcept {
  return std::max(source.bitmap.horizon(), source.tail_end);
}

void ReceiveSession::notice_gaps(Source& source, TimePoint now) noexcept {
  if (source.nacked_end >= known_end(source) || source.nack_at != kNever) return;
  const auto jitter = backoff_.below(static_cast<std::uint32_t>(kBackoff.count()));
  source.nack_at = now + kBackoff + Duration(static_cast<Duration::rep>(jitter));
  wake_at(source.nack_at);
}

void ReceiveSession::send_nack(Source& source, bool all, TimePoint now) noexcept {
  std::array<NackRange, kRangesMax> room;
  const auto ranges = std::span(room).first(port_.control_payload_max() / kNackRangeBytes);
  const std::uint32_t end = known_end(source);
  const std::size_t count = all ? source.bitmap.gaps_below(end, ranges)
                                : source.bitmap.gaps_between(source.nacked_end, end, ranges);
  source.nack_at = kNever;
  if (count == 0) {
    source.nacked_end = std::max(source.nacked_end, end);
    if (all) source.again_at = kNever;
    return;
  }
  if (fetch(source, ranges.first(count), now)) return;
  std::array<std::byte, kControlPayloadMax> payload;
  const std::size_t bytes = encode_nack(ranges.first(count), payload);
  const FrameHeader header{
      .kind = FrameKind::nack, .stream = settings_.stream, .epoch = epoch_, .round = source.round};
  if (!port_.send_control(source.rank, header, {payload.data(), bytes})) {
    source.nack_at = now + microseconds(100);
    wake_at(source.nack_at);
    return;
  }
  const auto& last = ranges[count - 1];
  const bool more = count == ranges.size();
  const std::uint32_t asked = more ? last.first + last.count : end;
  source.nacked_end = all ? asked : std::max(source.nacked_end, asked);
  for (std::size_t i = 0; i < count; ++i) counters_.nacked_frames += ranges[i].count;
  // What does not fit follows in NACKs of its own, before anything is asked for once more.
  if (more) notice_gaps(source, now);
  if (all || more || source.again_at == kNever) {
    source.again_at = now + source.patience;
    if (all) source.patience = std::min(source.patience * 2, kPatienceMax);
  }
}

bool ReceiveSession::fetch(Source& source, std::span<const NackRange> gaps,
                           TimePoint now) noexcept {
  ReadRepair* const read_repair = port_.read_repair();
  if (read_repair == nullptr || !source.location || !read_repair->ready(source.rank)) return false;
  if (source.reads_in_vain >= kReadsInVain) return false;
  const RepairRead what{.from = source.rank,
                        .epoch = epoch_,
                        .round = source.round,
                        .stream = settings_.stream,
                        .shape = shape_,
                        .location = *source.location};
  // What does not fit waits for its turn; what comes to nothing is noticed when patience ends.
  const std::uint32_t taken = read_repair->fetch(what, gaps);
  if (taken > 0) {
    source.nacked_end = std::max(source.nacked_end, known_end(source));
    const bool vain = source.bitmap.present() == source.present_at_read;
    source.reads_in_vain = vain ? source.reads_in_vain + 1 : 0;
    if (vain) source.patience = std::min(source.patience * 2, kPatienceMax);
    source.present_at_read = source.bitmap.present();
  }
  source.again_at = now + (taken > 0 ? source.patience : kPatienceFirst / 10);
  wake_at(source.again_at);
  return true;
}

void ReceiveSession::try_complete(Source& source) noexcept {
  if (!source.tail_final || !source.bitmap.complete() || source.state != SenderState::hearing)
    return;
  if (source.digest == source.tail_digest) {
    ++matched_;
  } else {
    mismatch_ = source.rank;
  }
  settle(source, SenderState::complete);
  send_ack(source.rank, epoch_, source.round, false);
}

void ReceiveSession::send_ack(Rank to, std::uint32_t epoch, std::uint32_t round,
                              bool gave_up) noexcept {
  // A lost or unsent ACK costs one more TAIL, which asks for it again.
  port_.send_control(to,
                     FrameHeader{.kind = FrameKind::ack,
                                 .stream = settings_.stream,
                                 .epoch = epoch,
                                 .round = round,
                                 .flags = gave_up ? frame_flag::kGaveUp : std::uint16_t{0}},
                     {});
}

void ReceiveSession::answer_old_tail(const FrameHeader& header) noexcept {
  const auto last = settings_.free_running ? opened(header.sender) : std::optional(round_);
  if (header.epoch < epoch_ || (begun_ && last && header.round <= *last)) {
    send_ack(header.sender, header.epoch, header.round,
             gave_up_round_[header.sender] == header.round + 1);
    return;
  }
  // The sender is ahead of us and asks whether we live.
  port_.send_control(header.sender,
                     FrameHeader{.kind = FrameKind::alive,
                                 .stream = settings_.stream,
                                 .epoch = header.epoch,
                                 .round = header.round},
                     {});
}

void ReceiveSession::on_control(const FrameHeader& header, std::span<const std::byte> payload,
                                TimePoint now) noexcept {
  if (header.kind != FrameKind::tail && header.kind != FrameKind::evict) return;
  Source* source = begun_ && header.epoch == epoch_ ? source_of(header.sender) : nullptr;
  if (source != nullptr && source->round != header.round) source = nullptr;
  if (header.kind == FrameKind::evict) {
    if (source != nullptr) settle(*source, SenderState::evicted_us);
    return;
  }
  if (payload.size() != 8 && payload.size() != 8 + kLocationBytes) {
    ++counters_.malformed;
    return;
  }
  const bool only_where = (header.flags & frame_flag::kWhere) != 0;
  if (source == nullptr || source->state != SenderState::hearing) {
    if (!only_where) answer_old_tail(header);
    return;
  }
  if (payload.size() > 8) source->location = decode_location(payload.subspan(8));
  if (only_where) return;
  source->tail_end =
      std::max(source->tail_end, std::min(shape_.frame_at(header.offset), source->range.end));
  if ((header.flags & frame_flag::kFinal) != 0) {
    source->tail_final = true;
    source->tail_digest = load_le<std::uint64_t>(payload.data());
    source->tail_end = source->range.end;
  }
  if (!source->bitmap.whole_below(source->tail_end)) {
    notice_gaps(*source, now);
    if (source->again_at == kNever && source->nack_at == kNever) {
      source->again_at = now + source->patience;
      wake_at(source->again_at);
    }
  }
  // The sender may be waiting for credit that was lost.
  if (!source->tail_final) source->credit_due = true;
  wake_at(now);
  try_complete(*source);
}

void ReceiveSession::progress(TimePoint now) noexcept {
  next_timer_ = kNever;
  if (unsettled_ == 0) return;
  for (std::size_t s = 0; s < source_count_; ++s) {
    auto& source = sources_[s];
    if (source.state != SenderState::hearing) continue;
    if (source.credit_due || source.next_credit <= now) grant(source, now);
    if (source.nack_at <= now) {
      send_nack(source, false, now);
    } else if (source.again_at <= now) {
      send_nack(source, true, now);
    }
    const TimePoint expires = deadlines_->expires(source.rank);
    if (expires <= now) {
      settle(source, SenderState::silent);
      send_ack(source.rank, epoch_, source.round, true);
      continue;
    }
    wake_at(std::min({source.nack_at, source.again_at, expires, source.next_credit}));
    if (source.credit_due) wake_at(now + microseconds(100));
  }
}

}  // namespace selmcast
