#include "plan/online/controller.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "plan/online/rates.h"

namespace selmcast {

namespace {
// A sender reports every few milliseconds; one that does not has ended, and its CLOCK was lost.
constexpr Duration kForget = std::chrono::milliseconds(500);
// However late its deadline, a multicast counts for so much of what it could use alone.
constexpr double kLeastShare = 0.02;
// Smaller changes of a rate are not worth a frame.
constexpr double kRateNews = 0.05;
}  // namespace

OnlineController::OnlineController(std::uint32_t world, std::uint64_t volume_bits)
    : volume_(std::max<std::uint64_t>(volume_bits, 1)),
      tx_(world, 0),
      rx_(world, 0),
      multicasts_(world),
      paces_(world) {}

void OnlineController::set_rates(Rank rank, Kbps tx, Kbps rx) noexcept {
  tx_[rank] = tx;
  rx_[rank] = rx;
}

void OnlineController::configure(std::uint32_t epoch, const OnlineSettings& settings) noexcept {
  epoch_ = epoch;
  settings_ = settings;
  for (auto& m : multicasts_) {
    if (!m.open || m.epoch == epoch) continue;
    // One that has not begun is requested again in the new epoch.
    if (m.started) m.open = false;
    m.kept = true;
    for (auto& target : m.targets) target.forced = true;
  }
}

bool OnlineController::to_tell(Rank sender) const noexcept {
  const Multicast& m = multicasts_[sender];
  return m.open && !m.started && m.news && m.epoch == epoch_;
}

std::uint64_t OnlineController::issue(Rank sender) noexcept {
  Multicast& m = multicasts_[sender];
  m.news = false;
  if (std::exchange(m.changed, false) || m.number == 0) m.number = ++numbers_;
  return m.number;
}

void OnlineController::note_request(TimePoint now, Rank sender, std::uint32_t round) noexcept {
  Pace& pace = paces_[sender];
  if (pace.asked && round == pace.asked_round + 1) {
    const Duration sample = now - pace.asked_at;
    pace.period = pace.period == Duration::zero() ? sample : (3 * pace.period + sample) / 4;
  }
  pace.asked = true;
  pace.asked_round = round;
  pace.asked_at = now;
}

void OnlineController::request(TimePoint now, Rank sender, std::uint32_t epoch, std::uint32_t round,
                               std::span<const Target> targets) {
  if (paces_[sender].lost || round < paces_[sender].ended || tx_[sender] == 0) return;
  Multicast& m = multicasts_[sender];
  if (m.open && (round < m.round || (round == m.round && epoch < m.epoch))) return;
  if (m.open && round == m.round && epoch == m.epoch) {
    m.heard = now;
    if (!m.started) tell(m);
    return;
  }
  if (!m.open || round != m.round) note_request(now, sender, round);
  ended(sender, round, paces_[sender].stopped);
  m.open = m.started = start_ = true;
  m.kept = m.news = m.changed = false;
  m.epoch = epoch;
  m.round = round;
  m.heard = now;
  m.rate = 0;
  m.number = 0;
  m.targets.clear();
  for (const Target& target : targets) {
    const Rank to = target.receiver;
    if (to == sender || paces_[to].lost || rx_[to] == 0) continue;
    const bool forced = settings_.k > 0 && target.age >= settings_.k;
    m.targets.push_back({to, volume_, target.age, forced});
  }
}

void OnlineController::report(TimePoint now, Rank sender, std::uint32_t epoch, std::uint32_t round,
                              std::span<const Target> targets, std::uint64_t number, bool alone) {
  if (paces_[sender].lost || round < paces_[sender].ended || tx_[sender] == 0) return;
  Multicast& m = multicasts_[sender];
  if (m.open && (round < m.round || (round == m.round && epoch < m.epoch))) return;
  const bool known = m.open && round == m.round && epoch == m.epoch;
  m.heard = now;
  if (!known) m.number = m.rate = 0;
  if (number != m.number) tell(m);
  if (known && !m.kept && !alone) {
    // The plan counts. A receiver that it does not have will be cut out by the plan once it is
    // there; one that the sender does not have any more is settled.
    for (auto& target : m.targets) {
      const auto at = std::find_if(targets.begin(), targets.end(),
                                   [&](const Target& t) { return t.receiver == target.receiver; });
      target.left = at == targets.end() ? 0 : std::min(at->left, volume_);
    }
    return;
  }
  if (!known) {
    ended(sender, round, paces_[sender].stopped);
    m.deadline = now;
    share_ = true;
  }
  m.open = m.kept = true;
  m.started = false;
  m.epoch = epoch;
  m.round = round;
  m.targets.clear();
  for (const Target& target : targets) {
    if (target.receiver == sender || rx_[target.receiver] == 0) continue;
    m.targets.push_back({target.receiver, std::min(target.left, volume_), 0, true});
  }
}

void OnlineController::ended(Rank rank, std::uint32_t rounds, bool stopped) noexcept {
  Pace& pace = paces_[rank];
  pace.ended = std::max(pace.ended, rounds);
  pace.stopped = pace.stopped || stopped;
  Multicast& m = multicasts_[rank];
  if (!m.open || m.round >= pace.ended) return;
  m.open = false;
  share_ = true;
}

void OnlineController::lose(Rank rank) noexcept {
  paces_[rank].lost = true;
  multicasts_[rank].open = false;
  share_ = true;
  for (auto& m : multicasts_) {
    std::erase_if(m.targets, [rank](const auto& target) { return target.receiver == rank; });
  }
}

TransferTime OnlineController::blocked(Rank sender, TimePoint now) const noexcept {
  const std::uint64_t done = std::uint64_t{multicasts_[sender].round} + 1;
  double receive = 0.0;
  std::uint32_t receivers = 0;
  for (Rank rank = 0; rank < rx_.size(); ++rank) {
    if (paces_[rank].lost || rx_[rank] == 0) continue;
    receive += static_cast<double>(rx_[rank]);
    ++receivers;
  }
  // Milliseconds, as bits are to kbit/s: p copies at the mean receive rate.
  const double copies = receivers == 0 ? 0.0
                                       : settings_.p * static_cast<double>(volume_) * receivers /
                                             std::max(receive, 1.0);
  Duration longest{};
  for (Rank rank = 0; rank < paces_.size(); ++rank) {
    const Pace& pace = paces_[rank];
    if (rank == sender || pace.lost || pace.stopped || tx_[rank] == 0) continue;
    if (done <= std::uint64_t{pace.ended} + settings_.slack) continue;
    const Multicast& theirs = multicasts_[rank];
    Duration rest{};
    if (theirs.open && !theirs.started) {
      rest = theirs.deadline - now;
    } else {
      const bool computes = !theirs.open && pace.period > Duration::zero();
      if (computes) rest = std::max(pace.asked_at + pace.period - now, Duration::zero());
      rest +=
          std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(copies));
    }
    longest = std::max(longest, rest);
  }
  using std::chrono::microseconds;
  return {static_cast<std::uint64_t>(std::chrono::duration_cast<microseconds>(longest).count()),
          1000};
}

