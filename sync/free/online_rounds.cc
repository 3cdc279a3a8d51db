#include "sync/free/online_rounds.h"

#include <algorithm>
#include <array>
#include <new>

namespace selmcast {

namespace {
using std::chrono::milliseconds;

constexpr Duration kAskAgain = milliseconds(2);
// So many lost frames are rare, and so long a wait is short beside a round.
constexpr Duration kPatience = milliseconds(20);
// A round is reported on about so many times, at least and at most so long after the last report.
constexpr int kReports = 16;
constexpr Duration kTellLeast = std::chrono::microseconds(250);
constexpr Duration kTellMost = milliseconds(4);

std::uint64_t bits_on_wire(const StreamShape& shape, std::uint32_t overhead) noexcept {
  const std::uint64_t around = kFrameHeaderBytes + overhead;
  return 8 * (shape.bytes + shape.frames() * around);
}

std::optional<std::size_t> member_of(const Program& program, Rank rank) noexcept {
  const auto& members = program.members;
  const auto at = std::lower_bound(members.begin(), members.end(), rank);
  if (at == members.end() || *at != rank) return std::nullopt;
  return static_cast<std::size_t>(at - members.begin());
}
}  // namespace

OnlineRounds::OnlineRounds(FramePort& port, const DriverConfig& config, const StreamShape& shape,
                           const Clocks& clocks)
    : port_(port),
      self_(config.self),
      patience_(std::min<Duration>(kPatience, config.timeout / 4)),
      headroom_(config.headroom),
      slack_(config.free->slack),
      shape_(shape),
      clocks_(clocks),
      volume_bits_(bits_on_wire(shape, port.transport().capabilities().wire_overhead_bytes)),
      controller_(config.world, volume_bits_),
      lane_(1),
      age_(config.world, 0) {
  lane_[0].receivers.reserve(config.world);  // set-up:
  marks_.reserve(config.world);              // set-up:
  chosen_.reserve(config.world);             // set-up:
  targets_.reserve(config.world);            // set-up:
}

void OnlineRounds::enter(const EpochState& epoch) noexcept {
  epoch_ = &epoch;
  // A request is of the epoch that its round will have.
  if (stage_ != Stage::sending) stage_ = Stage::idle;
  const Program& program = epoch.program;
  if (!program.online) return;
  const OnlineProgram& online = *program.online;
  controller_.configure(program.epoch, {online.p, online.k, slack_, online.eta});
  for (std::size_t m = 0; m < program.members.size(); ++m) {
    controller_.set_rates(program.members[m], online.tx_kbps[m], online.rx_kbps[m]);
  }
}

void OnlineRounds::learned(Rank rank) noexcept {
  controller_.ended(rank, clocks_.of(rank).round, clocks_.of(rank).stopped);
}

Rank OnlineRounds::selecting() const noexcept {
  for (const Rank rank : epoch_->program.members) {
    if (rank == self_ || clocks_.alive(rank)) return rank;
  }
  return self_;
}

bool OnlineRounds::may_receive(std::size_t member) const noexcept {
  const Program& program = epoch_->program;
  const Rank rank = program.members[member];
  return rank != self_ && clocks_.alive(rank) && program.online->rx_kbps[member] > 0;
}

// --- own rounds ----------------------------------------------------------------------------------

bool OnlineRounds::may_depart(std::uint32_t round, TimePoint now) noexcept {
  if (!epoch_->program.online || stage_ == Stage::planned) return true;
  if (stage_ != Stage::asking || round != round_) {
    stage_ = Stage::asking;
    alone_ = false;
    round_ = round;
    ask_at_ = now;
    alone_at_ = now + patience_;
  }
  if (now >= alone_at_) {
    choose_alone();
    return true;
  }
  if (now >= ask_at_) ask(now);
  return stage_ == Stage::planned;
}

void OnlineRounds::ask(TimePoint now) noexcept {
  ask_at_ = now + kAskAgain;
  const Program& program = epoch_->program;
  marks_.clear();
  bool any = false;
  for (std::size_t m = 0; m < program.members.size(); ++m) {
    const bool may = may_receive(m);
    any = any || may;
    const auto age = std::min<std::uint32_t>(age_[program.members[m]], kNoReceiver - 1);
    marks_.push_back(may ? static_cast<std::uint16_t>(age) : kNoReceiver);  // set-up: reserved
  }
  if (!any) return choose_alone();
  const Rank to = selecting();
  if (to == self_) {
    read_targets(program, self_, true);
    try {
      controller_.request(now, self_, program.epoch, round_, targets_);
    } catch (const std::bad_alloc&) {
      choose_alone();
    }
    return;
  }
  std::array<std::byte, kControlPayloadMax> payload;
  const std::size_t bytes = encode_marks(marks_, payload);
  const FrameHeader header{.kind = FrameKind::request,
                           .epoch = program.epoch,
                           .round = round_,
                           .flags = frame_flag::kAsk};
  port_.send_control(to, header, {payload.data(), bytes});
}

void OnlineRounds::choose_alone() noexcept {
  const Program& program = epoch_->program;
  const OnlineProgram& online = *program.online;
  const std::size_t n = program.members.size();
  const std::size_t me = *member_of(program, self_);
  auto& to = lane_[0].receivers;
  to.clear();
  double rate = static_cast<double>(online.tx_kbps[me]);
  chosen_.assign(n, 0);  // set-up: reserved
  const auto take = [&](std::size_t m) {
    chosen_[m] = 1;
    to.push_back(program.members[m]);  // set-up: reserved
    rate = std::min(rate, static_cast<double>(online.rx_kbps[m]) / online.p);
  };
  for (std::size_t m = 0; m < n; ++m) {
    if (may_receive(m) && online.k > 0 && age_[program.members[m]] >= online.k) take(m);
  }
  while (to.size() < online.p) {
    std::size_t best = n;
    // Each rank begins its search after itself, so that not all choose the same.
    for (std::size_t i = 1; i < n; ++i) {
      const std::size_t m = (me + i) % n;
      if (chosen_[m] != 0 || !may_receive(m)) continue;
      if (best == n || age_[program.members[m]] > age_[program.members[best]]) best = m;
    }
    if (best == n) break;
    take(best);
  }
  rate_ = std::max<Kbps>(static_cast<Kbps>(rate), 1);
  alone_ = true;
  stage_ = Stage::planned;
}

std::span<const LaneSpec> OnlineRounds::depart(TimePoint now) noexcept {
  const auto& planned = epoch_->ways_of(0, 0).lanes;
  if (!epoch_->program.online || planned.empty()) return planned;
  lane_[0].destination = planned[0].destination;
  stage_ = Stage::sending;
  tell_at_ = now + tell_interval();
  return lane_;
}

Duration OnlineRounds::tell_interval() const noexcept {
  const Duration round = transmission_time(volume_bits_ / 8, rate_);
  return std::clamp<Duration>(round / kReports, kTellLeast, kTellMost);
}

void OnlineRounds::ended(const SendSession& sender) noexcept {
  for (Rank rank = 0; rank < age_.size(); ++rank) {
    ++age_[rank];
    if (sender.state(rank) == ReceiverState::acked) age_[rank] = 0;
  }
  controller_.ended(self_, round_ + 1, false);
  alone_ = false;
  stage_ = Stage::idle;
}

void OnlineRounds::tell(const SendSession& sender, TimePoint now) noexcept {
  tell_at_ = now + tell_interval();
  const std::uint64_t number = plan_from_ == selecting() ? plan_number_ : 0;
  const Program& program = epoch_->program;
  const std::uint64_t frames = std::max(shape_.frames(), 1U);
  // At least one part until it is acknowledged.
  const auto left = static_cast<std::uint16_t>(
      std::max<std::uint64_t>(sender.frames_left() * std::uint64_t{kWholeRound} / frames, 1));
  marks_.clear();
  for (const Rank rank : program.members) {
    const ReceiverState state = sender.state(rank);
    const bool open = state == ReceiverState::waiting || state == ReceiverState::active;
    const std::uint16_t mark = state == ReceiverState::acked ? 0 : open ? left : kNoReceiver;
    marks_.push_back(mark);  // set-up: reserved
  }
  const Rank to = selecting();
  if (to == self_) {
    read_targets(program, self_, false);
    try {
      controller_.report(now, self_, program.epoch, round_, targets_, number, alone_);
    } catch (const std::bad_alloc&) {
      return;  // The next report may find memory.
    }
    return;
  }
  std::array<std::byte, kControlPayloadMax> payload;
  const std::size_t bytes = encode_marks(marks_, payload);
  const FrameHeader header{.kind = FrameKind::request,
                           .epoch = program.epoch,
                           .round = round_,
                           .offset = number,
                           .flags = alone_ ? frame_flag::kAlone : std::uint16_t{0}};
  port_.send_control(to, header, {payload.data(), bytes});
}

void OnlineRounds::on_plan(const ParsedFrame& frame, SendSession* sender, TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  const Program& program = epoch_->program;
  if (!program.online || header.epoch != program.epoch || header.sender != selecting()) return;
  if (header.round != round_) return;
  chosen_.resize(program.members.size());  // set-up: reserved
  const auto rate = parse_plan(frame.payload, chosen_);
  if (rate) take(header.offset, header.sender, *rate, sender, now);
}

void OnlineRounds::take(std::uint64_t number, Rank from, Kbps rate, SendSession* sender,
                        TimePoint now) noexcept {
  if (plan_from_ == from && number <= plan_number_) return;
  const Program& program = epoch_->program;
  const std::size_t me = *member_of(program, self_);
  rate = std::min(rate, program.online->tx_kbps[me]);
  if (stage_ == Stage::asking) {
    auto& to = lane_[0].receivers;
    to.clear();
    for (std::size_t m = 0; m < chosen_.size(); ++m) {
      if (chosen_[m] != 0 && may_receive(m)) to.push_back(program.members[m]);  // set-up: reserved
    }
    if (to.empty()) return;
    stage_ = Stage::planned;
  } else if (stage_ == Stage::sending && sender != nullptr) {
    for (std::size_t m = 0; !alone_ && m < chosen_.size(); ++m) {
      if (chosen_[m] == 0) sender->cut(program.members[m]);
    }
    sender->set_rate(static_cast<Kbps>(headroom_ * static_cast<double>(rate)), now);
  } else {
    return;
  }
  rate_ = rate;
  plan_from_ = from;
  plan_number_ = number;
}

// --- the rank that selects -----------------------------------------------------------------------

void OnlineRounds::read_targets(const Program& program, Rank sender, bool asks) noexcept {
  targets_.clear();
  for (std::size_t m = 0; m < marks_.size(); ++m) {
    const Rank rank = program.members[m];
    if (marks_[m] == kNoReceiver || rank == sender) continue;
    const std::uint32_t share = std::min(marks_[m], kWholeRound);
    const std::uint64_t left =
        asks ? volume_bits_ : (volume_bits_ * share + kWholeRound - 1) / kWholeRound;
    targets_.push_back({rank, asks ? marks_[m] : 0U, left});  // set-up: reserved
  }
}

void OnlineRounds::on_request(const Program& program, const ParsedFrame& frame,
                              TimePoint now) noexcept {
  const FrameHeader& header = frame.header;
  if (!program.online || !member_of(program, header.sender)) return;
  // Whoever is taken for the lowest live rank decides, so that none waits in vain.
  if (epoch_ == nullptr || !epoch_->program.online || !clocks_.alive(header.sender)) return;
  marks_.resize(program.members.size());  // set-up: reserved
  if (!parse_marks(frame.payload, marks_)) return;
  const bool asks = (header.flags & frame_flag::kAsk) != 0;
  read_targets(program, header.sender, asks);
  try {
    if (asks) {
      controller_.request(now, header.sender, header.epoch, header.round, targets_);
    } else {
      const bool alone = (header.flags & frame_flag::kAlone) != 0;
      controller_.report(now, header.sender, header.epoch, header.round, targets_, header.offset,
                         alone);
    }
  } catch (const std::bad_alloc&) {
    return;  // The sender chooses by itself.
  }
}

bool OnlineRounds::send_plans(SendSession* sender, TimePoint now) noexcept {
  try {
    if (!controller_.decide(now)) return false;
  } catch (const std::bad_alloc&) {
    return false;  // Senders choose by themselves.
  }
  const Program& program = epoch_->program;
  for (const Rank to : program.members) {
    if (!controller_.to_tell(to)) continue;
    const auto& m = controller_.of(to);
    const std::uint64_t number = controller_.issue(to);
    chosen_.assign(program.members.size(), 0);  // set-up: reserved
    for (const auto& target : m.targets) {
      if (const auto at = member_of(program, target.receiver)) chosen_[*at] = 1;
    }
    const Kbps rate = std::max<Kbps>(m.rate, 1);
    if (to == self_) {
      if (m.round == round_) take(number, self_, rate, sender, now);
      continue;
    }
    std::array<std::byte, kControlPayloadMax> payload;
    const std::size_t bytes = encode_plan(rate, chosen_, payload);
    const FrameHeader header{
        .kind = FrameKind::plan, .epoch = m.epoch, .round = m.round, .offset = number};
    port_.send_control(to, header, {payload.data(), bytes});
  }
  return true;
}

std::size_t OnlineRounds::progress(SendSession* sender, TimePoint now) noexcept {
  if (epoch_ == nullptr || !epoch_->program.online) return 0;
  if (stage_ == Stage::sending && sender != nullptr && now >= tell_at_) tell(*sender, now);
  return send_plans(sender, now) ? 1 : 0;
}

TimePoint OnlineRounds::next_timer() const noexcept {
  if (stage_ == Stage::asking) return std::min(ask_at_, alone_at_);
  return stage_ == Stage::sending ? tell_at_ : kNever;
}

}  // namespace selmcast
