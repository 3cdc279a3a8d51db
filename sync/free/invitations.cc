#include "sync/free/invitations.h"

#include <algorithm>
#include <new>
#include <utility>

namespace selmcast {

namespace {

std::uint32_t group_of(const Program& program, Rank sender) noexcept {
  const auto& members = program.members;
  const auto at = std::lower_bound(members.begin(), members.end(), sender);
  return program.online->first_group + static_cast<std::uint32_t>(at - members.begin());
}

}  // namespace

std::optional<std::uint32_t> Invitations::next(const EpochState& epoch, Rank sender,
                                               std::uint32_t from) const noexcept {
  if (!epoch.program.online) {
    const auto size = static_cast<std::uint32_t>(epoch.program.rounds.size());
    for (std::uint32_t round = from; round - from < size; ++round) {
      const auto& senders = epoch.ways_of(round, 0).senders;
      if (std::binary_search(senders.begin(), senders.end(), sender)) return round;
    }
    return std::nullopt;
  }
  const Invitation& last = last_[sender];
  if (last.epoch != epoch.program.epoch || last.round < std::max(from, last.not_below)) {
    return std::nullopt;
  }
  return last.round;
}

bool Invitations::invited(const EpochState& epoch, const FrameHeader& header) noexcept {
  if (!epoch.program.online) return false;
  Invitation& last = last_[header.sender];
  if (header.epoch < last.epoch || header.round < last.round) return false;
  const bool news = header.epoch != last.epoch || header.round != last.round;
  last.epoch = header.epoch;
  last.round = header.round;
  return news;
}

void Invitations::cut(const FrameHeader& header) noexcept {
  Invitation& last = last_[header.sender];
  last.not_below = std::max(last.not_below, header.round + 1);
}

bool Invitations::join(EpochState& epoch, Rank sender) noexcept {
  if (!epoch.program.online) return true;
  const std::uint32_t group = group_of(epoch.program, sender);
  // One system call per round heard, before its first credit.
  try {
    auto joined = transport_.join({group}, JoinAs::receiver);
    if (!joined) {
      error_ = std::move(joined).error();
      return false;
    }
    epoch.memberships.push_back(  // set-up: once per round heard
        {group, JoinAs::receiver, std::move(joined).value()});
  } catch (const std::bad_alloc&) {
    error_ = unavailable("no memory to join a group");
    return false;
  }
  ++changes_;
  return true;
}

void Invitations::leave(EpochState& epoch, Rank sender) noexcept {
  if (!epoch.program.online) return;
  const std::uint32_t group = group_of(epoch.program, sender);
  auto& held = epoch.memberships;
  const auto in = std::find_if(held.begin(), held.end(), [group](const auto& one) {
    return one.group == group && one.as == JoinAs::receiver;
  });
  if (in == held.end()) return;
  std::swap(*in, held.back());
  held.pop_back();
  ++changes_;
}

}  // namespace selmcast