void OnlineController::forget_silent(TimePoint now) noexcept {
  for (auto& m : multicasts_) {
    if (m.open && m.heard + kForget < now) m.open = false;
  }
}

bool OnlineController::decide(TimePoint now) {
  if (start_ || share_) {
    forget_silent(now);
    if (start_) select(now);
    start_ = share_ = false;
    share(now);
  }
  return std::exchange(news_, false);
}

void OnlineController::select(TimePoint now) {
  std::vector<OpenMulticast> open;
  for (Rank sender = 0; sender < multicasts_.size(); ++sender) {
    auto& m = multicasts_[sender];
    if (!m.open) continue;
    open.push_back({sender, volume_, blocked(sender, now), m.targets, {}});
  }
  SspSelection problem;
  problem.p.assign(multicasts_.size(), settings_.p);
  problem.tx_kbps = tx_;
  problem.rx_kbps = rx_;
  problem.eta = settings_.eta;
  select_published_ssp(problem, open);
  for (auto& one : open) {
    auto& m = multicasts_[one.sender];
    if (m.started || one.targets.size() != m.targets.size()) change(m);
    m.started = false;
    m.targets = std::move(one.targets);
    m.deadline = now + std::chrono::duration_cast<Duration>(
                           std::chrono::duration<double, std::milli>(one.deadline.value()));
  }
}

void OnlineController::share(TimePoint now) {
  std::vector<PacedStream> streams;
  for (Rank sender = 0; sender < multicasts_.size(); ++sender) {
    const auto& m = multicasts_[sender];
    if (!m.open || m.started) continue;
    PacedStream stream{sender, {}, 0.0, 0.0};
    std::uint64_t left = 0;
    Kbps fastest = tx_[sender];
    for (const auto& target : m.targets) {
      if (target.left == 0) continue;
      stream.receivers.push_back(target.receiver);
      left = std::max(left, target.left);
      fastest = std::min(fastest, rx_[target.receiver]);
    }
    if (stream.receivers.empty()) continue;
    // What is overdue, or soon will be, cannot be faster than alone.
    const double alone = static_cast<double>(std::max<Kbps>(fastest, 1));
    const double ms = std::chrono::duration<double, std::milli>(m.deadline - now).count();
    const double needed = static_cast<double>(left) / std::max(ms, 1e-3);
    stream.weight = std::clamp(needed, kLeastShare * alone, alone);
    streams.push_back(std::move(stream));
  }
  weighted_rates(tx_, rx_, streams);
  for (const PacedStream& stream : streams) {
    auto& m = multicasts_[stream.sender];
    const double rate = std::max(stream.rate, 1.0);
    const double told = static_cast<double>(m.rate);
    if (rate > told * (1 + kRateNews) || rate < told * (1 - kRateNews)) {
      m.rate = static_cast<Kbps>(rate);
      change(m);
    }
  }
}

}  // namespace selmcast
